//! Image whose stored data an increment reuses.

use kiln_format::inode::Epoch;
use kiln_read::{DirEntries, FileSource, Image, ImageOptions, Nid, ReadAt, ReadError};
use kiln_source::dir::{FileId, FileStamp};
use kiln_source::image::erofs::{ImageSource, reusable_extents};
use kiln_source::{Scan, ScanOptions, Source, SourceError, Unreadable};
use kiln_tree::filter::Filter;
use kiln_tree::{Base, BaseFacts, BaseMetadata, ContentError, Kind, NodeId, Reuse, ReusedExtents, Tree};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An image whose stored data another image reuses.
pub struct BaseImage {
    path: PathBuf,
    /// The image's file, to copy from, and its stamp when it was opened.
    file: Option<(File, FileStamp)>,
    source: Arc<dyn ReadAt>,
    image: Image,
    facts: BaseFacts,
    /// Modification time of the file in seconds since 1970, if it is a regular file.
    changed_at: Option<i64>,
}

impl BaseImage {
    /// Opens the image at `path`.
    ///
    /// # Errors
    /// A file that is not an image, a damaged image, and one with extra devices.
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        let unreadable = |source| SourceError::Unreadable(Unreadable { path: path.to_owned(), source });
        let failed = |source| SourceError::Image { path: path.to_owned(), offset: 0, source };
        let file = File::open(path).map_err(unreadable)?;
        let stamp = FileStamp::of(&file).map_err(|error| unreadable(io::Error::other(error)))?;
        let source = FileSource::from_file(file.try_clone().map_err(unreadable)?).map_err(unreadable)?;
        let source: Arc<dyn ReadAt> = Arc::new(source);
        let image = Image::open(source.clone(), Vec::new(), &ImageOptions::default()).map_err(failed)?;
        let devices = image.superblock().extra_devices;
        if devices > 0 {
            let reason = format!(
                "a base with {devices} extra devices (extra_devices) is not supported; pack it into an image without them \
                 first (kiln pack --device), or pack without a base"
            );
            return Err(SourceError::Unsupported { path: path.to_owned(), reason });
        }
        let facts = facts(&image, Reuse::Copy).map_err(failed)?;
        let changed_at = changed_at(&file);
        Ok(Self { path: path.to_owned(), file: Some((file, stamp)), source, image, facts, changed_at })
    }

    /// Opens the image in `source` as the base of an image that is appended to it. `number` is the
    /// number of the last generation. Error messages name it `path`. `changed_at` is its
    /// modification time in seconds since 1970, if known.
    ///
    /// # Errors
    /// A source that is not an image, or a damaged image.
    pub fn in_place(
        source: Arc<dyn ReadAt>,
        number: u32,
        path: &Path,
        changed_at: Option<i64>,
    ) -> Result<Self, SourceError> {
        let failed = |source| SourceError::Image { path: path.to_owned(), offset: 0, source };
        let options = ImageOptions::default().with_generation(Some(number));
        let image = Image::open(source.clone(), Vec::new(), &options).map_err(failed)?;
        let facts = facts(&image, Reuse::InPlace).map_err(failed)?;
        Ok(Self { path: path.to_owned(), file: None, source, image, facts, changed_at })
    }

    /// Returns the image.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Returns bytes that identify the image among others.
    pub fn identity(&self) -> &[u8] {
        &self.facts.identity
    }

    /// Returns the reusable extents of the packed inode.
    pub fn packed(&self) -> &ReusedExtents {
        &self.facts.packed
    }

    /// Scans the complete tree of the image, whose contents tell how the image stores them.
    ///
    /// # Errors
    /// Those of [`Source::scan`].
    pub fn scan(self: &Arc<Self>, options: &ScanOptions<'_>) -> Result<Scan, SourceError> {
        let source = ImageSource::new(self.image.clone(), &self.path).with_base(self.clone());
        let filter = Filter::default();
        // An image that is appended to is also the output.
        let outputs = if self.facts.reuse == Reuse::InPlace { &[] } else { options.outputs };
        source.scan(&ScanOptions { filter: &filter, keep_going: false, outputs, ..*options })
    }

    /// Scans the image like [`BaseImage::scan`]; returns the nids of regular files, too, by content
    /// id.
    ///
    /// # Errors
    /// Those of [`BaseImage::scan`].
    pub(crate) fn scan_with_nids(&self, options: &ScanOptions<'_>) -> Result<(Scan, Arc<[Nid]>), SourceError> {
        let id = self.file.as_ref().and_then(|(file, _)| FileId::of(file).ok());
        if id.is_some_and(|id| options.outputs.contains(&id)) {
            return Err(SourceError::IsOutput { path: self.path.clone() });
        }
        let source = ImageSource::new(self.image.clone(), &self.path);
        source.scan_with_nids(&ScanOptions { keep_going: false, ..*options })
    }

    /// Returns the path of the image.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the build time of the image in seconds since 1970, if it has one.
    pub(crate) fn built_at(&self) -> Option<i64> {
        let superblock = self.image.superblock();
        (superblock.build_time > 0).then(|| superblock.epoch.saturating_add(superblock.build_time.into()))
    }

    /// Returns the modification time of the file in seconds since 1970, if known.
    pub(crate) fn changed_at(&self) -> Option<i64> {
        self.changed_at
    }
}

/// Returns the modification time of a regular file.
fn changed_at(file: &File) -> Option<i64> {
    file.metadata().ok().filter(|meta| meta.is_file()).map(|meta| meta.mtime())
}

fn facts(image: &Image, reuse: Reuse) -> Result<BaseFacts, ReadError> {
    let superblock = image.superblock();
    let packed = match superblock.packed_nid {
        Some(nid) => reusable_extents(image, &image.inode(nid)?)?.filter(|extents| extents.fragment.is_none()),
        None => None,
    };
    Ok(BaseFacts {
        reuse,
        // The UUID of kiln's images depends on all of their contents. Other programs' UUIDs are
        // random.
        identity: [&superblock.uuid[..], &superblock.checksum.to_le_bytes(), &superblock.blocks.to_le_bytes()].concat(),
        len: image.source_len(),
        block_bits: superblock.block_bits,
        cfgs: *image.compr_cfgs(),
        packed: packed.unwrap_or_else(ReusedExtents::default),
        metadata: (reuse == Reuse::InPlace && superblock.metabox_nid.is_none()).then_some(BaseMetadata {
            epoch: Epoch { secs: superblock.epoch, nsec: superblock.fixed_nsec },
            xattr_blkaddr: superblock.xattr_blkaddr,
        }),
    })
}

impl Base for BaseImage {
    fn facts(&self) -> &BaseFacts {
        &self.facts
    }

    fn file(&self) -> Option<&File> {
        self.file.as_ref().map(|(file, _)| file)
    }

    fn read_exact_at(&self, buf: &mut [u8], pa: u64) -> io::Result<()> {
        self.source.read_exact_at(buf, pa)
    }

    fn inode_places(&self, tree: &Tree) -> Vec<(NodeId, u64)> {
        let superblock = self.image.superblock();
        let root = self.image.root_nid();
        let mut places: Vec<_> = superblock.inode_place(root).into_iter().map(|at| (NodeId::ROOT, at)).collect();
        let (mut dirs, mut linked) = (vec![(NodeId::ROOT, root)], HashSet::new());
        while let Some((dir, nid)) = dirs.pop() {
            let Ok(inode) = self.image.inode(nid) else { continue };
            // Names are sorted by their bytes in both.
            let mut old = DirEntries::new(&self.image, &inode).map_while(Result::ok).peekable();
            for entry in tree.entries(dir).iter() {
                while old.next_if(|old| *old.name < *entry.name).is_some() {}
                let Some(same) = old.next_if(|old| *old.name == *entry.name) else { continue };
                if tree.names_of(entry.node) > 1 && !linked.insert(entry.node) {
                    continue;
                }
                places.extend(superblock.inode_place(same.nid).map(|at| (entry.node, at)));
                if matches!(tree.node(entry.node).kind, Kind::Directory(_)) {
                    dirs.push((entry.node, same.nid));
                }
            }
        }
        places
    }

    fn verify_unchanged(&self) -> Result<(), ContentError> {
        self.file.as_ref().map_or(Ok(()), |(file, stamp)| stamp.verify(file))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use kiln_builder::{BuildOptions, Control};
    use kiln_output::MemoryOutput;
    use kiln_read::MemorySource;
    use kiln_tree::{Builder, Metadata, NoContents};
    use std::sync::atomic::AtomicBool;

    /// Returns an image of an empty directory.
    pub(crate) fn empty_base() -> Arc<BaseImage> {
        let tree = Builder::new(Metadata::default()).finish(Box::new(NoContents)).unwrap();
        let (output, stop) = (MemoryOutput::default(), AtomicBool::new(false));
        let control = Control { stop: &stop, progress: &|_| {} };
        kiln_builder::build(&tree, &output, &BuildOptions::default(), &control).unwrap();
        let source = Arc::new(MemorySource::new(output.into_bytes()));
        Arc::new(BaseImage::in_place(source, 0, "empty".as_ref(), None).unwrap())
    }
}

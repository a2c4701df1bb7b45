//! An image in memory that was updated in place.

use crate::data::Texture;
use crate::disk::Disk;
use crate::image::{build, exactly, options};
use crate::mem::{MemFile, MemTree};
use kiln_builder::{Control, Fragments};
use kiln_codec::Method;
use kiln_format::generation::{END_LEN, RECORD_LEN};
use kiln_read::{Image, ImageOptions, MemorySource, ReadAt, ReadError, generations};
use kiln_revise::EditedImage;
use kiln_revise::update::{About, Added, BehindImage, TargetExtent, Update, UpdateTarget};
use kiln_source::{ScanOptions, Source};
use kiln_tree::NodeId;
use kilnfs::Error;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Number of bytes of an inode and the data beside it that are certainly metadata.
const INODE_LEN: usize = 96;

/// An image with four generations: as built, without a file, as built again, without another file.
pub struct UpdatedImage {
    /// Contents of the image.
    pub bytes: Vec<u8>,
}

impl UpdatedImage {
    /// Makes the image; its bytes are always the same.
    ///
    /// # Errors
    /// Those of an update.
    ///
    /// # Panics
    /// If the tree cannot be built.
    pub fn make() -> Result<Self, Error> {
        let mut tree = MemTree::default();
        let dir = tree.dir(NodeId::ROOT, b"dir");
        for (name, texture, len) in [
            (&b"small"[..], Texture::Text, 700),
            (b"packed", Texture::Binary, 5000),
            (b"long", Texture::Text, 70_000),
            (b"noise", Texture::Noise, 9000),
        ] {
            let file = tree.file(dir, name, MemFile::whole(texture.bytes(3, len)));
            tree.xattr(file, b"user.name", name);
        }
        tree.file(NodeId::ROOT, b"empty", MemFile::default());
        let options = options(Some((Method::Lz4, 1)), 4096, 1).with(|o| o.packing.fragments = Fragments::UpTo(6000));
        let (bytes, _) = build(&tree.finish().expect("a tree"), &options).expect("an image");
        let disk = Disk::new(bytes, &Arc::new(AtomicU64::new(u64::MAX)));
        without(&disk, b"dir/noise")?;
        begin(&disk)?.roll_back(0, &About::default())?;
        without(&disk, b"dir/packed")?;
        Ok(Self { bytes: disk.durable() })
    }

    /// Returns the byte ranges that determine the meaning of the rest: superblocks, records and
    /// ends of generations, inodes of each.
    ///
    /// # Errors
    /// An image that is damaged.
    pub fn metadata(&self) -> Result<Vec<Range<usize>>, ReadError> {
        let source: Arc<dyn ReadAt> = Arc::new(MemorySource::new(self.bytes.clone()));
        let mut ranges = vec![1024..1024 + 192; 2];
        for found in generations(&source)? {
            if found.number > 0 {
                let start = found.start as usize;
                ranges.extend([start..start + 72, start + 512..start + RECORD_LEN]);
                ranges.push(found.end as usize - END_LEN..found.end as usize);
            }
            let options = ImageOptions::default().with_generation(Some(found.number));
            let image = Image::open(source.clone(), Vec::new(), &options)?;
            let start = found.superblock.meta_blkaddr.0 << found.superblock.block_bits.bits();
            let root = image.inode(image.root_nid())?;
            for entry in image.walk(&root, b"") {
                let at = (start + entry?.inode.nid.0 * 32) as usize;
                ranges.push(at..(at + INODE_LEN).min(self.bytes.len()));
            }
        }
        Ok(ranges)
    }
}

/// Begins an update of the image on `disk`.
///
/// # Errors
/// Those of [`Update::begin`].
pub fn begin(disk: &Disk) -> Result<Update<'_>, Error> {
    let source = Arc::new(MemorySource::new(disk.now()));
    let (path, extent) = (Path::new("image"), TargetExtent::File);
    let target = UpdateTarget { path, output: disk, source, extent, changed_at: None };
    Ok(Update::begin(target, BehindImage::OwnRemains)?)
}

/// Updates the image on `disk` to remove the file at `path`.
///
/// # Errors
/// Those of an update.
pub fn without(disk: &Disk, path: &[u8]) -> Result<Added, Error> {
    let update = begin(disk)?;
    let stop = AtomicBool::new(false);
    let mut edited = EditedImage::new(update.base().clone());
    edited.remove(path);
    let options = update.choices()?.build_options().map_err(Error::from)?.with(|o| {
        o.work.threads = exactly(1);
        o.work.scratch_dir = std::env::temp_dir();
    });
    let scan = edited.scan(&ScanOptions::new(&stop)).map_err(Error::from)?;
    let control = Control { stop: &stop, progress: &|_| {} };
    let (_, _, added) = update.build(&scan.tree, &options, &control, &About::default())?;
    Ok(added)
}

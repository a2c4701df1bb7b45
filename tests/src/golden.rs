//! Golden images of other builders, one per feature, and small images that fuzzing starts from.

use kiln_mount::fuse::ImageSources;
use kiln_read::{Image, ImageOptions, MemorySource, ReadAt, ReadError};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An image, and its extra device if it has one.
pub struct Golden {
    /// File name without extension.
    pub name: String,
    /// Path of the image.
    pub path: PathBuf,
    /// Contents of the image.
    pub bytes: Vec<u8>,
    /// Contents of its extra device.
    pub blob: Option<Arc<MemorySource>>,
}

impl Golden {
    /// Opens `bytes` in place of the image, ignoring its checksum, with its device and a small
    /// cache.
    ///
    /// # Errors
    /// Those of [`Image::open`].
    pub fn open_as(&self, bytes: Vec<u8>) -> Result<Image, ReadError> {
        self.open_from(Arc::new(MemorySource::new(bytes)))
    }

    /// Returns the sources of the image with other bytes, for a mount.
    pub fn sources_of(&self, bytes: Vec<u8>) -> ImageSources {
        let devices = self.blob.iter().map(|blob| Arc::clone(blob) as Arc<dyn ReadAt>).collect();
        let primary = Arc::new(MemorySource::new(bytes));
        ImageSources::new(primary).with_devices(devices)
    }

    /// Does the same for any source.
    ///
    /// # Errors
    /// Those of [`Image::open`].
    pub fn open_from(&self, source: Arc<dyn ReadAt>) -> Result<Image, ReadError> {
        let devices = self.blob.iter().map(|blob| Arc::clone(blob) as Arc<dyn ReadAt>).collect();
        let options = ImageOptions::default().with_any_checksum().with_cache_bytes(4 << 20);
        Image::open(source, devices, &options)
    }

    /// Returns the byte ranges that determine the meaning of the rest: the superblock, inodes with
    /// the data beside them, directories. Ranges inside compressed data are left out.
    ///
    /// # Errors
    /// An image that is damaged already.
    pub fn metadata(&self) -> Result<Vec<Range<usize>>, ReadError> {
        let image = self.open_as(self.bytes.clone())?;
        let sb = image.superblock();
        let start = sb.meta_blkaddr.0 << sb.block_bits.bits();
        // The superblock twice, because it is small compared with the rest.
        let mut ranges = vec![1024..1024 + 192; 2];
        let root = image.inode(image.root_nid())?;
        let special = [sb.packed_nid, sb.metabox_nid].into_iter().flatten();
        let named = image.walk(&root, b"").map(|entry| Ok::<_, ReadError>(entry?.inode.nid));
        for nid in special.map(Ok).chain(named) {
            let nid = nid?;
            if let Some(off) = nid.byte_off().filter(|_| !nid.in_metabox()) {
                // An inode, its attributes and the start of its index.
                ranges.push((start + off) as usize..(start + off) as usize + 192);
            }
            let inode = image.inode(nid)?;
            if inode.is_dir()
                && let kiln_read::ExtentKind::Raw { device: 0, pa } = image.extent_at(&inode, 0)?.kind
            {
                ranges.push(pa as usize..(pa + inode.meta.size) as usize);
            }
        }
        let len = self.bytes.len();
        ranges.iter_mut().for_each(|range| *range = range.start.min(len)..range.end.min(len));
        Ok(ranges)
    }
}

/// Directory of the reader's golden images.
const GOLDEN_DIR: &str = "crates/read/tests/golden";

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the path of a golden image, or of a file beside it.
pub fn file(name: &str) -> PathBuf {
    project().join(GOLDEN_DIR).join(name)
}

/// Clears the checksum flag of an image's superblock.
pub fn remove_checksum(bytes: &mut [u8]) {
    if let Some(compat) = bytes.get_mut(1024 + 8) {
        *compat &= !1;
    }
}

/// Opens the golden image of this name, with its extra device if it has one.
///
/// # Panics
/// If it cannot be opened.
pub fn open(name: &str) -> Image {
    let blob = file(&format!("{name}.blob"));
    let devices = Vec::from_iter(Some(blob).filter(|path| path.exists()));
    Image::open_path(&file(&format!("{name}.erofs")), &devices, &ImageOptions::default()).expect("a good image")
}

/// Returns all images in `dir` of the project, by name.
fn in_dir(dir: &str) -> io::Result<Vec<Golden>> {
    let mut list = Vec::new();
    for entry in fs::read_dir(project().join(dir))? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "erofs") {
            continue;
        }
        let blob = path.with_extension("blob");
        let blob = if blob.exists() { Some(Arc::new(MemorySource::new(fs::read(blob)?))) } else { None };
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        list.push(Golden { name, bytes: fs::read(&path)?, blob, path });
    }
    list.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(list)
}

/// Returns the reader's golden images.
///
/// # Errors
/// Files that cannot be read.
pub fn golden_images() -> io::Result<Vec<Golden>> {
    in_dir(GOLDEN_DIR)
}

/// Returns the small images that fuzzing starts from.
///
/// # Errors
/// Files that cannot be read.
pub fn small_images() -> io::Result<Vec<Golden>> {
    in_dir("fuzz/images")
}

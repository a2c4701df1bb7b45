//! Images of other builders, one for each feature: those that the reader is tested with, and small ones to be fuzzed.

use kiln_mount::fuse::ImageSources;
use kiln_read::{Image, ImageOptions, MemorySource, ReadAt, ReadError};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An image, and its extra device if it has one.
pub struct Golden {
    /// Name of its file, without extension.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Those of its extra device.
    pub blob: Option<Arc<MemorySource>>,
}

impl Golden {
    /// The image made of `bytes` instead of its own, whatever its checksum says, with its device and a small cache.
    ///
    /// # Errors
    /// As [`Image::open`].
    pub fn open_as(&self, bytes: Vec<u8>) -> Result<Image, ReadError> {
        self.open_from(Arc::new(MemorySource::new(bytes)))
    }

    /// The sources of the image with other bytes, for a mount.
    pub fn sources_of(&self, bytes: Vec<u8>) -> ImageSources {
        let devices = self.blob.iter().map(|blob| Arc::clone(blob) as Arc<dyn ReadAt>).collect();
        let primary = Arc::new(MemorySource::new(bytes));
        ImageSources::new(primary).with_devices(devices)
    }

    /// The same for any source.
    ///
    /// # Errors
    /// As [`Image::open`].
    pub fn open_from(&self, source: Arc<dyn ReadAt>) -> Result<Image, ReadError> {
        let devices = self.blob.iter().map(|blob| Arc::clone(blob) as Arc<dyn ReadAt>).collect();
        let options = ImageOptions::default().with_any_checksum().with_cache_bytes(4 << 20);
        Image::open(source, devices, &options)
    }

    /// Byte ranges that decide what the rest means: the superblock, inodes with what is beside them, directories. Those
    /// inside compressed data are left out.
    ///
    /// # Errors
    /// An image that is damaged already.
    pub fn metadata(&self) -> Result<Vec<Range<usize>>, ReadError> {
        let image = self.open_as(self.bytes.clone())?;
        let sb = image.superblock();
        let start = sb.meta_blkaddr.0 << sb.block_bits.bits();
        // The superblock twice, as it is small beside the rest.
        let mut ranges = vec![1024..1024 + 192; 2];
        let root = image.inode(image.root_nid())?;
        let special = [sb.packed_nid, sb.metabox_nid].into_iter().flatten();
        let named = image.walk(&root, b"").map(|entry| Ok::<_, ReadError>(entry?.inode.nid));
        for nid in special.map(Ok).chain(named) {
            let nid = nid?;
            if let Some(off) = nid.byte_off().filter(|_| !nid.in_metabox()) {
                // An inode, its attributes and the front of its index.
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

/// Where the reader's golden images are.
const GOLDEN_DIR: &str = "crates/read/tests/golden";

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A golden image, or a file beside it, by the name of its file.
pub fn file(name: &str) -> PathBuf {
    project().join(GOLDEN_DIR).join(name)
}

/// Take the checksum of its superblock out of an image.
pub fn remove_checksum(bytes: &mut [u8]) {
    if let Some(compat) = bytes.get_mut(1024 + 8) {
        *compat &= !1;
    }
}

/// The golden image of this name, with its extra device if it has one.
///
/// # Panics
/// If it cannot be opened.
pub fn open(name: &str) -> Image {
    let blob = file(&format!("{name}.blob"));
    let devices = Vec::from_iter(Some(blob).filter(|path| path.exists()));
    Image::open_path(&file(&format!("{name}.erofs")), &devices, &ImageOptions::default()).expect("a good image")
}

/// All images in `dir` of the project, by name.
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

/// The reader's golden images.
///
/// # Errors
/// They cannot be read.
pub fn golden_images() -> io::Result<Vec<Golden>> {
    in_dir(GOLDEN_DIR)
}

/// The small images that fuzzing starts from.
///
/// # Errors
/// They cannot be read.
pub fn small_images() -> io::Result<Vec<Golden>> {
    in_dir("fuzz/images")
}

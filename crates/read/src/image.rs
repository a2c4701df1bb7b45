//! An open image.

mod contents;
mod inodes;
mod layout;
mod names;
pub(crate) mod reader;
pub(crate) mod server;
pub(crate) mod special;
pub(crate) mod volume;

use crate::error::ReadError;
use crate::metadata::inode::Inode;
use crate::metadata::long_prefixes::LongPrefixes;
use crate::options::{ImageOptions, Opening};
use crate::source::read_at::ReadAt;
use crate::stats::Stats;
use crate::tree::resolve::FollowLast;
use kiln_format::Nid;
use kiln_format::compr_cfg::ComprCfgs;
use kiln_format::device::DeviceSlot;
use kiln_format::superblock::{SUPERBLOCK_OFF, Superblock};
use reader::{Reader, SpecialInodes};
use std::fmt;
use std::sync::Arc;
use volume::Volume;

/// An open image.
///
/// Clones share devices and caches. Any number of threads may use one image, and so may processes
/// that are forked off: each process has caches of its own.
#[derive(Clone)]
pub struct Image {
    pub(crate) core: Arc<Core>,
}

/// The parts of an image, which its clones share. Each part is opened with those before it.
pub(crate) struct Core {
    pub(crate) volume: Volume,
    pub(crate) special: SpecialInodes,
    pub(crate) prefixes: LongPrefixes,
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("superblock", self.superblock()).finish_non_exhaustive()
    }
}

impl Image {
    /// Opens the image on `primary`, from byte `options.offset` on. `devices` are its extra
    /// devices: all of them in the order of its table, or none if they are part of `primary`.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// use kiln_read::{Image, MappedSource, MemorySource};
    /// use std::sync::Arc;
    ///
    /// // An image in memory.
    /// let bytes = std::fs::read("tests/golden/zstd.erofs").expect("a file");
    /// let image = Image::open(Arc::new(MemorySource::new(bytes)), vec![], &Default::default())?;
    /// assert!(image.compr_cfgs().has(kiln_read::Algorithm::Zstd));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Not an EROFS image, a damaged or unsupported one, the wrong number of devices, a failing
    /// source.
    pub fn open(
        primary: Arc<dyn ReadAt>,
        devices: Vec<Arc<dyn ReadAt>>,
        options: &ImageOptions,
    ) -> Result<Image, ReadError> {
        let mut volume = Volume::open(primary, devices, options)?;
        let warming = (options.opening == Opening::HotList).then(|| volume.state().warm());
        // The metabox may have fragments in the packed inode, and the prefixes may lie in both.
        let mut special = special::read(&volume)?;
        let no_prefixes = LongPrefixes::default();
        let reader = Reader::new(&volume, &special, &no_prefixes);
        let prefixes = reader.read_long_prefixes()?;
        let root = reader.inode(volume.sb.root_nid)?;
        if !root.is_dir() {
            let (record, nid) = ("erofs_super_block", root.nid.0);
            return Err(ReadError::corrupt(record, SUPERBLOCK_OFF, "root_nid", nid, "the root is no directory"));
        }
        special.root = volume.root_in_front.filter(Inode::is_dir).or(Some(root));
        drop(warming);
        if let Some(path) = &options.subdir {
            let reader = Reader::new(&volume, &special, &prefixes);
            let dir = reader.resolve(path, FollowLast::Follow).map_err(|error| error.at_path(path))?;
            if !dir.is_dir() {
                return Err(ReadError::NotADirectory { path: path.clone() });
            }
            volume.sb.root_nid = dir.nid;
            special.root = Some(dir);
        }
        Ok(Image { core: Arc::new(Core { volume, special, prefixes }) })
    }

    /// Returns a reader of inodes and contents.
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader::new(&self.core.volume, &self.core.special, &self.core.prefixes)
    }

    /// Returns the superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.core.volume.sb
    }

    /// Returns the costs of reading so far, of this image and all its clones together.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// let file = image.open_file("/big/text")?;
    /// file.read_at(&mut [0; 4096], 0)?;
    /// let stats = image.stats();
    /// println!("{} bytes fetched for {} served", stats.fetched_bytes, stats.served_bytes);
    /// # assert_eq!(stats.served_bytes, 4096);
    /// # Ok(())
    /// # }
    /// ```
    pub fn stats(&self) -> Stats {
        self.core.volume.stats()
    }

    /// Returns the configuration of the compression algorithms.
    pub fn compr_cfgs(&self) -> &ComprCfgs {
        &self.core.volume.cfgs
    }

    /// Returns the device table.
    pub fn device_slots(&self) -> &[DeviceSlot] {
        self.core.volume.devices.slots()
    }

    /// Returns an error where extra devices were not given that do not follow in the primary source
    /// either. Metadata can be read without them, and contents that lie elsewhere.
    ///
    /// # Errors
    /// [`ReadError::MissingDevices`].
    pub fn require_devices(&self) -> Result<(), ReadError> {
        self.core.volume.devices.missing().map_or(Ok(()), Err)
    }

    /// Returns the length of the primary device in bytes, from the start of the image on.
    pub fn source_len(&self) -> u64 {
        self.core.volume.devices.primary_len()
    }

    /// Returns the root directory.
    pub fn root_nid(&self) -> Nid {
        self.core.volume.sb.root_nid
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::memory::MemorySource;

    #[test]
    fn short_files_are_no_images() {
        for len in [0, 1, 1023, 1024, 1025, 1100, 4096] {
            let source = Arc::new(MemorySource::new(vec![0; len]));
            let error = Image::open(source, Vec::new(), &ImageOptions::default()).unwrap_err();
            assert!(matches!(error, ReadError::Corrupt { .. }), "{len}: {error}");
        }
    }
}

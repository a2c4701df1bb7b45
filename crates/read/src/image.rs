//! Opening an image.

use crate::cache::fork_local::ForkLocal;
use crate::cache::state::ImageState;
use crate::error::ReadError;
use crate::metadata::generation_source;
use crate::metadata::inode::Inode;
use crate::metadata::long_prefixes::LongPrefixes;
use crate::metadata::superblock::{has_composefs_header, read_compr_cfgs, read_front, verify_checksum};
use crate::options::read_policy::ReadPolicy;
use crate::options::{ImageOptions, Opening};
use crate::source::devices::Devices;
use crate::source::offset::OffsetSource;
use crate::source::read_at::ReadAt;
use crate::stats::{Counters, Stats};
use kiln_codec::DecodeLimits;
use kiln_format::Nid;
use kiln_format::compr_cfg::ComprCfgs;
use kiln_format::device::DeviceSlot;
use kiln_format::inode::FileType;
use kiln_format::superblock::{SUPERBLOCK_OFF, Superblock};
use std::fmt;
use std::sync::Arc;

/// A metabox has at most this many times the length of the image.
const METABOX_RATIO_MAX: u64 = 256;

/// Whether metadata that is not cached is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetch {
    /// Yes.
    Allowed,
    /// No: [`std::io::ErrorKind::WouldBlock`] says that it is not cached.
    Refused,
}

/// An open image. Clones share devices and caches. Threads may use one together, and so may processes that are forked off: each of
/// them has caches of its own.
#[derive(Clone)]
pub struct Image {
    pub(crate) core: Arc<Core>,
    pub(crate) fetch: Fetch,
}

/// What the clones of an image share.
pub(crate) struct Core {
    pub sb: Superblock,
    pub cfgs: ComprCfgs,
    pub devices: Devices,
    pub packed: Option<Inode>,
    pub metabox: Option<Inode>,
    pub prefixes: LongPrefixes,
    pub is_composefs: bool,
    pub policy: ReadPolicy,
    cache_bytes: u64,
    pub limits: DecodeLimits,
    state: ForkLocal<ImageState>,
    pub counters: Arc<Counters>,
}

impl Core {
    /// The caches and the access history of this process.
    pub(crate) fn state(&self) -> &ImageState {
        self.state.get(|| ImageState::new(self.cache_bytes, self.policy.decode_memory, self.limits))
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("superblock", &self.core.sb).finish_non_exhaustive()
    }
}

impl Image {
    /// Open the image on `primary`, from byte `options.offset` on. `devices` are its extra devices: all of them in the order of its table, or none if
    /// they are part of `primary`.
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
    /// Not an EROFS image, a damaged or unsupported one, the wrong number of devices, a failing source.
    pub fn open(
        primary: Arc<dyn ReadAt>,
        devices: Vec<Arc<dyn ReadAt>>,
        options: &ImageOptions,
    ) -> Result<Image, ReadError> {
        let counters = Arc::<Counters>::default();
        let primary = image_in(primary, options.offset)?;
        let primary = match options.generation {
            Some(number) => generation_source::as_of(primary, number)?,
            None => primary,
        };
        let mut all = Devices::primary(primary, counters.clone())?;
        let front = read_front(&all)?;
        let head = &front[SUPERBLOCK_OFF as usize..];
        let sb = Superblock::decode(head)?;
        if options.verify_checksum {
            verify_checksum(&all, &sb, head)?;
        }
        let cfgs = read_compr_cfgs(&all, &sb, head)?;
        all.add_extra(&sb, devices)?;
        let is_composefs = has_composefs_header(&front);
        let limits = DecodeLimits::from(&cfgs);
        let (packed_nid, metabox_nid) = (sb.packed_nid, sb.metabox_nid);
        let core = Core {
            sb,
            cfgs,
            devices: all,
            packed: None,
            metabox: None,
            prefixes: LongPrefixes::default(),
            is_composefs,
            policy: options.policy.clone(),
            cache_bytes: options.cache_bytes,
            limits,
            state: ForkLocal::new(ImageState::new(options.cache_bytes, options.policy.decode_memory, limits)),
            counters,
        };
        // The packed inode first, then the metabox, whose data may be fragments, then long prefixes, which may lie in both.
        let image = Image { core: Arc::new(core), fetch: Fetch::Allowed };
        if options.opening == Opening::HotList {
            image.core.state().begin_warming();
        }
        let packed = packed_nid.map(|nid| image.special_inode(nid, "packed_nid")).transpose()?;
        let image = image.with(|core| core.packed = packed)?;
        let metabox = metabox_nid.map(|nid| image.special_inode(nid, "metabox_nid")).transpose()?;
        if let Some(inode) = &metabox {
            image.check_metabox_len(inode)?;
        }
        let image = image.with(|core| core.metabox = metabox)?;
        let prefixes = image.read_long_prefixes()?;
        let image = image.with(|core| core.prefixes = prefixes)?;
        let root = image.inode(image.root_nid())?;
        if !root.is_dir() {
            let (record, nid) = ("erofs_super_block", root.nid.0);
            return Err(ReadError::corrupt(record, SUPERBLOCK_OFF, "root_nid", nid, "the root is no directory"));
        }
        if options.opening == Opening::HotList {
            image.core.state().end_warming();
        }
        Ok(image)
    }

    /// Change an image that has no clones yet.
    fn with(mut self, change: impl FnOnce(&mut Core)) -> Result<Image, ReadError> {
        let core = Arc::get_mut(&mut self.core);
        change(core.ok_or_else(|| ReadError::Internal { what: "image shared while it is opened".into() })?);
        Ok(self)
    }

    fn special_inode(&self, nid: Nid, field: &'static str) -> Result<Inode, ReadError> {
        let inode = self.inode(nid)?;
        match inode.meta.file_type {
            FileType::Regular => Ok(inode),
            _ => Err(ReadError::corrupt("erofs_super_block", SUPERBLOCK_OFF, field, nid.0, "no regular file")),
        }
    }

    /// Refuse a metabox that is far larger than metadata ever compresses to: loops over metadata are bounded by its
    /// length.
    fn check_metabox_len(&self, metabox: &Inode) -> Result<(), ReadError> {
        let size = metabox.meta.size;
        match size / METABOX_RATIO_MAX <= self.source_len() {
            true => Ok(()),
            false => {
                let error =
                    ReadError::unsupported("erofs_inode", 0, "i_size", size, "metabox far larger than the image");
                Err(error.at_nid(metabox.nid))
            }
        }
    }

    /// The superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.core.sb
    }

    /// What reading has cost so far, this image and all its clones together.
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
        Stats { pinned_bytes: self.core.state().pinned.len(), ..self.core.counters.snapshot() }
    }

    /// Configuration of the compression algorithms.
    pub fn compr_cfgs(&self) -> &ComprCfgs {
        &self.core.cfgs
    }

    /// The device table.
    pub fn device_slots(&self) -> &[DeviceSlot] {
        self.core.devices.slots()
    }

    /// An error where extra devices were not given that do not follow in the primary source either. Metadata can be read without
    /// them, and contents that lie elsewhere.
    ///
    /// # Errors
    /// [`ReadError::MissingDevices`].
    pub fn require_devices(&self) -> Result<(), ReadError> {
        self.core.devices.missing().map_or(Ok(()), Err)
    }

    /// Length of the primary device in bytes, from the start of the image on.
    pub fn source_len(&self) -> u64 {
        self.core.devices.primary_len()
    }

    /// The root directory.
    pub fn root_nid(&self) -> Nid {
        self.core.sb.root_nid
    }

    /// Compare the superblock's checksum, if it has one.
    pub(crate) fn verify_checksum(&self) -> Result<(), ReadError> {
        verify_checksum(&self.core.devices, &self.core.sb, &[])
    }
}

/// The part of `source` that is the image.
fn image_in(source: Arc<dyn ReadAt>, offset: u64) -> Result<Arc<dyn ReadAt>, ReadError> {
    match offset {
        0 => Ok(source),
        _ => match OffsetSource::new(source, offset) {
            Ok(part) => Ok(Arc::new(part)),
            Err(error) => Err(ReadError::Io { path: None, file_off: None, range: None, source: Arc::new(error) }),
        },
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

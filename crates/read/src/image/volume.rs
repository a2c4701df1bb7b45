//! Devices of an image, its superblock, and the caches of this process: everything that reads of
//! the primary metadata space need.

use crate::cache::fork_local::ForkLocal;
use crate::cache::state::ImageState;
use crate::error::ReadError;
use crate::metadata::generation_source;
use crate::metadata::inode::Inode;
use crate::metadata::superblock::{has_composefs_header, read_compr_cfgs, read_front, root_in_front, verify_checksum};
use crate::options::ImageOptions;
use crate::options::read_policy::ReadPolicy;
use crate::source::devices::Devices;
use crate::source::objects::Objects;
use crate::source::offset::OffsetSource;
use crate::source::read_at::ReadAt;
use crate::stats::{Counters, Stats};
use kiln_codec::DecodeLimits;
use kiln_format::compr_cfg::ComprCfgs;
use kiln_format::superblock::{SUPERBLOCK_OFF, Superblock};
use std::sync::Arc;

/// Devices, superblock and caches of an open image.
pub(crate) struct Volume {
    pub(crate) sb: Superblock,
    pub(crate) cfgs: ComprCfgs,
    pub(crate) devices: Devices,
    pub(crate) is_composefs: bool,
    /// Places of a composefs image's objects, if they are at hand.
    pub(crate) objects: Option<Objects>,
    /// The root inode, if it was read with the superblock.
    pub(super) root_in_front: Option<Inode>,
    pub(crate) policy: ReadPolicy,
    pub(crate) limits: DecodeLimits,
    pub(crate) counters: Arc<Counters>,
    cache_bytes: u64,
    state: ForkLocal<ImageState>,
}

impl Volume {
    /// Opens the devices and reads the records at the front of the primary one. `devices` are the
    /// extra devices: all of them in the order of the device table, or none.
    pub(super) fn open(
        primary: Arc<dyn ReadAt>,
        devices: Vec<Arc<dyn ReadAt>>,
        options: &ImageOptions,
    ) -> Result<Self, ReadError> {
        let counters = Arc::<Counters>::default();
        let primary = from_offset(primary, options.offset)?;
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
        let (limits, policy, cache_bytes) = (DecodeLimits::from(&cfgs), options.policy.clone(), options.cache_bytes);
        let state = ForkLocal::new(ImageState::new(cache_bytes, policy.decode_memory, limits));
        let is_composefs = has_composefs_header(&front);
        let objects = options.objects.clone().filter(|_| is_composefs);
        let root_in_front = root_in_front(&sb, &front);
        Ok(Self {
            sb,
            cfgs,
            devices: all,
            is_composefs,
            objects,
            root_in_front,
            policy,
            limits,
            counters,
            cache_bytes,
            state,
        })
    }

    /// Returns the caches and the access history of this process.
    pub(crate) fn state(&self) -> &ImageState {
        self.state.get(|| ImageState::new(self.cache_bytes, self.policy.decode_memory, self.limits))
    }

    /// Returns the costs of all reads so far.
    pub(super) fn stats(&self) -> Stats {
        Stats { pinned_bytes: self.state().pinned.len(), ..self.counters.snapshot() }
    }

    /// Compares the superblock's checksum, if it has one.
    pub(crate) fn verify_checksum(&self) -> Result<(), ReadError> {
        verify_checksum(&self.devices, &self.sb, &[])
    }
}

/// Returns the part of `source` from byte `offset` on, which is the image.
fn from_offset(source: Arc<dyn ReadAt>, offset: u64) -> Result<Arc<dyn ReadAt>, ReadError> {
    match offset {
        0 => Ok(source),
        _ => match OffsetSource::new(source, offset) {
            Ok(part) => Ok(Arc::new(part)),
            Err(error) => Err(ReadError::of_source(error)),
        },
    }
}

//! What an image remembers of what was read: caches, and tables that tell how files are read.

use crate::cache::ByteCache;
use crate::course::Courses;
use crate::decode::{Stored, Workspaces};
use crate::meta::{WINDOW_LEN, WindowKey};
use crate::stride::Strides;
use crate::touched::Touched;
use crate::trail::Trails;
use crate::zmap::StartSums;
use kiln_codec::DecodeLimits;
use kiln_format::compr_cfg::EXTENT_MAX_LEN;

/// Metadata that is kept, in bytes.
const METADATA_CACHE_LEN: u64 = 8 << 20;

/// Shared by the clones of an image in one process.
pub(crate) struct Memory {
    /// Metadata, by window.
    pub windows: ByteCache<WindowKey>,
    /// Decoded extents.
    pub decoded: ByteCache<Stored>,
    /// Those that were wanted in part.
    pub touched: Touched,
    pub courses: Courses,
    pub trails: Trails,
    pub strides: Strides,
    pub start_sums: StartSums,
    pub workspaces: Workspaces,
}

impl Memory {
    /// For `cache_bytes` of decoded data.
    pub fn new(cache_bytes: u64, limits: DecodeLimits) -> Self {
        Self {
            windows: ByteCache::new(METADATA_CACHE_LEN, WINDOW_LEN, WINDOW_LEN),
            decoded: ByteCache::new(cache_bytes, EXTENT_MAX_LEN as u64, 64 << 10),
            touched: Touched::new(cache_bytes),
            courses: Courses::new(),
            trails: Trails::default(),
            strides: Strides::new(),
            start_sums: StartSums::default(),
            workspaces: Workspaces::new(limits),
        }
    }
}

//! The state of an image in one process: caches, access history, readahead, memory for decoding.

use super::access_pattern::AccessPatterns;
use super::admission::AccessHistory;
use super::byte_cache::{ByteCache, SharedBytes};
use super::open_objects::OpenObjects;
use super::pinned::PinnedExtents;
use super::readahead::ReadaheadStreams;
use super::staged::{StagedChunks, StagedLists};
use super::start_sums::StartSums;
use super::stride::Strides;
use super::workspaces::{Buffers, Workspaces};
use crate::map::encoded_extent::EncodedExtent;
use crate::metadata::space::WindowKey;
use crate::options::read_policy::DecodeMemory;
use kiln_codec::DecodeLimits;
use kiln_format::compr_cfg::EXTENT_MAX_LEN;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Metadata takes at most one part in this many of the cache.
const METADATA_SHARE: u64 = 2;
/// Bytes that metadata may take in any case: if the inodes on a path were not cached, each lookup
/// would fetch them again.
const METADATA_MIN: u64 = 256 << 10;
/// The part of the metadata cache for windows that were wanted once. A batch of files looks up all
/// inodes first, then all maps, then contents beside inodes: its windows must stay until then.
const METADATA_RECENT_SHARE: f64 = 0.5;
/// Stored bytes of lists take at most one part in this many of the cache.
const STAGED_SHARE: u64 = 4;
/// In how many steps the cache of decoded data shrinks while metadata grows.
const STEPS: u64 = 64;

/// Bytes that decodes may take in any case, where they share [half as much memory as the
/// cache](DecodeMemory::HalfOfCache).
const DECODING_MIN_LEN: u64 = 12 << 20;

/// State that the clones of an image share in one process.
pub(crate) struct ImageState {
    /// Metadata, by window.
    pub windows: ByteCache<WindowKey>,
    /// Decoded extents.
    pub decoded: ByteCache<EncodedExtent>,
    /// Decoded extents that stay.
    pub pinned: PinnedExtents,
    /// Stored bytes of lists that are loaded at the moment. The cache of decoded data is as much
    /// smaller.
    staged: StagedLists,
    /// Accesses to parts of encoded extents.
    pub access_history: AccessHistory,
    pub access_patterns: AccessPatterns,
    pub readahead: ReadaheadStreams,
    pub strides: Strides,
    pub start_sums: StartSums,
    pub workspaces: Workspaces,
    /// Buffers for the bytes of pclusters.
    pub sources: Buffers,
    /// A buffer for windows that are fetched together.
    pub window_source: Buffers,
    /// Objects that are open.
    pub objects: OpenObjects,
    /// Held by the thread that fetches a long run of metadata.
    pub long_run: Mutex<()>,
    /// Number of threads that look up the entries of a list.
    warming: AtomicU32,
    cache_bytes: u64,
    /// Bytes of metadata that were ever put into the cache.
    metadata_loaded: AtomicU64,
}

impl ImageState {
    /// Returns empty caches for `cache_bytes` of metadata and decoded data.
    pub(crate) fn new(cache_bytes: u64, decode_memory: DecodeMemory, limits: DecodeLimits) -> Self {
        let decoding_bytes = match decode_memory {
            DecodeMemory::PerThread => u64::MAX,
            DecodeMemory::HalfOfCache => (cache_bytes / 2).max(DECODING_MIN_LEN),
        };
        Self {
            windows: ByteCache::with_recent(
                (cache_bytes / METADATA_SHARE).max(METADATA_MIN),
                16 << 10,
                16 << 10,
                METADATA_RECENT_SHARE,
            ),
            decoded: ByteCache::new(cache_bytes, EXTENT_MAX_LEN as u64, 64 << 10),
            pinned: PinnedExtents::default(),
            staged: StagedLists::default(),
            access_history: AccessHistory::new(cache_bytes),
            access_patterns: AccessPatterns::new(),
            readahead: ReadaheadStreams::default(),
            strides: Strides::new(),
            start_sums: StartSums::default(),
            workspaces: Workspaces::new(limits, decoding_bytes),
            sources: Buffers::new(),
            window_source: Buffers::keeping(1),
            objects: OpenObjects::new(),
            long_run: Mutex::new(()),
            warming: AtomicU32::new(0),
            cache_bytes,
            metadata_loaded: AtomicU64::new(0),
        }
    }

    /// Returns true if the cache of decoded data takes an extent of this length.
    pub(crate) fn fits_cache(&self, encoded: &EncodedExtent) -> bool {
        u64::from(encoded.llen) <= self.decoded.largest()
    }

    /// Has metadata fetched in long runs until the guard is dropped, as a list is looked up whose
    /// files lie in a few places.
    pub(crate) fn warm(&self) -> Warming<'_> {
        self.warming.fetch_add(1, Ordering::Relaxed);
        Warming(self)
    }

    /// Returns true if metadata is to be fetched in long runs.
    pub(crate) fn is_warming(&self) -> bool {
        self.warming.load(Ordering::Relaxed) > 0 || !self.staged.is_empty()
    }

    /// Returns a decoded extent, pinned or cached.
    pub(crate) fn decoded(&self, encoded: &EncodedExtent) -> Option<SharedBytes> {
        self.pinned.get(encoded).or_else(|| self.decoded.get(encoded))
    }

    /// Notes that `len` bytes of metadata enter the cache. The cache of decoded data shrinks by as
    /// much, until metadata has its share.
    pub(crate) fn metadata_loaded(&self, len: usize) {
        let share = self.cache_bytes / METADATA_SHARE;
        let before = self.metadata_loaded.fetch_add(len as u64, Ordering::Relaxed).min(share);
        let taken = (before + len as u64).min(share);
        let step = (self.cache_bytes / STEPS).max(1);
        if taken / step > before / step {
            self.resize_decoded();
        }
    }

    /// Leaves the cache of decoded data what metadata and stored bytes of lists do not take: a
    /// quarter at least, as much as the largest values.
    fn resize_decoded(&self) {
        let metadata = self.metadata_loaded.load(Ordering::Relaxed).min(self.cache_bytes / METADATA_SHARE);
        let staged = self.staged.len().min(self.staged_max());
        self.decoded.set_capacity(self.cache_bytes - metadata - staged);
    }

    /// Returns the stored bytes of lists.
    pub(crate) fn staged(&self) -> &StagedLists {
        &self.staged
    }

    /// Returns the limit of the stored bytes of lists.
    pub(crate) fn staged_max(&self) -> u64 {
        self.cache_bytes / STAGED_SHARE
    }

    /// Serves reads from these chunks until they are removed.
    pub(crate) fn add_staged(&self, list: Arc<StagedChunks>) {
        self.staged.add(list);
        self.resize_decoded();
    }

    /// Forgets these chunks.
    pub(crate) fn remove_staged(&self, list: &Arc<StagedChunks>) {
        self.staged.remove(list);
        self.resize_decoded();
    }
}

/// A list is being looked up.
pub(crate) struct Warming<'a>(&'a ImageState);

impl Drop for Warming<'_> {
    fn drop(&mut self) {
        self.0.warming.fetch_sub(1, Ordering::Relaxed);
    }
}

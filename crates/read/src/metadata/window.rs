//! Windows of metadata: the unit in which metadata is cached, and how much is fetched when one is
//! missing (readahead).
//!
//! Plain algorithm: a window is a block of the image, as large as the unit in which kernels read
//! metadata. A missing window is fetched alone, so that a few files of many cost only the blocks
//! that hold their metadata.
//!
//! * If many windows around a missing one are cached, the missing ones among them are fetched with
//!   it. The readahead grows with the dense part: listing a tree takes few large reads, a few files
//!   of many take small ones, and if most of the metadata is wanted in the end, in any order,
//!   it takes fewer reads than windows.
//! * While a hot list is loaded, a missing window is fetched as a part of [`WARM_LEN`] bytes, as
//!   the files of a program lie in a few places, and what it reads beside its list lies around
//!   them. A start of Python from an image of 6,097 files takes 3 reads of metadata so, and about
//!   100 without.
//! * Contents beside an inode (its tail, its last pcluster) are not cached for themselves: their
//!   reader keeps them. They are copied from the window of their inode if that is cached, and
//!   fetched alone if not.
//! * Contents of the metabox are decoded, not fetched by block, so its windows are longer: each
//!   costs a lookup of its extent.

use super::space::{MetadataSpace, WindowKey};
use crate::cache::byte_cache::{CachedBytes, SharedBytes};
use crate::cache::workspaces::grow_to;
use crate::error::ReadError;
use crate::image::reader::{Fetch, Reader};
use kiln_parallel::locks::lock;
use std::io::{self, ErrorKind};
use std::ops::Range;

/// log2 of the shortest window in bytes: a page, the least that the operating system fetches.
const PAGE_BITS: u32 = 12;
/// log2 of a window of the metabox in bytes.
const METABOX_BITS: u32 = 14;
/// Windows up to some distance around a missing one are dense if one in this many of them is
/// cached: close to it, and farther off, where more windows would be fetched in vain.
const DENSE_CLOSE: u64 = 4;
const DENSE_FAR: u64 = 2;
/// Number of windows on each side that are close. If fewer of them are not dense, that may be
/// chance, so larger distances are tried, unless none of the nearer half is cached: of windows that
/// are read at random, that is so for most.
const CLOSE: u64 = 8;
/// The readahead beyond what is close is one part in this many of the dense part. Where data lies
/// between inodes, as mkfs.erofs puts it, a dense part says little about what follows: a walk of
/// such an image fetched 1.37 of the bytes that it wanted when the readahead was as long as the
/// dense part, and 1.24 now (432 MB in 24,000 files).
const DENSE_SHARE: u64 = 4;
/// Most bytes that are fetched on each side of a missing window, and the part of the cache that the
/// dense part may be.
const REACH_MAX: u64 = 512 << 10;
const CACHE_SHARE: u64 = 8;
/// Bytes that are fetched at once while a hot list is loaded, and how many of them lie before the
/// missing window at most.
const WARM_LEN: u64 = 1 << 20;
const WARM_BEFORE: u64 = 512 << 10;

impl<'a> Reader<'a> {
    /// Returns log2 of the length of a space's windows in bytes; the last window may be shorter.
    pub(super) fn window_bits(self, space: MetadataSpace) -> u32 {
        match space {
            MetadataSpace::Primary => u32::from(self.volume.sb.block_bits.bits()).max(PAGE_BITS),
            MetadataSpace::Metabox => METABOX_BITS,
        }
    }

    pub(super) fn window(self, key: WindowKey) -> Result<SharedBytes, ReadError> {
        let windows = &self.volume.state().windows;
        if self.fetch == Fetch::Refused {
            let len = 1 << self.window_bits(key.space);
            let missing = || ReadError::io(key.idx * len, len, io::ErrorKind::WouldBlock.into());
            return windows.get(&key).ok_or_else(missing);
        }
        windows.get_or_load(&key, || match (key.space, &self.special.metabox) {
            (MetadataSpace::Primary, _) => self.fetch_windows(key.idx),
            (MetadataSpace::Metabox, Some(metabox)) => {
                let start = key.idx << METABOX_BITS;
                let mut bytes = vec![0; (self.space_len(key.space) - start).min(1 << METABOX_BITS) as usize];
                self.fill(metabox, &mut bytes, start)?;
                self.volume.state().metadata_loaded(bytes.len());
                Ok(CachedBytes::new(bytes.into_boxed_slice()))
            }
            (MetadataSpace::Metabox, None) => Err(ReadError::Internal { what: "no metabox".into() }),
        })
    }

    /// Returns the window, if it is cached or would be fetched together with many others.
    pub(super) fn likely_window(self, key: WindowKey) -> Result<Option<SharedBytes>, ReadError> {
        if let Some(bytes) = self.volume.state().windows.get(&key) {
            return Ok(Some(bytes));
        }
        let is_likely = || self.span(key.idx).count() as u64 >= CLOSE;
        (key.space == MetadataSpace::Metabox || is_likely()).then(|| self.window(key)).transpose()
    }

    /// Fills `buf` with contents that lie in one window of the primary space that is not cached,
    /// past the cache.
    pub(super) fn fetch_past_windows(self, buf: &mut [u8], off: u64) -> Result<(), ReadError> {
        self.fetch_metadata(buf, off)
    }

    /// Fetches window `idx` of the primary space, and those around it that are likely to be wanted.
    fn fetch_windows(self, idx: u64) -> Result<SharedBytes, ReadError> {
        let memory = self.volume.state();
        // Threads that want windows of one long run would each fetch it. The holder of this lock
        // waits for the source alone.
        let long_run = memory.is_warming().then(|| lock(&memory.long_run));
        let key = WindowKey { space: MetadataSpace::Primary, idx };
        if let Some(bytes) = long_run.as_ref().and_then(|_| memory.windows.get(&key)) {
            return Ok(bytes);
        }
        let bits = self.window_bits(MetadataSpace::Primary);
        let span = self.span(idx);
        let (start, end) = (span.start << bits, (span.end << bits).min(self.space_len(MetadataSpace::Primary)));
        let len = (end - start) as usize;
        if span.end == span.start + 1 {
            return self.fetch_window(idx);
        }
        let mut wanted = None;
        // The buffer is reused: a new one would cost its page faults for each fetch.
        let fetched = memory.window_source.with(|buf| {
            let bytes = grow_to(buf, len);
            self.fetch_metadata(bytes, start)?;
            memory.metadata_loaded(len);
            for (part, at) in bytes.chunks(1 << bits).zip(span.start..) {
                let text = CachedBytes::new(part.into());
                match at == idx {
                    true => wanted = Some(text),
                    false => memory.windows.put(WindowKey { space: MetadataSpace::Primary, idx: at }, text),
                }
            }
            Ok::<_, ReadError>(())
        });
        match fetched {
            Ok(()) => wanted.ok_or_else(|| ReadError::Internal { what: "a window outside of its fetch".into() }),
            // Another window may be the damaged one, which nobody has asked for.
            Err(ReadError::Io { source, .. }) if source.kind() == ErrorKind::InvalidData => self.fetch_window(idx),
            Err(error) => Err(error),
        }
    }

    /// Fetches window `idx` of the primary space alone.
    fn fetch_window(self, idx: u64) -> Result<SharedBytes, ReadError> {
        let bits = self.window_bits(MetadataSpace::Primary);
        let (start, end) = (idx << bits, ((idx + 1) << bits).min(self.space_len(MetadataSpace::Primary)));
        let mut bytes = vec![0; (end - start) as usize].into_boxed_slice();
        self.fetch_metadata(&mut bytes, start)?;
        self.volume.state().metadata_loaded(bytes.len());
        Ok(CachedBytes::new(bytes))
    }

    /// Returns the windows of the primary space that are fetched if window `idx` is missing, which
    /// is one of them.
    fn span(self, idx: u64) -> Range<u64> {
        let windows = &self.volume.state().windows;
        let bits = self.window_bits(MetadataSpace::Primary);
        let count = self.space_len(MetadataSpace::Primary).div_ceil(1 << bits);
        let is_kept = |&idx: &u64| windows.has(&WindowKey { space: MetadataSpace::Primary, idx });
        let most = |len: u64| len.min(windows.capacity() / CACHE_SHARE) >> bits;
        if self.volume.state().is_warming() {
            let len = most(WARM_LEN).max(1);
            // The metadata zone begins there in all images that have their data in front of it.
            let zone = ((self.volume.sb.meta_blkaddr.0 << self.volume.sb.block_bits.bits()) >> bits).min(idx);
            let start = idx.saturating_sub(len.min(WARM_BEFORE >> bits)).max(zone);
            let start = (start..idx).rev().take_while(|idx| !is_kept(idx)).last().unwrap_or(idx);
            let end = (idx + 1..count.min(start + len)).take_while(|idx| !is_kept(idx)).last().unwrap_or(idx) + 1;
            return start..end;
        }
        let (most, mut reach, mut kept, mut checked, mut distance) = (most(REACH_MAX * DENSE_SHARE), 0, 0, 0, 1);
        while distance <= most {
            let before = idx.saturating_sub(distance)..idx.saturating_sub(checked);
            let behind = idx + checked..count.min(idx + distance);
            kept += before.chain(behind).filter(is_kept).count() as u64;
            let dense = if distance <= CLOSE { DENSE_CLOSE } else { DENSE_FAR };
            if kept * dense >= 2 * distance {
                reach = distance;
            } else if distance >= CLOSE || distance == CLOSE / 2 && kept == 0 {
                break;
            }
            (checked, distance) = (distance, distance * 2);
        }
        let reach = (reach / DENSE_SHARE).max(reach.min(CLOSE));
        let start = (idx.saturating_sub(reach)..idx).rev().take_while(|idx| !is_kept(idx)).last().unwrap_or(idx);
        let end = (idx + 1..count.min(idx + reach)).take_while(|idx| !is_kept(idx)).last().unwrap_or(idx) + 1;
        start..end
    }

    fn fetch_metadata(self, buf: &mut [u8], off: u64) -> Result<(), ReadError> {
        if self.read_staged(0, buf, off) {
            return Ok(());
        }
        self.volume.devices.read(0, buf, off)
    }
}

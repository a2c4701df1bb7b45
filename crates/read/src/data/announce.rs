//! Hints to the devices: bytes that will be read soon.

use super::batch_plan::FileRange;
use super::read::readable;
use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::map::data_part::{DataPiece, StoredRange};
use crate::map::file_map::FileMap;
use crate::metadata::inode::Inode;
use crate::options::read_policy::{Readahead, SourcePrefetch};
use crate::source::latency::Latency;
use crate::source::read_at::FETCH_MAX_LEN;
use std::ops::Range;

/// Longest range of a file that is announced, in bytes.
pub(super) const HINT_MAX_LEN: u64 = 16 << 20;

/// Longest gap between files that are announced as one range, and longest such range, in bytes:
/// more would not fit into the caches of slow sources.
const GAP_MAX_LEN: u64 = 64 << 10;
const RUN_MAX_LEN: u64 = 4 << 20;

/// Bytes of pclusters that are announced when a fetch for a part of a read begins: those of the
/// next fetches.
const REST_LEN: u64 = 2 * FETCH_MAX_LEN as u64;

impl<'a> Reader<'a> {
    /// Implements `ServerView::is_slow`.
    pub(crate) fn is_slow(self) -> bool {
        self.volume.policy.latency.as_ref().is_some_and(Latency::is_slow)
    }

    /// Implements `ServerView::is_cold`.
    pub(crate) fn is_cold(self) -> bool {
        self.volume.policy.latency.as_ref().is_some_and(Latency::is_cold)
    }

    /// Implements `Image::prefetch`.
    pub(crate) fn prefetch(self, ranges: &[FileRange]) -> Result<u64, (usize, ReadError)> {
        if !self.is_cold() && ranges.get(ranges.len() / 2).is_some_and(|middle| self.is_resident(&middle.inode)) {
            return Ok(0);
        }
        let (mut map, mut stored) = (None, Vec::new());
        for (nth, FileRange { inode, range }) in ranges.iter().enumerate() {
            let looked_up = self.look_up_stored(&mut map, inode, range, &mut stored);
            looked_up.map_err(|error| (nth, error.at_nid(inode.nid)))?;
        }
        stored.sort_unstable_by_key(|(device, bytes)| (*device, bytes.start, bytes.end));
        let (mut announced, mut run) = (0, None::<StoredRange>);
        let mut announce = |(device, bytes): StoredRange| {
            self.will_need(device, bytes.start, bytes.end - bytes.start);
            announced += bytes.end - bytes.start;
        };
        for (device, bytes) in stored {
            match &mut run {
                Some((of, run))
                    if *of == device
                        && bytes.start <= run.end.saturating_add(GAP_MAX_LEN)
                        && bytes.end.max(run.end) - run.start <= RUN_MAX_LEN =>
                {
                    run.end = bytes.end.max(run.end);
                }
                _ => run.replace((device, bytes)).into_iter().for_each(&mut announce),
            }
        }
        run.into_iter().for_each(&mut announce);
        Ok(announced)
    }

    /// Announces a range of one file, for the source that the file is to another image.
    pub(super) fn announce_range(self, inode: &Inode, range: &Range<u64>) -> Result<(), ReadError> {
        let mut stored = Vec::new();
        self.look_up_stored(&mut None, inode, range, &mut stored)?;
        for (device, bytes) in stored {
            self.will_need(device, bytes.start, bytes.end - bytes.start);
        }
        Ok(())
    }

    /// Returns true if the source can tell that the first stored bytes of a file are in memory.
    fn is_resident(self, inode: &Inode) -> bool {
        let mut stored = Vec::new();
        let looked_up = self.look_up_stored(&mut None, inode, &(0..1), &mut stored);
        let devices = &self.volume.devices;
        let is_resident = |(device, bytes): &StoredRange| {
            devices.is_resident(*device, bytes.start, bytes.end - bytes.start) == Some(true)
        };
        looked_up.is_ok() && stored.first().is_some_and(is_resident)
    }

    /// Adds the stored bytes of a range of a file, cut at the end of the file and at
    /// [`HINT_MAX_LEN`].
    fn look_up_stored(
        self,
        map: &mut Option<FileMap<'a>>,
        inode: &Inode,
        range: &Range<u64>,
        stored: &mut Vec<StoredRange>,
    ) -> Result<(), ReadError> {
        let len = range.end.saturating_sub(range.start).min(HINT_MAX_LEN) as usize;
        let end = range.start + readable(inode, len, range.start)? as u64;
        for part in FileMap::open_in(map, self, inode)?.parts(range.start..end) {
            stored.extend(part?.stored());
        }
        Ok(())
    }

    /// Announces the next steps of the stride that a read of bytes `wanted` is part of, if it is
    /// part of one and fetches are slow.
    pub(super) fn announce_stride(
        self,
        inode: &Inode,
        map: &mut FileMap<'a>,
        wanted: Range<u64>,
    ) -> Result<(), ReadError> {
        if !self.is_slow() {
            return Ok(());
        }
        let len = wanted.end - wanted.start;
        let Some(steps) = self.volume.state().strides.step(inode.nid.0, wanted.start, len) else { return Ok(()) };
        for off in steps.take_while(|off| off.saturating_add(len) <= inode.meta.size) {
            let Some(part) = map.parts(off..off + len).next_joined().transpose()? else { continue };
            for piece in part.pieces(self.volume.sb.block_bits)? {
                match piece {
                    DataPiece::Device { device, pa, len, .. } => self.will_need(device, pa, len),
                    DataPiece::Encoded { encoded, wanted } if encoded.pcluster.inline.is_none() => {
                        let len = encoded.fetched_for(wanted.end as usize);
                        self.will_need(encoded.pcluster.device, encoded.pcluster.pa, len);
                    }
                    DataPiece::Encoded { .. }
                    | DataPiece::Metadata { .. }
                    | DataPiece::Zeros { .. }
                    | DataPiece::Object { .. } => {}
                }
            }
        }
        Ok(())
    }

    /// Announces the pclusters that hold a range of a file that is read in several fetches, as far
    /// as the next fetches go, so that these bytes arrive while the first ones are decoded. If the
    /// system reads ahead, nothing is announced.
    pub(super) fn announce_rest(self, map: &mut FileMap<'a>, range: Range<u64>) -> Result<(), ReadError> {
        let policy = &self.volume.policy;
        if policy.prefetch == SourcePrefetch::Off || policy.readahead == Readahead::System {
            return Ok(());
        }
        let announce = |(device, run): StoredRange| self.will_need(device, run.start, run.end - run.start);
        let (mut run, mut len) = (None::<StoredRange>, 0);
        for part in map.parts(range) {
            let part = part?;
            let Some((device, bytes)) = part.stored().filter(|_| part.pcluster().is_some()) else { continue };
            len += bytes.end - bytes.start;
            match &mut run {
                Some((of, run)) if (*of, run.end) == (device, bytes.start) => run.end = bytes.end,
                _ => run.replace((device, bytes)).into_iter().for_each(announce),
            }
            if len >= REST_LEN {
                break;
            }
        }
        run.into_iter().for_each(announce);
        Ok(())
    }
}

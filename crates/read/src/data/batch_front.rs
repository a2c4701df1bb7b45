//! Fronts of extents that several units of a batch want parts of.

use super::batch_plan::SharedExtents;
use super::plan::DecodeTarget;
use crate::cache::byte_cache::SharedBytes;
use crate::cache::workspaces::grow_to;
use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::map::encoded_extent::EncodedExtent;

/// Other units that want parts of an extent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reuse {
    /// Neighbours in the order, which the same thread reads next.
    Adjacent,
    /// Any: the extent holds the end of a file that begins elsewhere.
    Anywhere,
}

/// The two extents decoded last by one thread: a unit across the border of two extents is followed
/// by units of the second one.
pub(super) struct Fronts<'a> {
    reader: Reader<'a>,
    shared: &'a SharedExtents,
    last_decoded: [LastDecoded; 2],
    /// Number of the older one of the two.
    older: usize,
}

/// The front of a decoded extent.
#[derive(Default)]
struct LastDecoded {
    encoded: Option<EncodedExtent>,
    /// All of it, if it is in the cache.
    shared: Option<SharedBytes>,
    /// Else its first `len` bytes.
    own: Vec<u8>,
    len: usize,
}

impl LastDecoded {
    fn front(&self) -> &[u8] {
        self.shared.as_ref().map_or(&self.own[..self.len], |shared| shared)
    }
}

impl<'a> Fronts<'a> {
    pub(super) fn new(reader: Reader<'a>, shared: &'a SharedExtents) -> Self {
        Self { reader, shared, last_decoded: Default::default(), older: 0 }
    }

    /// Returns which of the two is this extent, up to byte `end` at least.
    pub(super) fn position(&self, encoded: &EncodedExtent, end: u64) -> Option<usize> {
        self.last_decoded.iter().position(|last| last.encoded == Some(*encoded) && last.front().len() as u64 >= end)
    }

    /// Returns the number of units that want parts of an extent of which one wants bytes up to
    /// `end`, and the number of bytes that are decoded for all of them.
    pub(super) fn need(&self, encoded: &EncodedExtent, end: u64, reuse: Reuse) -> (usize, usize) {
        let (end, users) = self.shared.get(encoded).map_or((end, 1), |need| (need.end.max(end), need.users));
        (users, if self.is_for_cache(encoded, users, reuse) { encoded.len() } else { end as usize })
    }

    /// Returns true if the extent is decoded into the cache, as other threads may want it.
    fn is_for_cache(&self, encoded: &EncodedExtent, users: usize, reuse: Reuse) -> bool {
        reuse == Reuse::Anywhere && users > 1 && self.reader.volume.state().fits_cache(encoded)
    }

    /// Decodes an extent up to byte `end` at least, unless it is one of the two. Returns which it
    /// is then. `at_hand`: the first bytes of its pcluster, if they are fetched.
    pub(super) fn decode(
        &mut self,
        encoded: &EncodedExtent,
        end: u64,
        reuse: Reuse,
        at_hand: &[u8],
    ) -> Result<usize, ReadError> {
        let found = match self.position(encoded, end) {
            Some(found) => found,
            None => {
                self.decode_again(encoded, end, reuse, at_hand)?;
                self.older
            }
        };
        self.older = 1 - found;
        Ok(found)
    }

    /// Returns the front of one of the two.
    pub(super) fn front(&self, which: usize) -> &[u8] {
        self.last_decoded[which].front()
    }

    /// Decodes an extent in place of the older one.
    fn decode_again(
        &mut self,
        encoded: &EncodedExtent,
        end: u64,
        reuse: Reuse,
        at_hand: &[u8],
    ) -> Result<(), ReadError> {
        let (users, len) = self.need(encoded, end, reuse);
        let is_for_cache = self.is_for_cache(encoded, users, reuse);
        let last_decoded = &mut self.last_decoded[self.older];
        last_decoded.encoded = None;
        last_decoded.shared = match is_for_cache {
            true => Some(self.reader.decode_into_cache(encoded, 0, at_hand)?),
            false => self.reader.volume.state().decoded(encoded),
        };
        if last_decoded.shared.is_none() {
            last_decoded.len = len;
            let front = grow_to(&mut last_decoded.own, len);
            self.reader.decode_front(encoded, front, DecodeTarget::Scratch, at_hand)?;
        }
        last_decoded.encoded = Some(*encoded);
        Ok(())
    }
}

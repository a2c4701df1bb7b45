//! Division of runs into parts: stored text is cut so that every reference starts where a pcluster starts.
//!
//! An extent names the start of a pcluster, never its middle. So each Stored run is cut wherever a Ref's source
//! starts. A *part*, the text between two cuts, is filled into pclusters front to back on its own; the pclusters'
//! text are its *units*. With the lcluster index (lclusters of B bytes) extents must not become too short:
//!
//! * At most one extent starts in an lcluster, and none in the one behind the head of a pcluster of several blocks:
//!   their count stands there. Extents of B bytes, or of 2 B, satisfy that wherever they lie.
//! * Text that does not compress is stored in plain blocks of B bytes. Of a part that is no multiple of B long,
//!   less than B would be left over. But 2 B bytes and more always fit one unit of up to five blocks, which saves
//!   nothing and is rare.
//!
//! Hence one rule for everything that does not end its stream: **parts and Refs have at least 2 B bytes**. In
//! return the packer promises that [`IndexRules::allows`] each unit, but for the last of a stream: when less than 2
//! B of a part would be left over, a unit takes less, or all that is left. A stream starts at a block boundary of
//! its file and ends at one or at the end of the file, so a short extent there is alone in its lcluster, or the
//! last of its file.
//!
//! Refs that ask for shorter parts are repaired: see [`repair`].
//!
//! Encoded extents have no such rules; their parts have a block at least.
//!
//! Text is cut here while it is in memory. Text that was stored before is cut when all data has been read.

mod repair;
mod resolve;

pub(crate) use resolve::{Unit, resolve_ref};

use crate::plan::dedupe::matching::{Place, Ref};
use kiln_format::BlockBits;
use std::ops::Range;

/// The least part between encoded extents, in bytes. The format would allow a single byte, but reads of many
/// extents of a few bytes end with EIO in Linux 6.18 if it reads the image from a file whose pages are cached.
const ENCODED_MIN_LEN: u64 = 4096;

/// Limits of an index on the lengths of extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexRules {
    /// Size of lclusters and blocks; `None`: encoded extents.
    lclusters: Option<BlockBits>,
}

impl IndexRules {
    /// Returns the rules of an lcluster index whose lclusters are blocks.
    pub(crate) fn lclusters(block_bits: BlockBits) -> Self {
        Self { lclusters: Some(block_bits) }
    }

    /// Returns the rules of encoded extents.
    pub(crate) fn encoded_extents() -> Self {
        Self { lclusters: None }
    }

    /// Returns the least bytes of a part or Ref that does not end its stream.
    pub(crate) fn min_len(self) -> u64 {
        self.lclusters.map_or(ENCODED_MIN_LEN, |bits| 2 * bits.len())
    }

    /// Returns whether a unit may be an extent anywhere in a file.
    pub(crate) fn allows(self, unit: Unit) -> bool {
        let least = self.lclusters.map_or(1, |bits| self.lclusters_needed(unit) * bits.len());
        u64::from(unit.llen) >= least
    }

    /// Returns the starts of lclusters that an extent must reach, without that of its head.
    fn lclusters_needed(self, unit: Unit) -> u64 {
        if unit.blocks > 1 { 2 } else { 1 }
    }

    /// Returns whether an extent of `unit` may lie here, not at the end of its stream.
    fn allows_at(self, unit: Unit, range: &Range<u64>) -> bool {
        let Some(bits) = self.lclusters else { return range.start < range.end };
        (range.end >> bits.bits()) - (range.start >> bits.bits()) >= self.lclusters_needed(unit)
    }
}

/// Stored text that is filled into pclusters on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredPart {
    /// Its stream.
    pub stream: u32,
    /// Bytes of the stream.
    pub range: Range<u64>,
    /// It ends its stream: its last unit may be short.
    pub ends_stream: bool,
}

/// Text of a stream that is in memory: it can still be cut anywhere. Within a stream portions follow one another, and
/// meet at block boundaries of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Portion {
    /// Its stream.
    pub stream: u32,
    /// Bytes of the stream.
    pub range: Range<u64>,
    /// The stream ends with it.
    pub ends_stream: bool,
}

impl Portion {
    /// Returns the place of its first byte.
    pub(crate) fn start(&self) -> Place {
        Place { stream: self.stream, off: self.range.start }
    }
}

/// Repairs `refs`, whose targets are in `portions`, and cuts what is left to store of each portion. Returns the Refs,
/// and the parts of each portion. Text before the first portion is not cut here, see [`crate::settle`].
pub(crate) fn plan_parts(refs: Vec<Ref>, portions: &[Portion], rules: IndexRules) -> (Vec<Ref>, Vec<Vec<StoredPart>>) {
    let refs = repair::repair(refs, rules.min_len(), portions);
    let first = portions.first().map_or(Place { stream: 0, off: 0 }, Portion::start);
    let mut cuts: Vec<Place> = refs.iter().map(|one| one.source).filter(|source| *source >= first).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let parts = portions.iter().map(|portion| parts(portion, &refs, &cuts)).collect();
    (refs, parts)
}

/// Cuts what is stored of a portion between Refs.
fn parts(portion: &Portion, refs: &[Ref], cuts: &[Place]) -> Vec<StoredPart> {
    let Portion { stream, range, ends_stream } = portion;
    let (stream, mut pos) = (*stream, range.start);
    let mut parts = Vec::new();
    let mut push = |range: Range<u64>, ends_stream| {
        if range.start < range.end {
            parts.push(StoredPart { stream, range, ends_stream });
        }
    };
    let at = |off| Place { stream, off };
    let mut refs =
        refs[refs.partition_point(|one| (one.target.stream, one.end()) <= (stream, pos))..].iter().peekable();
    let mut cuts = cuts[cuts.partition_point(|cut| *cut <= at(pos))..].iter().peekable();
    while pos < range.end {
        let next = refs.next_if(|one| one.target < at(range.end));
        let end = next.map_or(range.end, |one| one.target.off.max(pos));
        while let Some(cut) = cuts.next_if(|cut| **cut < at(end)) {
            push(pos..cut.off.max(pos), false);
            pos = cut.off.max(pos);
        }
        push(pos..end, *ends_stream && end == range.end);
        pos = next.map_or(range.end, Ref::end);
    }
    parts
}

#[cfg(test)]
mod tests;

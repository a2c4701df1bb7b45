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

mod repair;
mod resolve;

pub(crate) use resolve::{Unit, resolve_ref};

use crate::plan::dedupe::matching::{Place, Run, RunKind, Runs};
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
    /// Parts are cut further into segments of this many bytes, so that long ones are filled in parallel.
    segment_len: u64,
}

impl IndexRules {
    /// Returns the rules of an lcluster index whose lclusters are blocks. `segment_len` is a multiple of the block
    /// size, at least two blocks.
    pub(crate) fn lclusters(block_bits: BlockBits, segment_len: u64) -> Self {
        debug_assert!(segment_len >= 2 * block_bits.len() && segment_len.is_multiple_of(block_bits.len()));
        Self { lclusters: Some(block_bits), segment_len }
    }

    /// Returns the rules of encoded extents. `segment_len` is a multiple of the unit.
    pub(crate) fn encoded_extents(segment_len: u64) -> Self {
        debug_assert!(segment_len > 0);
        Self { lclusters: None, segment_len }
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
    /// Bytes of the stream. At most a segment and [`IndexRules::min_len`].
    pub range: Range<u64>,
    /// It ends its stream: its last unit may be short.
    pub ends_stream: bool,
}

/// Text that is a reference to stored text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ref {
    /// Place of the reference.
    pub target: Place,
    /// Length in bytes.
    pub len: u64,
    /// Place of the stored text: a part starts here, and the rest is in the parts behind it.
    pub source: Place,
}

impl Ref {
    fn end(&self) -> u64 {
        self.target.off + self.len
    }
}

/// Stored parts, and the references to them; together they cover all streams.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PartPlan {
    /// In order of streams and offsets.
    pub parts: Vec<StoredPart>,
    /// In order of targets.
    pub refs: Vec<Ref>,
    /// Bytes that were matched and are stored nevertheless, because of the index.
    pub given_back_bytes: u64,
}

/// Decides on the parts of all streams.
pub(crate) fn plan_parts(runs: &Runs, rules: IndexRules) -> PartPlan {
    let total = |refs: &[Ref]| refs.iter().map(|one| one.len).sum::<u64>();
    let refs = refs_of(runs);
    let matched = total(&refs);
    let refs = repair::repair(refs, rules.min_len());
    let given_back_bytes = matched - total(&refs);
    let mut cuts: Vec<Place> = refs.iter().map(|one| one.source).collect();
    cuts.sort_unstable();
    cuts.dedup();
    PartPlan { parts: parts(runs, &refs, &cuts, rules), refs, given_back_bytes }
}

fn refs_of(runs: &Runs) -> Vec<Ref> {
    let mut refs = Vec::new();
    for stream in 0..runs.len() as u32 {
        for run in runs.stream(stream) {
            if let RunKind::Ref(source) = run.kind {
                refs.push(Ref { target: Place { stream, off: run.start }, len: run.len, source });
            }
        }
    }
    refs
}

/// Cuts the Stored runs between Refs.
fn parts(runs: &Runs, refs: &[Ref], cuts: &[Place], rules: IndexRules) -> Vec<StoredPart> {
    let mut parts = Vec::new();
    let (mut refs, mut cuts) = (refs.iter().peekable(), cuts.iter().peekable());
    for stream in 0..runs.len() as u32 {
        let len = runs.stream(stream).last().map_or(0, Run::end);
        let mut pos = 0;
        while pos < len {
            let next = refs.next_if(|one| one.target.stream == stream);
            let end = next.map_or(len, |one| one.target.off);
            while let Some(cut) = cuts.next_if(|cut| cut.stream == stream && cut.off < end) {
                push_segments(&mut parts, stream, pos..cut.off, false, rules);
                pos = cut.off;
            }
            push_segments(&mut parts, stream, pos..end, end == len, rules);
            pos = next.map_or(len, Ref::end);
        }
    }
    parts
}

/// Appends a part, or the segments of a long one; a short rest goes to the last of them.
fn push_segments(parts: &mut Vec<StoredPart>, stream: u32, range: Range<u64>, ends_stream: bool, rules: IndexRules) {
    let mut start = range.start;
    while range.end - start >= rules.segment_len + rules.min_len() {
        let end = start + rules.segment_len;
        parts.push(StoredPart { stream, range: start..end, ends_stream: false });
        start = end;
    }
    if start < range.end {
        parts.push(StoredPart { stream, range: start..range.end, ends_stream });
    }
}

#[cfg(test)]
mod tests;

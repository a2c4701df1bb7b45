//! Conversion of a Ref to extents, when the units that hold its source are known.

use super::IndexRules;
use std::ops::Range;

/// The text of one pcluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// Bytes of plain text.
    pub llen: u32,
    /// Blocks of the pcluster; 1 where lengths are in bytes.
    pub blocks: u16,
    /// It cannot be referred to in part: kernels fail a read that needs plain bytes both as a whole and in part.
    pub is_whole: bool,
}

/// An extent that names a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RefExtent {
    /// Number of the unit, counted from the one at the source's start.
    pub unit: usize,
    /// Bytes of it, from its start; if fewer than it has, the reference is partial.
    pub llen: u32,
}

/// The resolved form of a Ref.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// Extents from the start of the target on.
    pub extents: Vec<RefExtent>,
    /// The end of the target, if it must be stored again: a *late part*, to be filled like any other after all of
    /// the plan. It has less than four lclusters, and at least two unless it ends its stream; of encoded extents
    /// less than a unit.
    pub late: Option<Range<u64>>,
}

/// Finds the extents of a Ref at `target`, which may be at the end of its stream, in `units`, the first of which
/// starts at its source.
///
/// Only the last extent can break the rules of the index: those before it are whole units, which the packer made long
/// enough. Then it is shortened away: the target's last two lclusters, or a little more, become a late part.
///
/// Returns `None` if there are too few units, or one that the packer must not make, which is a bug of the caller.
pub(crate) fn resolve_ref(
    target: Range<u64>,
    ends_stream: bool,
    units: impl IntoIterator<Item = Unit>,
    rules: IndexRules,
) -> Option<Resolved> {
    let mut pieces = Vec::new();
    let (mut at, mut units) = (target.start, units.into_iter());
    while at < target.end {
        let unit = units.next().filter(|unit| unit.llen > 0)?;
        let end = target.end.min(at + u64::from(unit.llen));
        if end < target.end && !rules.allows(unit) {
            return None;
        }
        pieces.push(Piece { unit, range: at..end });
        at = end;
    }
    let end = stored_from(&pieces, &target, ends_stream, rules);
    pieces.retain(|piece| piece.range.start < end);
    let extent = |(unit, piece): (usize, &Piece)| RefExtent {
        unit,
        llen: (piece.range.end.min(end) - piece.range.start) as u32,
    };
    let extents = pieces.iter().enumerate().map(extent).collect();
    Some(Resolved { extents, late: (end < target.end).then_some(end..target.end) })
}

/// A unit and the bytes of the target that it holds.
struct Piece {
    unit: Unit,
    range: Range<u64>,
}

/// Returns the byte of the target from which on it must be stored again: its end, if its last piece keeps the rules.
fn stored_from(pieces: &[Piece], target: &Range<u64>, ends_stream: bool, rules: IndexRules) -> u64 {
    let Some(last) = pieces.last() else { return target.end };
    let is_cut = last.range.end - last.range.start < u64::from(last.unit.llen);
    if last.unit.is_whole && is_cut {
        return last.range.start;
    }
    let is_exempt = ends_stream && last.unit.blocks == 1;
    if is_exempt || rules.allows_at(last.unit, &last.range) {
        return target.end;
    }
    if ends_stream {
        // At the end of a stream anything can be stored.
        return last.range.start;
    }
    let wanted = target.end.saturating_sub(rules.min_len()).max(target.start);
    let holds = pieces.iter().rfind(|piece| piece.range.start <= wanted).unwrap_or(last);
    // The piece that loses its end must keep the rules too, or be stored as a whole.
    let shortened = holds.range.start..wanted;
    if rules.allows_at(holds.unit, &shortened) { wanted } else { holds.range.start }
}

//! Text that is stored elsewhere: references become extents.

use kiln_format::zmap::HeadKind;
use std::ops::Range;

use super::settle::FileRef;
use super::{Packing, Stored};
use crate::error::BuildError;
use crate::layout::lcluster_index::ZExtent;
use crate::plan::dedupe::parts::Deduplication;
use crate::plan::dedupe::split_points::{self, Unit};
use crate::plan::text::TextSource;

/// Takes text that must be stored again: its place, the place of equal text, and whether its stream ends with it.
pub(super) type TakeLate<'a> = dyn FnMut((TextSource, Range<u64>), (TextSource, u64), bool) + 'a;

impl Packing<'_, '_> {
    /// Returns the extents of references, now that their sources are stored. `late` gets text that must be stored
    /// again, because its extents would be too short, or because its source has none.
    pub(super) fn resolve(
        &self,
        refs: &[FileRef],
        parts: &Deduplication,
        late: &mut TakeLate<'_>,
    ) -> Result<Vec<(TextSource, ZExtent)>, BuildError> {
        let mut found: Vec<(TextSource, ZExtent)> = Vec::new();
        for one in refs {
            let ((stream, at), (target, start)) = (one.source, one.target);
            let units = self.nameable(stream);
            let units = &units[units.partition_point(|unit| unit.la < at)..];
            let end = covered(units, at).min(at + one.len);
            let len = one.len;
            let covered = spaced(end - at, len, one.ends_stream, parts.rules.min_len());
            if covered < len {
                // The rest lies beside an inode, or in no pcluster at all.
                late((target, start + covered..start + len), (stream, at + covered), one.ends_stream);
            }
            if covered == 0 {
                continue;
            }
            let wrong = || BuildError::Internal(format!("{stream:?} has no units at {at}"));
            let lengths = units.iter().map(|unit| self.unit(unit));
            // Where it lies in the inode: behind what the packed inode of a base has, lclusters begin elsewhere
            // than in the stream.
            let ends_stream = one.ends_stream && covered == len;
            let resolved = split_points::resolve_ref(start..start + covered, ends_stream, lengths, parts.rules);
            let resolved = resolved.ok_or_else(wrong)?;
            let same = |la: u64| (stream, at + (la - start));
            let mut la = start;
            for piece in &resolved.extents {
                let unit = units[piece.unit];
                let partial = piece.llen < unit.llen && unit.kind != HeadKind::Plain;
                let extent = ZExtent { la, llen: piece.llen, partial, ..unit };
                la += u64::from(piece.llen);
                match self.repeats(target, &extent, found.last()) {
                    true => late((target, extent.la..la), same(extent.la), false),
                    false => found.push((target, extent)),
                }
            }
            if let Some(range) = resolved.late {
                let source = same(range.start);
                late((target, range), source, ends_stream);
            }
        }
        Ok(found)
    }

    /// Returns whether a plain encoded extent is next to one of the same bytes, given the reference before it as
    /// `last`. Linux 6.18 fails with EIO if a page has the end of the one and the beginning of the other, unless
    /// both begin at the same byte of a page.
    fn repeats(&self, stream: TextSource, extent: &ZExtent, last: Option<&(TextSource, ZExtent)>) -> bool {
        if !self.is_plain_unit(extent) {
            return false;
        }
        let stored = self.stored_extents(stream).unwrap_or_default();
        let at = stored.partition_point(|one| one.la < extent.la);
        let last = last.filter(|(of, _)| *of == stream).map(|(_, one)| one);
        let before = at.checked_sub(1).map(|at| &stored[at]);
        let touches = |one: &ZExtent| {
            let [one, other] = [one, extent].map(|one| one.la..one.la + u64::from(one.llen));
            one.end == other.start || other.end == one.start
        };
        [last, before, stored.get(at)].into_iter().flatten().any(|one| one.pa == extent.pa && touches(one))
    }

    /// Returns the extents of a stream as far as it is stored, in order; none for a file that is not compressed.
    pub(super) fn stored_extents(&self, stream: TextSource) -> Option<&[ZExtent]> {
        match stream {
            TextSource::Fragments => Some(&self.fragments.list),
            TextSource::File(file) => match &self.stored[file as usize] {
                Stored::Compressed(extents) => Some(&extents.list),
                _ => None,
            },
        }
    }

    fn unit(&self, extent: &ZExtent) -> Unit {
        let blocks = if self.encoded { 1 } else { (extent.plen >> self.block_bits.bits()) as u16 };
        Unit { llen: extent.llen, blocks, is_whole: self.is_plain_unit(extent) }
    }
}

/// Returns the bytes of a reference of `len` bytes that stay one, given that its source has units for `covered`: what
/// is stored again must not be too short, unless its stream ends with it, and neither must the rest.
fn spaced(covered: u64, len: u64, ends_stream: bool, least: u64) -> u64 {
    let covered = match len - covered {
        rest if rest > 0 && rest < least && !ends_stream => len.saturating_sub(least),
        _ => covered,
    };
    if covered < least && covered < len { 0 } else { covered }
}

/// Returns the byte up to which units follow one another from `at` on.
fn covered(units: &[ZExtent], at: u64) -> u64 {
    units.iter().take_while(|unit| unit.plen > 0).fold(at, |end, unit| if unit.la == end { unit.end() } else { end })
}

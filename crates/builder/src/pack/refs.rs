//! Text that is stored elsewhere: references become extents.

use kiln_format::feature::Feature;
use kiln_format::zmap::HeadKind;

use super::{Packing, Stored};
use crate::error::BuildError;
use crate::layout::lcluster_index::ZExtent;
use crate::pack::jobs::{PackJob, Task};
use crate::plan::dedupe::input::Deduplication;
use crate::plan::dedupe::split_points::{self, Unit};
use crate::plan::text::TextSource;

impl Packing<'_, '_> {
    /// Turns references into extents, now that their sources are stored. Returns text that must be stored again,
    /// because its extents would be too short.
    pub(super) fn resolve(&mut self, parts: &Deduplication) -> Result<Vec<PackJob>, BuildError> {
        let mut late = Vec::new();
        let mut found: Vec<(TextSource, ZExtent)> = Vec::new();
        for one in &parts.plan.refs {
            let wrong = || BuildError::Internal(format!("{one:?} has no units"));
            let ((stream, at), (target, la)) = (parts.locate(one.source), parts.locate(one.target));
            let units = self.stored_extents(stream).ok_or_else(wrong)?;
            let units = &units[units.partition_point(|unit| unit.la < at)..];
            if units.first().is_none_or(|unit| unit.la != at) {
                return Err(wrong());
            }
            let lengths = units.iter().map(|unit| self.unit(unit));
            // Where it lies in the inode: behind what the packed inode of a base has, lclusters begin elsewhere
            // than in the stream.
            let range = la..la + one.len;
            let resolved = split_points::resolve_ref(range, parts.ends_stream(one), lengths, parts.rules);
            let resolved = resolved.ok_or_else(wrong)?;
            let mut la = la;
            for piece in &resolved.extents {
                let unit = units[piece.unit];
                let partial = piece.llen < unit.llen && unit.kind != HeadKind::Plain;
                let extent = ZExtent { la, llen: piece.llen, partial, ..unit };
                la += u64::from(piece.llen);
                match self.repeats(target, &extent, found.last()) {
                    true => late.push(PackJob {
                        stream: target,
                        range: extent.la..la,
                        task: Task::Segment,
                        ends_stream: false,
                    }),
                    false => found.push((target, extent)),
                }
            }
            late.extend(resolved.late.map(|range| PackJob {
                stream: target,
                range,
                task: Task::Segment,
                ends_stream: parts.ends_stream(one),
            }));
        }
        if !found.is_empty() {
            self.feature(Feature::Fragments);
        }
        for (target, extent) in found {
            self.extents_mut(target).list.push(extent);
        }
        Ok(late)
    }

    /// Returns whether a plain encoded extent is next to one of the same bytes, given the reference before it as
    /// `last`. Linux 6.18 fails with EIO if a page has the end of the one and the beginning of the other, unless
    /// both begin at the same byte of a page.
    fn repeats(&self, stream: TextSource, extent: &ZExtent, last: Option<&(TextSource, ZExtent)>) -> bool {
        if !self.encoded || extent.kind != HeadKind::Plain {
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
    fn stored_extents(&self, stream: TextSource) -> Option<&[ZExtent]> {
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
        Unit { llen: extent.llen, blocks, is_whole: self.encoded && extent.kind == HeadKind::Plain }
    }
}

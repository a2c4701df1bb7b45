//! References, when all text is stored: stored pclusters are cut where references begin, and references become extents.
//!
//! Text is cut while it is in memory, if a reference to it is known by then. Later ones find pclusters that hold text
//! before and behind their beginning. Each of these is decoded once and encoded in parts, whatever the number of its
//! cuts. What a reference loses at its front, because a cut would be too near to another one, is stored again.

use kiln_codec::Method;
use kiln_format::feature::Feature;
use kiln_format::zmap::HeadKind;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::{PackCrew, Packing, PartExtent, Stored};
use crate::error::BuildError;
use crate::layout::lcluster_index::ZExtent;
use crate::pack::append::Destination;
use crate::pack::inline_tails::TailRef;
use crate::pack::jobs::{JobText, PackJob, Recut, Task};
use crate::pack::worker::{PackOutput, Shape};
use crate::plan::dedupe::matching::Ref;
use crate::plan::dedupe::parts::Deduplication;
use crate::plan::file::{FilePlan, compression_of};
use crate::plan::text::TextSource;

/// Text that is stored again though it occurs elsewhere.
struct Late {
    target: (TextSource, Range<u64>),
    /// The same text.
    source: (TextSource, u64),
    ends_stream: bool,
}

/// A reference in the coordinates of files.
#[derive(Clone, Copy)]
pub(super) struct FileRef {
    pub target: (TextSource, u64),
    pub source: (TextSource, u64),
    pub len: u64,
    pub ends_stream: bool,
    /// The source must not be cut.
    pub is_fixed: bool,
}

impl Packing<'_, '_> {
    /// Turns references into extents. Returns text that must be stored again.
    ///
    /// # Errors
    /// Those of [`crate::build`].
    pub(super) fn settle(
        &mut self,
        parts: &Deduplication,
        files: &[FilePlan],
        crew: &mut PackCrew<'_>,
    ) -> Result<Vec<PackJob>, BuildError> {
        let of_files = |one: &Ref| {
            let (target, source) = (parts.locate(one.target), parts.locate(one.source));
            FileRef { target, source, len: one.len, ends_stream: parts.ends_stream(one), is_fixed: parts.is_fixed(one) }
        };
        let mut refs: Vec<FileRef> = parts.refs.iter().map(of_files).collect();
        let mut late = Vec::new();
        self.cut_late((&mut refs, &mut late), parts, files, crew)?;
        let found = self.resolve(&refs, parts, &mut |target, source, ends_stream| {
            late.push(Late { target, source, ends_stream });
        })?;
        // Equal text is read before anything else is stored behind it.
        let mut jobs = Vec::new();
        for Late { target: (stream, range), source, ends_stream } in late {
            let mut text = vec![0; (range.end - range.start) as usize];
            if !self.read_stored(source, &mut text)? {
                return Err(BuildError::Internal(format!("{source:?} is referred to, and not stored")));
            }
            let spec = compression_of(stream, files, self.context.format.packing.spec);
            let job = PackJob::segment(stream, range, spec, JobText::all(Arc::new(text)));
            jobs.push(PackJob { ends_stream, ..job });
        }
        if !found.is_empty() {
            self.feature(Feature::Fragments);
        }
        for (target, extent) in found {
            self.extents_mut(target).list.push(extent);
        }
        Ok(jobs)
    }

    /// Cuts stored pclusters where references begin within their text.
    fn cut_late(
        &mut self,
        (refs, late): (&mut Vec<FileRef>, &mut Vec<Late>),
        parts: &Deduplication,
        files: &[FilePlan],
        crew: &mut PackCrew<'_>,
    ) -> Result<(), BuildError> {
        // Cuts of each pcluster: those that references ask for, and their places.
        let mut cuts = BTreeMap::<(TextSource, u64), (ZExtent, bool, Vec<u64>)>::new();
        for one in &*refs {
            let (source, at) = one.source;
            if let Some(extent) = self.extent_at(source, at).filter(|extent| extent.la < at) {
                cuts.entry((source, extent.la)).or_insert_with(|| (extent, one.is_fixed, Vec::new())).2.push(at);
            }
        }
        let mut moved = BTreeMap::<(TextSource, u64), u64>::new();
        let least = parts.rules.min_len();
        let mut wanted = Vec::new();
        for ((source, _), (extent, is_fixed, mut asked)) in cuts {
            asked.sort_unstable();
            asked.dedup();
            let allowed = !is_fixed && self.may_cut(source, files);
            let mut before = extent.la;
            let mut places = Vec::new();
            for at in asked {
                // Text that a reference loses is stored alone: it must not be too short either.
                let place = if at >= before + least { at } else { at.max(before) + least };
                if allowed && extent.end().saturating_sub(place) >= least {
                    moved.insert((source, at), place);
                    places.extend((places.last() != Some(&place)).then_some(place));
                    before = place;
                } else {
                    moved.insert((source, at), self.unit_end(source, &extent, at + least));
                }
            }
            if !places.is_empty() {
                wanted.push((source, extent, places));
            }
        }
        refs.retain_mut(|one| {
            let Some(place) = moved.get(&one.source) else { return true };
            let lost = (place - one.source.1).min(one.len);
            let lost = if one.len - lost < least { one.len } else { lost };
            if lost > 0 {
                let range = one.target.1..one.target.1 + lost;
                let ends_stream = one.ends_stream && lost == one.len;
                late.push(Late { target: (one.target.0, range), source: one.source, ends_stream });
            }
            one.target.1 += lost;
            one.source.1 += lost;
            one.len -= lost;
            one.len > 0
        });
        wanted.sort_unstable_by_key(|(_, extent, _)| extent.pa);
        for (source, extent, places) in wanted {
            let job = self.recut_job(source, &extent, &places, files)?;
            self.submit([job], crew)?;
        }
        self.take_all(crew)?;
        self.forget_texts();
        Ok(())
    }

    /// Returns the end of the first unit behind `extent`, or of itself, that ends at or behind `least`. Without such a
    /// unit, that is far behind all text.
    fn unit_end(&self, source: TextSource, extent: &ZExtent, least: u64) -> u64 {
        let list = self.stored_extents(source).unwrap_or_default();
        let behind = &list[list.partition_point(|one| one.la < extent.la)..];
        let mut end = extent.la;
        for unit in behind.iter().take_while(|unit| unit.plen > 0) {
            if unit.la != end {
                break;
            }
            end = unit.end();
            if end >= least {
                return end;
            }
        }
        u64::MAX
    }

    /// Returns true if stored pclusters of a source can be cut.
    fn may_cut(&self, source: TextSource, files: &[FilePlan]) -> bool {
        let spec = compression_of(source, files, self.context.format.packing.spec);
        // An end beside the inode has room behind the short index of contiguous pclusters only.
        // Streams of DEFLATE that are not in blocks depend on their place.
        self.inline_of(source).is_none() && spec.is_some_and(|spec| !self.encoded || spec.method != Method::Deflate)
    }

    /// Returns the stored extent that has byte `at` of a source, unless it lies beside an inode.
    fn extent_at(&self, source: TextSource, at: u64) -> Option<ZExtent> {
        let list = self.stored_extents(source)?;
        let idx = list.partition_point(|extent| extent.end() <= at);
        list.get(idx).filter(|extent| extent.la <= at && !self.is_inline(source, idx)).copied()
    }

    /// Returns the job that cuts a stored pcluster.
    fn recut_job(
        &mut self,
        source: TextSource,
        extent: &ZExtent,
        places: &[u64],
        files: &[FilePlan],
    ) -> Result<PackJob, BuildError> {
        let mut text = vec![0; extent.llen as usize];
        self.read_stored((source, extent.la), &mut text)?;
        let ends_stream = self.ends_stream(source, extent.end());
        let spec = compression_of(source, files, self.context.format.packing.spec);
        let cuts = places.iter().map(|place| (place - extent.la) as usize).collect();
        let job = PackJob::segment(source, extent.la..extent.end(), spec, JobText::all(Arc::new(text)));
        Ok(PackJob { task: Task::Recut(Recut { cuts, room: extent.plen, ends_stream }), ..job })
    }

    /// Returns true if no stored text follows byte `end` of a source, which is a block boundary or the end of the file:
    /// a short unit may end there. Before other units it must be long enough, because a reference can name both.
    fn ends_stream(&self, source: TextSource, end: u64) -> bool {
        let list = self.stored_extents(source).unwrap_or_default();
        let next = list.get(list.partition_point(|extent| extent.la < end));
        if next.is_some_and(|next| next.la == end) {
            return false;
        }
        let is_last = match source {
            TextSource::File(file) => self.lens[file as usize] == end,
            TextSource::Fragments => next.is_none(),
        };
        is_last || self.block_bits.within(end) == 0
    }

    /// Puts the parts of a pcluster that was cut in its place.
    pub(super) fn append_recut(&mut self, job: &PackJob, output: &PackOutput) -> Result<(), BuildError> {
        let Shape::Recut { list, in_place } = &output.shape else { return Ok(()) };
        let lost = || BuildError::Internal(format!("bytes {:?} are stored nowhere", job.range));
        let old = self.extent_at(job.stream, job.range.start).ok_or_else(lost)?;
        self.data.hash(output);
        let here: usize = list[..*in_place].iter().map(|extent| extent.plen as usize).sum();
        let (front, behind) = output.bytes.split_at(here);
        let device = self.data.device(Destination::Image);
        device.write_at(front, old.pa)?;
        if !self.encoded && !behind.is_empty() {
            device.align_to_block();
        }
        let start = device.append(behind)?;
        let mut pa = old.pa;
        let mut la = old.la;
        let mut new = Vec::with_capacity(list.len());
        for (idx, part) in list.iter().enumerate() {
            if idx == *in_place {
                pa = start;
            }
            let &PartExtent { llen, plen, kind } = part;
            new.push(ZExtent { la, llen, plen, pa, kind, partial: false });
            (la, pa) = (la + u64::from(llen), pa + u64::from(plen));
        }
        let block_bits = self.block_bits;
        let extents = self.extents_mut(job.stream);
        let at = extents.list.partition_point(|extent| extent.la < old.la);
        extents.list.splice(at..=at, new);
        extents.bytes = extents.bytes + output.bytes.len() as u64 - u64::from(old.plen);
        extents.blocks += block_bits.blocks_for(behind.len() as u64);
        Ok(())
    }

    /// Returns true if an extent of a source lies beside an inode.
    pub(super) fn is_inline(&self, source: TextSource, idx: usize) -> bool {
        let is_last = self.stored_extents(source).is_some_and(|list| idx + 1 == list.len());
        is_last && self.inline_of(source).is_some()
    }

    /// Returns the end of a source that lies beside its inode, if there is one.
    pub(super) fn inline_of(&self, source: TextSource) -> Option<TailRef> {
        match source {
            TextSource::File(file) => match &self.stored[file as usize] {
                Stored::Compressed(extents) => extents.inline,
                _ => None,
            },
            TextSource::Fragments => None,
        }
    }

    /// Returns the first extents of a source, which references can name: all but one beside an inode.
    pub(super) fn nameable(&self, source: TextSource) -> &[ZExtent] {
        let list = self.stored_extents(source).unwrap_or_default();
        let count = list.len();
        if count > 0 && self.is_inline(source, count - 1) { &list[..count - 1] } else { list }
    }

    /// Returns true if a stored extent is plain text of whole bytes, which is not referred to in part.
    pub(super) fn is_plain_unit(&self, extent: &ZExtent) -> bool {
        self.encoded && extent.kind == HeadKind::Plain
    }
}

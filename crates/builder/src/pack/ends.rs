//! Ends of files that are left for the packed inode: they wait until all else is stored.

use kiln_codec::Spec;
use kiln_format::feature::Feature;
use kiln_format::zmap::HeadKind;
use std::sync::Arc;

use super::{PackCrew, Packing, Stored};
use crate::error::BuildError;
use crate::layout::lcluster_index::{self, ZExtent};
use crate::pack::jobs::{JobText, PackJob};
use crate::pack::left_ends::LeftEnd;
use crate::plan::pieces::steps;
use crate::plan::text::{TextSource, segment_len};

impl Packing<'_, '_> {
    /// Stores the ends of files in the packed inode, behind its first `len` bytes. Returns its length.
    pub(super) fn store_ends(&mut self, len: u64, spec: Spec, crew: &mut PackCrew<'_>) -> Result<u64, BuildError> {
        let ends = self.ends.take();
        if ends.is_empty() {
            return Ok(len);
        }
        self.feature(Feature::Fragments);
        let mut end = len;
        for one in &ends {
            self.place_end(one, end);
            end += u64::from(one.len);
        }
        let padded = match self.context.format.packing.directories {
            true => lcluster_index::pack_start(end, self.block_bits)?,
            false => end,
        };
        let mut rest = ends.iter();
        let mut text = Vec::new();
        for range in steps(len..padded, segment_len(spec.pcluster_len)) {
            let wanted = (range.end - range.start) as usize;
            while text.len() < wanted {
                match rest.next() {
                    Some(one) => self.ends.get_text(one, &mut text)?,
                    None => text.resize(wanted, 0),
                }
            }
            let behind = text.split_off(wanted);
            let bytes = JobText::all(Arc::new(std::mem::replace(&mut text, behind)));
            self.submit([PackJob::segment(TextSource::Fragments, range, Some(spec), bytes)], crew)?;
        }
        self.take_all(crew)?;
        Ok(padded)
    }

    /// Gives the end of a file its place in the packed inode.
    fn place_end(&mut self, end: &LeftEnd, off: u64) {
        let LeftEnd { file, start, len: llen, .. } = *end;
        if start == 0 {
            self.stored[file as usize] = Stored::Fragment(off);
            return;
        }
        let extents = self.extents_mut(TextSource::File(file));
        let pa = extents.list.last().map_or(0, |extent| extent.pa + u64::from(extent.plen));
        let kind = HeadKind::Head1;
        extents.list.push(ZExtent { la: start, llen, plen: 0, pa, kind, partial: false });
        extents.fragment = Some(off);
    }
}

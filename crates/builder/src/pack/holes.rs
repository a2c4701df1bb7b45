//! Holes of compressed files: extents of their own, or references to a pcluster of zeros.

use kiln_codec::Spec;
use kiln_format::feature::Feature;
use kiln_format::zmap::HeadKind;
use std::ops::Range;

use super::{Extents, Packing};
use crate::error::BuildError;
use crate::layout::lcluster_index::ZExtent;
use crate::pack::append::Destination;
use crate::pack::worker::{PackOutput, Shape};
use crate::pack::zero_pcluster;
use crate::plan::file::{FilePlan, Storage};

/// Longest hole in one encoded extent, in bytes.
const HOLE_EXTENT_MAX_LEN: u64 = 1 << 31;

impl Packing<'_, '_> {
    /// Stores a pcluster of zeros for each algorithm of a file with holes. Encoded extents support holes directly.
    pub(super) fn write_zeros(&mut self, files: &[FilePlan]) -> Result<(), BuildError> {
        let has_holes = |file: &&FilePlan| matches!(file.storage, Storage::Compressed { sparse: true });
        if self.encoded {
            return Ok(());
        }
        for spec in files.iter().filter(has_holes).filter_map(|file| file.compression) {
            let algorithm = spec.method.algorithm();
            if self.zeros.contains_key(&algorithm) {
                continue;
            }
            let (block, llen) = zero_pcluster::pcluster(&spec, self.context.format)?;
            let plen = block.len() as u32;
            let pa = self.data.append(&PackOutput::new(block, Shape::Flat { tail: Vec::new() }), Destination::Image)?;
            self.zeros.insert(algorithm, ZExtent { la: 0, llen, pa, plen, kind: HeadKind::Head1, partial: false });
            self.feature(Feature::Fragments);
        }
        Ok(())
    }

    /// Returns the extents of a stream of `len` bytes in order, with holes in their gaps.
    pub(super) fn complete(
        &self,
        mut extents: Extents,
        len: u64,
        compression: Option<Spec>,
    ) -> Result<Extents, BuildError> {
        let zeros = compression.and_then(|spec| self.zeros.get(&spec.method.algorithm()));
        extents.list.sort_unstable_by_key(|extent| extent.la);
        let mut list = Vec::with_capacity(extents.list.len());
        let mut end = 0;
        for extent in std::mem::take(&mut extents.list) {
            self.append_hole(&mut list, end..extent.la, zeros)?;
            end = extent.end();
            list.push(extent);
        }
        self.append_hole(&mut list, end..len, zeros)?;
        Ok(Extents { list, ..extents })
    }

    /// Adds zeros for this range, from that pcluster if the map has no holes.
    fn append_hole(
        &self,
        list: &mut Vec<ZExtent>,
        range: Range<u64>,
        zeros: Option<&ZExtent>,
    ) -> Result<(), BuildError> {
        let Range { start: mut la, end } = range;
        let most = match (self.encoded, zeros) {
            _ if la == end => return Ok(()),
            (true, _) => HOLE_EXTENT_MAX_LEN,
            (false, Some(zeros)) => zeros.llen.into(),
            (false, None) => return Err(BuildError::Internal(format!("nothing is stored of bytes {la} to {end}"))),
        };
        if la > end {
            return Err(BuildError::Internal(format!("bytes {end} to {la} are stored twice")));
        }
        let hole = ZExtent { la, llen: 0, plen: 0, pa: 0, kind: HeadKind::Plain, partial: false };
        while la < end {
            let llen = (end - la).min(most) as u32;
            let extent = zeros.map_or(hole, |zeros| ZExtent { partial: llen < zeros.llen, ..*zeros });
            list.push(ZExtent { la, llen, ..extent });
            la += u64::from(llen);
        }
        Ok(())
    }
}

//! Rules of reuse: the extents that an index or a map of the new image can express, and the packed text that is
//! worth it.

use kiln_codec::Spec;
use kiln_format::{Algorithm, BlockBits};
use std::ops::Range;

use crate::format::Format;
use crate::inodes::previous::PreviousMetadata;
use crate::layout::lcluster_index::{self, IndexShape, MapEnd};
use crate::plan::file::FilePlan;
use crate::plan::reuse::list::ReusedList;
use crate::plan::reuse::packed::ReusedPacked;
use kiln_tree::{BaseFacts, PreviousVersion, Reuse, ReusedData, ReusedExtent, ReusedExtents};

/// Least part of a packed pcluster's text that must still be in use, one in so many; otherwise its files are stored
/// again.
const USED_SHARE: u64 = 4;

/// Rules of reuse in an image with these options.
pub(super) struct Rules<'a> {
    facts: &'a BaseFacts,
    format: &'a Format,
    block_bits: BlockBits,
    /// Compression of the packed inode, if there may be one.
    packed: Option<Spec>,
    /// Inodes of the base may be kept.
    keeps_inodes: bool,
}

impl<'a> Rules<'a> {
    pub(super) fn new(facts: &'a BaseFacts, format: &'a Format) -> Self {
        let (block_bits, packed) = (format.block_bits, format.packing.spec);
        Self { facts, format, block_bits, packed, keeps_inodes: false }
    }

    /// Returns the rules of an image that may keep inodes of the base if there is `previous` metadata.
    pub(super) fn keeping(self, previous: Option<&PreviousMetadata>) -> Self {
        Self { keeps_inodes: previous.is_some(), ..self }
    }

    /// Returns whether a file can be reused. For fragments only whether there may be any.
    pub(super) fn allow(&self, how: &ReusedData, file: &FilePlan) -> bool {
        match how {
            ReusedData::Flat { pa, tail_len } => {
                let tail = self.format.inline_tail_len(file.len, file.inode_len as usize) as u64;
                // A tail needs room beside the inode, and a file without one needs none.
                pa.is_multiple_of(self.block_bits.len()) && (*tail_len == 0 || *tail_len == tail)
            }
            ReusedData::Extents(extents) => {
                let ends_packed =
                    extents.fragment.is_none_or(|_| !self.format.compression.encoded_extents && self.packs());
                let ends_inline = extents.inline.is_none_or(|inline| self.has_room(inline.plen, file));
                let ends = extents.fragment.map(|(la, _)| la).or(extents.inline.map(|inline| inline.la));
                let covered = extents.list.last().map_or(0, ReusedExtent::end);
                // An index has no holes, but one that is damaged may end too early.
                let is_whole = self.format.compression.encoded_extents || covered >= ends.unwrap_or(file.len);
                ends_packed && ends_inline && is_whole && self.allow_extents(extents, ends)
            }
            ReusedData::Fragment { .. } => self.packs(),
        }
    }

    /// Returns whether fragments of the base can be reused: its packed inode is compressed like the new one.
    fn packs(&self) -> bool {
        let same = |spec: Spec| self.facts.packed.algorithm.is_none_or(|one| one == spec.method.algorithm());
        self.format.reusable.shared && self.packed.is_some_and(same) && !self.facts.packed.list.is_empty()
    }

    /// Returns whether a pcluster of `len` bytes has room beside the inode of a file, behind the longest index that
    /// it may get.
    fn has_room(&self, len: u32, file: &FilePlan) -> bool {
        let (block_bits, inode_len) = (self.block_bits, u64::from(file.inode_len));
        let end = MapEnd::Inline(len as u16);
        let full = IndexShape { len: file.len, block_bits, big: true, scattered: true, end };
        let index_len = lcluster_index::len_behind(inode_len, full).unwrap_or(u64::MAX);
        !self.format.compression.encoded_extents
            && self.format.reusable.tails
            && inode_len.saturating_add(index_len).saturating_add(len.into()) <= block_bits.len()
    }

    /// Returns whether extents of an older version of a file can be reused one by one: they must be contiguous from
    /// its beginning on.
    pub(super) fn allow_previous(&self, previous: &PreviousVersion) -> bool {
        let list = &previous.extents.list;
        let mut heads = list.iter().scan(0, |next, extent| Some(std::mem::replace(next, extent.end()) == extent.la));
        list.len() > 1 && heads.all(|follows| follows) && self.allow_extents(&previous.extents, None)
    }

    /// Returns whether a map can express such extents. `end` is the byte at which the file continues in the packed
    /// inode, or beside its inode.
    fn allow_extents(&self, extents: &ReusedExtents, end: Option<u64>) -> bool {
        let has_algorithm = self.algorithm(extents).is_some_and(|one| self.format.reusable.has(one));
        let has_partial = extents.list.iter().any(|extent| extent.partial);
        let has_refs = !has_partial || self.format.reusable.shared;
        has_algorithm && has_refs && (self.format.compression.encoded_extents || self.fits_index(&extents.list, end))
    }

    /// Returns whether an index can express extents: pclusters are whole blocks, plain ones one block, each lcluster
    /// has one head, and the one behind the head of a pcluster of several blocks has none, as it holds their number.
    /// The text behind the last of the list begins at `end`, if there is any.
    fn fits_index(&self, list: &[ReusedExtent], end: Option<u64>) -> bool {
        let block_len = self.block_bits.len();
        let in_blocks = |extent: &ReusedExtent| {
            let plen = u64::from(extent.plen);
            let aligned = extent.pa.is_multiple_of(block_len) && plen.is_multiple_of(block_len);
            aligned && (!extent.plain || plen == block_len)
        };
        let is_big = list.iter().any(|extent| u64::from(extent.plen) > block_len);
        let nexts = list.iter().skip(1).map(|extent| Some(extent.la)).chain([end]);
        let has_room = |(extent, next): (&ReusedExtent, Option<u64>)| {
            let is_big = u64::from(extent.plen) > block_len;
            // The last extent of a file may be alone in an lcluster; otherwise the end marker has one.
            let lclusters = if is_big { 2 } else { u64::from(next.is_some()) };
            let next = next.unwrap_or(extent.end());
            next >> self.block_bits.bits() >= (extent.la >> self.block_bits.bits()) + lclusters
        };
        // A damaged extent may begin anywhere: nothing is added to that.
        let mut starts = list.iter().scan(0, |next, extent| Some(std::mem::replace(next, extent.end()) == extent.la));
        starts.all(|follows| follows)
            && list.iter().all(in_blocks)
            && (!is_big || self.format.reusable.big_pclusters)
            && list.iter().zip(nexts).all(has_room)
            && end.is_none_or(|end| list.last().map_or(0, ReusedExtent::end) == end)
    }

    /// Returns the algorithm that the map of a file names for its pclusters.
    pub(super) fn algorithm(&self, extents: &ReusedExtents) -> Option<Algorithm> {
        extents.algorithm.or_else(|| Algorithm::ALL.into_iter().find(|one| self.facts.cfgs.has(*one)))
    }

    /// Returns the reused part of the packed inode. Removes files from `reused` that have text where too little is in
    /// use.
    pub(super) fn packed(&self, reused: &mut ReusedList, files: &[FilePlan]) -> ReusedPacked {
        let list = &self.facts.packed.list;
        let mut spans: Vec<Span> = reused.iter().filter_map(|(file, how)| span(how, file, (files, list))).collect();
        let in_use = used(list, &spans);
        let front = if self.keeps_inodes { self.front(&in_use) } else { 0 };
        let stays = |(idx, (extent, used)): (usize, (&ReusedExtent, u64))| {
            let llen = u64::from(extent.llen);
            let fits = match front {
                0 => self.format.compression.encoded_extents || self.fits_anywhere(extent),
                _ => idx < front,
            };
            // Data that stays in place costs nothing.
            let pays = match self.facts.reuse {
                Reuse::Copy => used.saturating_mul(USED_SHARE) >= llen,
                Reuse::InPlace => used > 0,
            };
            fits && pays
        };
        let stay: Vec<bool> = list.iter().zip(in_use).enumerate().map(stays).collect();
        let mut gone = Vec::new();
        spans.retain(|span| {
            let covered =
                list[span.extents.clone()].iter().map(|extent| overlap(extent, span.off, span.len)).sum::<u64>();
            let remains = covered >= span.len && span.extents.clone().all(|idx| stay[idx]);
            gone.extend((!remains).then_some(span.file));
            remains
        });
        reused.retain(|file, _| gone.binary_search(&file).is_err());
        let used = used(list, &spans);
        let last = used.iter().rposition(|used| *used > 0);
        let front = last.map_or(0, |last| front.min(last + 1));
        let (mut la, mut extents) = (0, Vec::new());
        for (_, (extent, _)) in list.iter().zip(used).enumerate().filter(|(idx, (_, used))| *used > 0 || *idx < front) {
            extents.push((extent.la, ReusedExtent { la, ..*extent }));
            la += u64::from(extent.llen);
        }
        ReusedPacked { extents }
    }

    /// Returns the number of extents of the base's packed inode that stay where they lie in it, used or not, given the
    /// bytes in use of each: so inodes can be kept that refer to them. At least half of the text must be in use, as the
    /// map has all of it. Behind the last extent, which may be too short for that, others follow.
    fn front(&self, used: &[u64]) -> usize {
        let list = &self.facts.packed.list;
        let end = |count: usize| list[..count].last().map_or(0, ReusedExtent::end);
        let follow = |list: &[ReusedExtent]| {
            let mut starts = list.iter().scan(0, |next, one| Some(std::mem::replace(next, one.end()) == one.la));
            starts.all(|follows| follows)
        };
        let fit = |count: usize| match self.format.compression.encoded_extents {
            true => follow(&list[..count]),
            false => self.fits_index(&list[..count], Some(end(count))),
        };
        let is_used = |count: &usize| used[..*count].iter().sum::<u64>() >= end(*count) / 2;
        let counts = [list.len(), list.len().saturating_sub(1)];
        counts.into_iter().filter(is_used).find(|count| fit(*count)).unwrap_or(0)
    }

    /// Returns whether an extent can lie anywhere in an index, with another one behind it. The first byte of an
    /// lcluster is the worst place.
    fn fits_anywhere(&self, extent: &ReusedExtent) -> bool {
        self.fits_index(&[ReusedExtent { la: 0, ..*extent }], Some(extent.llen.into()))
    }
}

/// The part of a file in the base's packed inode.
struct Span {
    file: u32,
    /// First byte.
    off: u64,
    /// Length in bytes.
    len: u64,
    /// The extents that hold some of these bytes.
    extents: Range<usize>,
}

/// Returns the part of a file, stored as `how`, in the base's packed inode, which has these extents.
fn span(how: &ReusedData, file: u32, (files, list): (&[FilePlan], &[ReusedExtent])) -> Option<Span> {
    let file_len = files[file as usize].len;
    let (off, len) = match how {
        ReusedData::Fragment { off } => (*off, file_len),
        ReusedData::Extents(ReusedExtents { fragment: Some((la, off)), .. }) => (*off, file_len.saturating_sub(*la)),
        _ => return None,
    };
    Some(Span { file, off, len, extents: overlapping(list, off, len) })
}

/// Returns the extents that hold some of `len` bytes from `off` on.
pub(crate) fn overlapping(list: &[ReusedExtent], off: u64, len: u64) -> Range<usize> {
    let first = list.partition_point(|extent| extent.end() <= off);
    let end = list.partition_point(|extent| extent.la < off.saturating_add(len));
    first..end.max(first)
}

/// Returns the number of those of `len` bytes from `off` on that an extent holds.
fn overlap(extent: &ReusedExtent, off: u64, len: u64) -> u64 {
    extent.end().min(off.saturating_add(len)).saturating_sub(extent.la.max(off))
}

/// Returns for each extent the bytes that files use; shared bytes count for each file.
fn used(list: &[ReusedExtent], spans: &[Span]) -> Vec<u64> {
    let mut used = vec![0_u64; list.len()];
    for Span { off, len, extents, .. } in spans {
        for at in extents.clone() {
            used[at] = used[at].saturating_add(overlap(&list[at], *off, *len));
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::BuildOptions;
    use kiln_format::compr_cfg::ComprCfgs;

    fn extent(la: u64, llen: u32) -> ReusedExtent {
        ReusedExtent { la, llen, pa: 4096 * (1 + la), plen: 4096, plain: false, partial: false }
    }

    #[test]
    fn an_index_has_room_for_the_length_of_each_pcluster() {
        let packed = ReusedExtents { algorithm: Some(Algorithm::Lzma), ..ReusedExtents::default() };
        let (identity, block_bits, cfgs) = (Vec::new(), BlockBits::DEFAULT, ComprCfgs::default());
        let (reuse, metadata) = (Reuse::InPlace, None);
        let facts = BaseFacts { reuse, identity, len: 1 << 20, block_bits, cfgs, packed, metadata };
        let format = Format::decide(&BuildOptions::default(), None);
        let rules = Rules::new(&facts, &format);
        let big = |la, llen| ReusedExtent { plen: 8192, ..extent(la, llen) };
        for (list, end, fits) in [
            (&[extent(0, 4096), extent(4096, 1)][..], None, true),
            (&[extent(0, 4095), extent(4095, 5000)], None, false),
            (&[extent(0, 4095)], Some(4095), false),
            (&[extent(0, 4096)], Some(4096), true),
            (&[extent(0, 4096), extent(4097, 4096)], None, false),
            (&[big(0, 8191), extent(8191, 5000)], None, false),
            (&[big(0, 8192), extent(8192, 5000)], None, true),
            (&[extent(0, 8000), big(8000, 5849), extent(13_849, 9000)], None, true),
            (&[extent(0, 8200), big(8200, 5849), extent(14_049, 9000)], None, false),
            (&[extent(0, 8200), big(8200, 4000)], None, false),
            (&[extent(0, 8200), big(8200, 5000)], None, false),
            (&[extent(0, 8200), big(8200, 8184)], None, true),
            (&[extent(0, 8200), big(8200, 8184)], Some(16_384), true),
            (&[extent(0, 8200), big(8200, 8183)], Some(16_383), false),
        ] {
            assert_eq!(rules.fits_index(list, end), fits, "{list:?} {end:?}");
        }
        for (one, fits) in
            [(extent(77, 4096), true), (extent(77, 4095), false), (big(77, 8191), false), (big(77, 8192), true)]
        {
            assert_eq!(rules.fits_anywhere(&one), fits, "{one:?}");
        }
    }

    #[test]
    fn what_an_extent_has_of_a_range() {
        for (off, len, found) in [(0, 100, 0), (90, 20, 10), (100, 50, 50), (120, 5, 5), (140, 50, 10), (150, 9, 0)] {
            assert_eq!(overlap(&extent(100, 50), off, len), found, "{off} {len}");
        }
    }

    #[test]
    fn extents_that_hold_a_range_are_found() {
        let list = [extent(0, 100), extent(100, 50), extent(150, 10)];
        for (off, len, found) in
            [(0, 1, 0..1), (99, 2, 0..2), (100, 50, 1..2), (0, 160, 0..3), (160, 5, 3..3), (50, 0, 0..1)]
        {
            assert_eq!(overlapping(&list, off, len), found, "{off} {len}");
        }
    }
}

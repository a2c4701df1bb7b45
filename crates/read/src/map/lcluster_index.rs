//! Lookups in an lcluster index, full or compact.

use super::compressed_file::{CompressedFile, INDEX, IndexEntry};
use crate::error::{ReadError, too_far};
use kiln_format::compr_cfg::EXTENT_MAX_LEN;
use kiln_format::inode::DataLayout;
use kiln_format::zmap::{
    Advise, COMPACT_INDEX_OFF, CompactLayout, FULL_ENTRY_LEN, FULL_INDEX_OFF, HeadKind, Lcluster, MapHeader, Pack,
};

/// Most entries in a pack.
const PACK_MAX: usize = 16;

/// An lcluster index.
pub(super) struct LclusterIndex {
    /// log2 of the lcluster size.
    bits: u8,
    /// True if any pcluster may have several blocks.
    big: bool,
    format: Format,
    end_off: u64,
}

#[allow(clippy::large_enum_variant)] // on the stack, see `MapKind`
enum Format {
    Full {
        table: u64,
    },
    /// Entries come in packs; the last one decoded is kept.
    Compact {
        layout: CompactLayout,
        last_pack: Option<(Pack, [Lcluster; PACK_MAX])>,
    },
}

/// A head, and the lcluster that it is in.
struct HeadEntry {
    lcn: u64,
    kind: HeadKind,
    clusterofs: u32,
    blkaddr: u64,
    partial: bool,
}

impl LclusterIndex {
    pub(super) fn new(file: &CompressedFile<'_>, header: &MapHeader) -> Result<Self, ReadError> {
        let (size, bits) = (file.inode.meta.size, header.lcluster_bits);
        let count = size.div_ceil(1 << bits);
        let far = || too_far(INDEX, file.header_off);
        let at = |off| file.header_off.checked_add(off).ok_or_else(far);
        let big = header.advise.intersects(Advise::BIG_PCLUSTER_1 | Advise::BIG_PCLUSTER_2);
        if file.inode.meta.layout() == DataLayout::CompressedFull {
            let table = at(FULL_INDEX_OFF)?;
            let len = count.checked_mul(FULL_ENTRY_LEN);
            let end_off = len.and_then(|len| table.checked_add(len)).ok_or_else(far)?;
            return Ok(Self { bits, big, format: Format::Full { table }, end_off });
        }
        let blocks = file.block_bits().blocks_for(size);
        let layout = CompactLayout::new(at(COMPACT_INDEX_OFF)?, blocks, count, bits, header.advise)?;
        Ok(Self { bits, big, format: Format::Compact { layout, last_pack: None }, end_off: layout.end_off() })
    }

    /// Returns the byte offset behind the last entry or pack.
    pub(super) fn end_off(&self) -> u64 {
        self.end_off
    }

    /// Returns the extent with byte `off` of the file.
    pub(super) fn find(
        &mut self,
        file: &mut CompressedFile<'_>,
        header: &MapHeader,
        off: u64,
    ) -> Result<IndexEntry, ReadError> {
        let head = self.head_of(file, off)?;
        let end_mark = self.end_of(file, head.lcn)?;
        if end_mark <= off {
            // The distances backwards and forwards contradict each other.
            return Err(file.corrupt("delta[0]", head.lcn, "leads back over another head"));
        }
        let blocks = if header.is_big(head.kind) { self.blocks(file, head.lcn)? } else { 1 };
        let la = (head.lcn << self.bits) + u64::from(head.clusterofs);
        // A head at or behind the end of the file only marks that end.
        let end = end_mark.min(file.inode.meta.size);
        Ok(IndexEntry { la, end, end_mark, kind: head.kind, blkaddr: head.blkaddr, blocks, partial: head.partial })
    }

    /// Checks every entry: with distances that lead out of their extent, two lookups would
    /// contradict each other.
    pub(super) fn verify(&mut self, file: &mut CompressedFile<'_>) -> Result<(), ReadError> {
        let count = file.inode.meta.size.div_ceil(1 << self.bits);
        let (mut head, mut reach) = (None, 0);
        for lcn in 0..count {
            match (self.entry(file, lcn)?, head) {
                (Lcluster::Head { .. }, _) if reach > lcn => {
                    return Err(file.corrupt("delta[1]", lcn, "leads forward over this head"));
                }
                (Lcluster::Head { .. }, _) => head = Some(lcn),
                (Lcluster::Nonhead { back, forward, .. }, Some(head)) if (1..=lcn - head).contains(&back.into()) => {
                    reach = reach.max(lcn + u64::from(forward));
                }
                (Lcluster::Nonhead { back, .. }, _) => {
                    return Err(file.corrupt("delta[0]", back.into(), "leads back over the head, or nowhere"));
                }
            }
        }
        Ok(())
    }

    /// Returns the last head at or before `off`.
    fn head_of(&mut self, file: &mut CompressedFile<'_>, off: u64) -> Result<HeadEntry, ReadError> {
        let first = off >> self.bits;
        let mut lcn = first;
        for _ in 0..self.steps_max() {
            let back = match self.entry(file, lcn)? {
                Lcluster::Head { kind, clusterofs, blkaddr, partial } => {
                    // In the lcluster of `off` itself the extent may start behind it.
                    if lcn < first || off >= (lcn << self.bits) + u64::from(clusterofs) {
                        return Ok(HeadEntry { lcn, kind, clusterofs, blkaddr: blkaddr.0, partial });
                    }
                    1
                }
                Lcluster::Nonhead { back, .. } => back.into(),
            };
            if back == 0 || back > lcn {
                return Err(file.corrupt("delta[0]", back, "leads before the file, or nowhere"));
            }
            lcn -= back;
        }
        Err(self.endless(file, first))
    }

    /// Returns the place of the next head behind the one in `lcn`, or the end of the last lcluster.
    fn end_of(&mut self, file: &mut CompressedFile<'_>, lcn: u64) -> Result<u64, ReadError> {
        let last = (file.inode.meta.size - 1) >> self.bits;
        let mut next = lcn;
        for _ in 0..self.steps_max() {
            if next == last {
                return Ok((last + 1) << self.bits);
            }
            let stride = match self.entry(file, next)? {
                Lcluster::Nonhead { forward, .. } => forward.max(1).into(),
                Lcluster::Head { .. } => 1,
            };
            // At most to the last entry, which may mark the end of the file.
            next = last.min(next + stride);
            if let Lcluster::Head { clusterofs, .. } = self.entry(file, next)? {
                return Ok((next << self.bits) + u64::from(clusterofs));
            }
        }
        Err(self.endless(file, lcn))
    }

    /// Returns the number of blocks of the pcluster of the head in `lcn`, of a kind that may have
    /// several.
    fn blocks(&mut self, file: &mut CompressedFile<'_>, lcn: u64) -> Result<u32, ReadError> {
        let next = lcn + 1;
        if next >= file.inode.meta.size.div_ceil(1 << self.bits) {
            return Ok(1);
        }
        match self.entry(file, next)? {
            Lcluster::Nonhead { cblkcnt: Some(blocks), .. } => Ok(blocks.max(1)),
            _ => Ok(1),
        }
    }

    /// Returns the entry of `lcn`, which must be in the file.
    fn entry(&mut self, file: &mut CompressedFile<'_>, lcn: u64) -> Result<Lcluster, ReadError> {
        match &mut self.format {
            Format::Full { table } => {
                let bytes = file.meta.array(INDEX, *table + FULL_ENTRY_LEN * lcn)?;
                let entry = Lcluster::decode_full(&bytes);
                match entry {
                    Lcluster::Head { clusterofs, .. } if clusterofs >> self.bits != 0 => {
                        Err(file.corrupt("di_clusterofs", clusterofs.into(), "beyond its lcluster"))
                    }
                    Lcluster::Nonhead { cblkcnt: Some(blocks), .. } if !self.big => {
                        Err(file.corrupt("delta[0] (CBLKCNT)", blocks.into(), "without BIG_PCLUSTER"))
                    }
                    _ => Ok(entry),
                }
            }
            Format::Compact { layout, last_pack } => {
                let (pack, entries) = match last_pack.take() {
                    Some(last_pack)
                        if (last_pack.0.first..last_pack.0.first + last_pack.0.entries as u64).contains(&lcn) =>
                    {
                        last_pack
                    }
                    _ => {
                        let pack = layout.pack_of(lcn);
                        let mut bytes = [0; 32];
                        file.meta.fill(INDEX, &mut bytes[..pack.len], pack.off)?;
                        let entries = layout.decode_pack(pack, &bytes[..pack.len])?;
                        (pack, std::array::from_fn(|idx| entries.get(idx)))
                    }
                };
                *last_pack = Some((pack, entries));
                Ok(entries[(lcn - pack.first) as usize])
            }
        }
    }

    /// Returns the number of entries to look at before an extent counts as endless. One of legal
    /// length has no more lclusters than this, and a longer fragment is crossed in strides.
    fn steps_max(&self) -> u64 {
        (EXTENT_MAX_LEN as u64 >> self.bits) + 2
    }

    fn endless(&self, file: &CompressedFile<'_>, lcn: u64) -> ReadError {
        ReadError::unsupported(INDEX, file.header_off, "lcluster", lcn, "in an extent without end")
    }
}

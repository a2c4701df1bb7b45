//! The compact lcluster index: packs of 2 entries in 8 bytes or of 16 entries in 32 bytes.
//!
//! A pack is a bit string of entries followed by 4 bytes with a block address, from which the
//! addresses of its heads are counted. So the pclusters of a pack must be contiguous; only a pack
//! that starts with a head can begin at another address.

use super::{Advise, CBLKCNT_MAX, D0_CBLKCNT, DELTA_MAX, HeadKind, Lcluster, TYPE_NONHEAD};
use crate::{Blkaddr, FormatError};

/// Number of entries in the larger pack.
const PACK_MAX: usize = 16;

/// Positions of the packs of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactLayout {
    /// Byte offset of the index in its metadata space, a multiple of 8.
    table_off: u64,
    /// Number of entries: the file's size in lclusters.
    count: u64,
    /// Number of entries in 8-byte packs before the first 32-byte pack.
    initial: u64,
    /// Number of entries in 32-byte packs.
    packed: u64,
    lcluster_bits: u8,
    big: bool,
}

/// Position and size of one pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pack {
    /// Byte offset in the metadata space.
    pub off: u64,
    /// Length in bytes: 8 or 32.
    pub len: usize,
    /// Number of the lcluster of its first entry.
    pub first: u64,
    /// Number of entries: 2 or 16. The last one may lie after the end of the file.
    pub entries: usize,
}

impl CompactLayout {
    /// Returns the layout of an index at byte `table_off` for a file of `blocks` blocks and `count`
    /// lclusters, whose header has the bits `advise`. COMPACTED_2B selects packs of 16 entries,
    /// BIG_PCLUSTER_1 or BIG_PCLUSTER_2 numbers of blocks.
    ///
    /// # Errors
    /// Logical clusters that are too large for this index: over 4 KiB for packs of 16 entries, over
    /// 16 KiB for any.
    pub fn new(
        table_off: u64,
        blocks: u64,
        count: u64,
        lcluster_bits: u8,
        advise: Advise,
    ) -> Result<Self, FormatError> {
        let dense = advise.contains(Advise::COMPACTED_2B_OR_EXTENTS);
        if lcluster_bits > 14 || (dense && lcluster_bits > 12) {
            let (record, field) = ("z_erofs_map_header", "h_clusterbits");
            let reason = "logical clusters too large for the compact index";
            return Err(FormatError::unsupported(record, table_off, field, lcluster_bits.into(), reason));
        }
        let initial = (32 - table_off % 32) / 4 % 8;
        let packed = if dense && initial < blocks { (blocks - initial) / 16 * 16 } else { 0 };
        let initial = if dense { initial } else { 0 };
        let big = advise.intersects(Advise::BIG_PCLUSTER_1 | Advise::BIG_PCLUSTER_2);
        Ok(Self { table_off, count, initial, packed, lcluster_bits, big })
    }

    /// Returns the byte offset of the end of the last pack.
    pub fn end_off(&self) -> u64 {
        match self.count {
            0 => self.table_off,
            count => {
                let last = self.pack_of(count - 1);
                last.off + last.len as u64
            }
        }
    }

    /// Returns the pack with the entry of lcluster `lcn`, which must be in the file. Offsets are
    /// exact for tables that start below 2^63 in files below 2^63 bytes: there are no others.
    pub fn pack_of(&self, lcn: u64) -> Pack {
        let small = |off, first_of_run: u64| {
            let idx = (lcn - first_of_run) / 2;
            Pack { off: off + 8 * idx, len: 8, first: first_of_run + 2 * idx, entries: 2 }
        };
        let dense_off = self.table_off + 4 * self.initial;
        if lcn < self.initial {
            small(self.table_off, 0)
        } else if lcn < self.initial + self.packed {
            let idx = (lcn - self.initial) / 16;
            Pack { off: dense_off + 32 * idx, len: 32, first: self.initial + 16 * idx, entries: 16 }
        } else {
            small(dense_off + 2 * self.packed, self.initial + self.packed)
        }
    }

    /// Decodes the entries of `pack`, whose bytes are `bytes`.
    ///
    /// # Errors
    /// A number of blocks in an index without big pclusters; an offset beyond the lcluster.
    pub fn decode_pack(&self, pack: Pack, bytes: &[u8]) -> Result<PackEntries, FormatError> {
        let (stream, base) = bytes.split_last_chunk::<4>().expect("a pack has 8 or 32 bytes");
        let base = u64::from(u32::from_le_bytes(*base));
        let width = stream.len() * 8 / pack.entries;
        let lobits = u32::from(self.lcluster_bits.max(12));
        let mut entries = PackEntries { list: [Lcluster::Nonhead { back: 0, forward: 1, cblkcnt: None }; PACK_MAX] };
        // Without BIG_PCLUSTER the base is one below the address of the first head; with it, the
        // address itself.
        let mut next = if self.big { base } else { base.wrapping_add(1) };
        let mut open = false;
        let mut back = 0;
        for idx in 0..pack.entries {
            let value = bits(stream, idx * width, width);
            let lo = value & ((1 << lobits) - 1);
            entries.list[idx] = match HeadKind::from_type((value >> lobits) as u16) {
                Some(kind) => {
                    if lo >> self.lcluster_bits != 0 {
                        let (record, field) = ("z_erofs_lcluster_index", "clusterofs");
                        return Err(FormatError::corrupt(record, pack.off, field, lo.into(), "beyond its lcluster"));
                    }
                    next = next.wrapping_add(u64::from(open));
                    let blkaddr = Blkaddr(next & 0xFFFF_FFFF);
                    (open, back) = (true, 0);
                    Lcluster::Head { kind, clusterofs: lo, blkaddr, partial: false }
                }
                None if lo & u32::from(D0_CBLKCNT) != 0 => {
                    let blocks = lo & !u32::from(D0_CBLKCNT);
                    if !self.big {
                        let (record, field) = ("z_erofs_lcluster_index", "delta[0] (CBLKCNT)");
                        return Err(FormatError::corrupt(record, pack.off, field, lo.into(), "without BIG_PCLUSTER_1"));
                    }
                    next = next.wrapping_add(blocks.into());
                    (open, back) = (false, 1);
                    Lcluster::Nonhead { back, forward: 1, cblkcnt: Some(blocks & DELTA_MAX) }
                }
                None if idx + 1 == pack.entries => {
                    // The last entry stores the distance forward; its distance back follows from
                    // the entry before.
                    Lcluster::Nonhead { back: back + 1, forward: lo.max(1), cblkcnt: None }
                }
                None => {
                    back = lo;
                    Lcluster::Nonhead { back: lo, forward: 1, cblkcnt: None }
                }
            };
        }
        Ok(entries)
    }

    /// Returns true if the entry of lcluster `lcn` is the first of its pack.
    pub fn starts_pack(&self, lcn: u64) -> bool {
        self.pack_of(lcn).first == lcn
    }

    /// Appends the packs for `entries`, one for each lcluster in order. Heads must name consecutive
    /// pclusters, except a head that starts a pack.
    ///
    /// # Errors
    /// A number of entries other than the layout's; values that do not fit.
    pub fn encode(&self, entries: impl Iterator<Item = Lcluster>, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let mut entries = entries.peekable();
        let mut cursor = AddressCursor::default();
        let mut lcn = 0;
        while lcn < self.count {
            let pack = self.pack_of(lcn);
            let mut batch = [None; PACK_MAX];
            let real = (self.count - lcn).min(pack.entries as u64) as usize;
            for slot in &mut batch[..real] {
                *slot = entries.next();
                if slot.is_none() {
                    return Err(FormatError::does_not_fit("z_erofs_lcluster_index", "count", self.count));
                }
            }
            self.encode_pack(&batch[..pack.entries], &mut cursor, out)?;
            lcn += real as u64;
        }
        match entries.peek() {
            None => Ok(()),
            Some(_) => Err(FormatError::does_not_fit("z_erofs_lcluster_index", "count", self.count)),
        }
    }

    fn encode_pack(
        &self,
        batch: &[Option<Lcluster>],
        cursor: &mut AddressCursor,
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        let len = if batch.len() == PACK_MAX { 32 } else { 8 };
        let width = (len - 4) * 8 / batch.len();
        let lobits = u32::from(self.lcluster_bits.max(12));
        if let Some(Lcluster::Head { blkaddr, .. }) = batch[0]
            && blkaddr != Blkaddr(0)
        {
            *cursor = AddressCursor::default();
        }
        let base =
            if self.big { cursor.base_of_counted(batch) } else { cursor.next(batch).wrapping_sub(1) & 0xFFFF_FFFF };
        let start = out.len();
        out.resize(start + len, 0);
        let (stream, tail) = out[start..].split_at_mut(len - 4);
        for (idx, entry) in batch.iter().enumerate() {
            // A missing second entry of the last pack is PLAIN at 0: all zero.
            let Some(entry) = entry else { continue };
            let slot = if idx + 1 == batch.len() { Slot::Last } else { Slot::Inner };
            let (kind, lo) = self.fields(*entry, slot)?;
            cursor.pass(*entry)?;
            put_bits(stream, idx * width, u32::from(kind) << lobits | lo);
        }
        let base =
            u32::try_from(base).map_err(|_| FormatError::does_not_fit("z_erofs_lcluster_index", "base", base))?;
        tail.copy_from_slice(&base.to_le_bytes());
        Ok(())
    }

    /// Returns the type number and the low bits of an entry.
    fn fields(&self, entry: Lcluster, slot: Slot) -> Result<(u16, u32), FormatError> {
        let refuse = |field, value: u32| Err(FormatError::does_not_fit("z_erofs_lcluster_index", field, value.into()));
        match entry {
            Lcluster::Head { partial: true, .. } => refuse("PARTIAL_REF in a compact index", 1),
            Lcluster::Head { clusterofs, .. } if clusterofs >> self.lcluster_bits != 0 => {
                refuse("clusterofs", clusterofs)
            }
            Lcluster::Head { kind, clusterofs, .. } => Ok((kind.type_number(), clusterofs)),
            Lcluster::Nonhead { cblkcnt: Some(blocks), .. } => match blocks {
                1..=CBLKCNT_MAX if self.big => Ok((TYPE_NONHEAD, u32::from(D0_CBLKCNT) | blocks)),
                _ => refuse("delta[0] (CBLKCNT)", blocks),
            },
            Lcluster::Nonhead { forward, .. } if slot == Slot::Last => Ok((TYPE_NONHEAD, forward.min(DELTA_MAX))),
            Lcluster::Nonhead { back, .. } => Ok((TYPE_NONHEAD, back.min(DELTA_MAX))),
        }
    }
}

/// Position of an entry in its pack, which selects the distance that it stores.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slot {
    /// Not the last: stores the distance back.
    Inner,
    /// The last of its pack: stores the distance forward.
    Last,
}

/// Entries of one pack.
#[derive(Clone, Copy, Debug)]
pub struct PackEntries {
    list: [Lcluster; PACK_MAX],
}

impl PackEntries {
    /// Returns entry `idx` of the pack.
    pub fn get(&self, idx: usize) -> Lcluster {
        self.list[idx]
    }
}

/// Position among the pclusters while packs are written: gives each pack the base from which its
/// reader counts.
#[derive(Default)]
struct AddressCursor {
    /// First block of the last head's pcluster.
    head: Option<u64>,
    /// Number of blocks of that pcluster.
    blocks: u64,
}

impl AddressCursor {
    /// Returns the address of the next pcluster: the end of the last one, or, before any head, the
    /// address of the first head of `batch`.
    fn next(&self, batch: &[Option<Lcluster>]) -> u64 {
        let first_head = batch.iter().flatten().find_map(|entry| match entry {
            Lcluster::Head { blkaddr, .. } => Some(blkaddr.0),
            Lcluster::Nonhead { .. } => None,
        });
        self.head.map_or(first_head.unwrap_or(0), |head| head + self.blocks)
    }

    /// Returns the base of a pack with numbers of blocks. A number in its first entry is yet to be
    /// added to the last head.
    fn base_of_counted(&self, batch: &[Option<Lcluster>]) -> u64 {
        match batch[0] {
            Some(Lcluster::Nonhead { cblkcnt: Some(_), .. }) => self.head.unwrap_or(0),
            _ => self.next(batch),
        }
    }

    /// Moves past `entry`.
    ///
    /// # Errors
    /// A head that does not follow the pcluster before it. The address of an end marker (0) is
    /// ignored.
    fn pass(&mut self, entry: Lcluster) -> Result<(), FormatError> {
        match entry {
            Lcluster::Head { kind: HeadKind::Plain, blkaddr: Blkaddr(0), .. } => {}
            Lcluster::Head { blkaddr, .. } => {
                if self.head.is_some_and(|head| head + self.blocks != blkaddr.0) {
                    return Err(FormatError::does_not_fit("z_erofs_lcluster_index", "base", blkaddr.0));
                }
                (self.head, self.blocks) = (Some(blkaddr.0), 1);
            }
            Lcluster::Nonhead { cblkcnt: Some(blocks), .. } => self.blocks = blocks.into(),
            Lcluster::Nonhead { .. } => {}
        }
        Ok(())
    }
}

/// Returns `width` (at most 16) bits from bit `pos` of a little-endian bit string of at most 28
/// bytes.
fn bits(stream: &[u8], pos: usize, width: usize) -> u32 {
    let mut word = [0; 4];
    let from = pos / 8;
    let len = (stream.len() - from).min(4);
    word[..len].copy_from_slice(&stream[from..from + len]);
    u32::from_le_bytes(word) >> (pos % 8) & ((1 << width) - 1)
}

/// Sets the bits of `value` from bit `pos` on. They must be zero before.
fn put_bits(stream: &mut [u8], pos: usize, value: u32) {
    let from = pos / 8;
    for (byte, add) in stream[from..].iter_mut().zip((value << (pos % 8)).to_le_bytes()) {
        *byte |= add;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENSE: Advise = Advise::COMPACTED_2B_OR_EXTENTS;

    /// The worked example of the format's documentation: LZ4, 16 KiB pclusters, 100000 bytes.
    fn example() -> (CompactLayout, Vec<Lcluster>, Vec<u8>) {
        let extents = [(0u32, 0u32, 1u64, 4u32), (6, 2218, 5, 4), (13, 1263, 9, 4), (20, 2678, 13, 3)];
        let heads = [0u32, 6, 13, 20, 24];
        let mut entries = Vec::new();
        for lcn in 0..24u32 {
            let k = heads.iter().rposition(|&h| h <= lcn).unwrap();
            let (head, clusterofs, blkaddr, blocks) = extents[k];
            entries.push(if lcn == head {
                Lcluster::Head { kind: HeadKind::Head1, clusterofs, blkaddr: Blkaddr(blkaddr), partial: false }
            } else {
                let cblkcnt = (lcn == head + 1).then_some(blocks);
                Lcluster::Nonhead { back: lcn - head, forward: heads[k + 1] - lcn, cblkcnt }
            });
        }
        entries.push(Lcluster::Head { kind: HeadKind::Plain, clusterofs: 1696, blkaddr: Blkaddr(0), partial: false });
        let hex = "00100428010000000220032005000000042001200500000\
                   0aa18012a000e800460016800be5304a8003800128005a00168a70da005000000\
                   0220012010000000a006000010000000";
        let bytes = (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
        (CompactLayout::new(0x528, 25, 25, 12, DENSE | Advise::BIG_PCLUSTER_1).unwrap(), entries, bytes)
    }

    #[test]
    fn the_documented_example_encodes() {
        let (layout, entries, expected) = example();
        let mut out = Vec::new();
        layout.encode(entries.into_iter(), &mut out).unwrap();
        assert_eq!(out, expected);
        assert_eq!(layout.end_off(), 0x528 + expected.len() as u64);
    }

    #[test]
    fn the_documented_example_decodes() {
        let (layout, entries, bytes) = example();
        for (lcn, expected) in entries.iter().enumerate() {
            let pack = layout.pack_of(lcn as u64);
            let at = (pack.off - 0x528) as usize;
            let got = layout.decode_pack(pack, &bytes[at..at + pack.len]).unwrap().get(lcn - pack.first as usize);
            match (got, *expected) {
                (Lcluster::Nonhead { cblkcnt: a, back: x, .. }, Lcluster::Nonhead { cblkcnt: b, back: y, .. }) => {
                    assert_eq!((a, x), (b, y), "lcluster {lcn}");
                }
                (Lcluster::Head { clusterofs: a, .. }, Lcluster::Head { clusterofs: b, blkaddr: Blkaddr(0), .. }) => {
                    assert_eq!(a, b);
                }
                (got, expected) => assert_eq!(got, expected, "lcluster {lcn}"),
            }
        }
    }

    #[test]
    fn gaps_between_pclusters_are_refused() {
        let layout = CompactLayout::new(0, 2, 2, 12, DENSE).unwrap();
        let head =
            |addr| Lcluster::Head { kind: HeadKind::Head1, clusterofs: 0, blkaddr: Blkaddr(addr), partial: false };
        assert!(layout.encode([head(5), head(6)].into_iter(), &mut Vec::new()).is_ok());
        assert!(layout.encode([head(5), head(7)].into_iter(), &mut Vec::new()).is_err());
        assert!(layout.encode([head(5)].into_iter(), &mut Vec::new()).is_err());
        assert!(layout.encode([head(5), head(6), head(7)].into_iter(), &mut Vec::new()).is_err());
    }

    #[test]
    fn pclusters_may_lie_elsewhere_where_a_pack_starts() {
        for big in [Advise::empty(), Advise::BIG_PCLUSTER_1, Advise::BIG_PCLUSTER_2] {
            // 6 entries in small packs, 32 in large ones.
            let layout = CompactLayout::new(8, 38, 38, 12, DENSE | big).unwrap();
            let head = |blkaddr| Lcluster::Head {
                kind: HeadKind::Head1,
                clusterofs: 0,
                blkaddr: Blkaddr(blkaddr),
                partial: false,
            };
            let heads = |far: usize| (0..38).map(move |lcn| head(if lcn < far { 100 + lcn } else { 7 + lcn } as u64));
            for far in 1..38 {
                let mut packs = Vec::new();
                let encoded = layout.encode(heads(far), &mut packs);
                assert_eq!(encoded.is_ok(), layout.starts_pack(far as u64), "{far}");
                let Ok(()) = encoded else { continue };
                for (lcn, expected) in heads(far).enumerate() {
                    let pack = layout.pack_of(lcn as u64);
                    let bytes = &packs[pack.off as usize - 8..][..pack.len];
                    let got = layout.decode_pack(pack, bytes).unwrap().get(lcn - pack.first as usize);
                    assert_eq!(got, expected, "{lcn} of {far}");
                }
            }
        }
    }
}

//! Encoding of extents as byte-granular records behind a compressed inode (encoded extents, Linux 6.15).

use kiln_format::addr::align_up;
use kiln_format::zmap::{Advise, ExtentRecord, HeadKind, MAP_HEADER_LEN, MapHeader, PlenWord, RecordSize};
use kiln_format::{Algorithm, BlockBits};

use crate::error::BuildError;
use crate::layout::lcluster_index::{self, ZExtent};

/// The properties of a table of records that determine its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordShape {
    /// Number of records.
    count: u64,
    /// Size of each.
    size: RecordSize,
    /// log2 of the length of all extents but the last, if those are equal.
    lcluster_bits: u8,
    block_bits: BlockBits,
}

impl RecordShape {
    /// Returns the shape of the smallest records that can express the places of `extents`, the whole file.
    pub(crate) fn of(len: u64, extents: &[ZExtent], block_bits: BlockBits) -> Self {
        let bits = equal_bits(extents, block_bits);
        let narrow = |extent: &ZExtent| extent.pa <= u64::from(u32::MAX);
        let size = match bits {
            Some(_) if lcluster_index::lie_in_a_row(extents) => RecordSize::Four,
            Some(_) if extents.iter().all(narrow) => RecordSize::Eight,
            _ if len <= u64::from(u32::MAX) => RecordSize::Sixteen,
            _ => RecordSize::ThirtyTwo,
        };
        let lcluster_bits = bits.unwrap_or(block_bits.bits());
        Self { count: extents.len() as u64, size, lcluster_bits, block_bits }
    }

    /// Returns the bytes from the end of the body at `body_off` of its inode to the end of the table, including
    /// alignment.
    pub(crate) fn len_behind(&self, body_off: u64) -> u64 {
        self.table_off(body_off) + self.count * self.size.len() - body_off
    }

    /// Returns the offset of the first record from the start of the inode.
    fn table_off(&self, body_off: u64) -> u64 {
        let header = align_up(body_off, 8).expect("a small offset");
        align_up(header + MAP_HEADER_LEN, self.size.len()).expect("a small offset") + self.size.start_len()
    }

    /// Appends header and records of a file to `out`, which holds its inode and body so far.
    ///
    /// # Errors
    /// Extents that contradict the format, which is a bug.
    pub(crate) fn encode(
        &self,
        algorithm: Algorithm,
        extents: &[ZExtent],
        out: &mut Vec<u8>,
    ) -> Result<(), BuildError> {
        let table_off = self.table_off(out.len() as u64) as usize;
        out.resize(out.len().next_multiple_of(8), 0);
        let header = MapHeader {
            advise: Advise::empty(),
            algorithms: [0; 2],
            lcluster_bits: self.lcluster_bits,
            fragment_off: 0,
            idata_len: 0,
            extent_count: self.count,
        };
        out.extend_from_slice(&header.encode_extents(self.size, self.block_bits)?);
        out.resize(table_off - self.size.start_len() as usize, 0);
        if self.size.start_len() > 0 {
            out.extend_from_slice(&extents.first().map_or(0, |extent| extent.pa).to_le_bytes());
        }
        for extent in extents {
            let algorithm = (extent.kind != HeadKind::Plain).then_some(algorithm);
            let word = match (extent.plen, extent.partial) {
                (0, _) => PlenWord::HOLE,
                (plen, false) => PlenWord::new(plen, algorithm)?,
                (plen, true) => PlenWord::new(plen, algorithm)?.used_in_part(),
            };
            ExtentRecord { plen: word, pa: Some(extent.pa), la: Some(extent.la) }.encode(self.size, out)?;
        }
        Ok(())
    }
}

/// Returns log2 of the length that all extents but the last have, if the last is not longer.
fn equal_bits(extents: &[ZExtent], block_bits: BlockBits) -> Option<u8> {
    let (last, others) = extents.split_last()?;
    let first = extents[0].llen.max(block_bits.len() as u32);
    let unit = if others.is_empty() { first.checked_next_power_of_two()? } else { first };
    let equal = unit.is_power_of_two() && others.iter().all(|extent| extent.llen == unit) && last.llen <= unit;
    equal.then_some(unit.trailing_zeros() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BITS: BlockBits = BlockBits::DEFAULT;

    fn extents(list: &[(u32, u32, u64)]) -> Vec<ZExtent> {
        let kind = |plen, llen| if plen < llen { HeadKind::Head1 } else { HeadKind::Plain };
        let mut la = 0;
        let mut place = |llen| {
            la += u64::from(llen);
            la - u64::from(llen)
        };
        let extent = |&(llen, plen, pa): &(u32, u32, u64)| ZExtent {
            la: place(llen),
            llen,
            plen,
            pa,
            kind: kind(plen, llen),
            partial: false,
        };
        list.iter().map(extent).collect()
    }

    fn shape(list: &[(u32, u32, u64)]) -> (RecordShape, Vec<ZExtent>) {
        let extents = extents(list);
        (RecordShape::of(extents.iter().map(|extent| u64::from(extent.llen)).sum(), &extents, BITS), extents)
    }

    #[test]
    fn records_are_as_small_as_they_can_be() {
        let size = |list: &[(u32, u32, u64)]| shape(list).0.size;
        assert_eq!(size(&[(100, 50, 5000)]), RecordSize::Four);
        assert_eq!(size(&[(65536, 50, 5000), (65536, 60, 5050), (9, 9, 5110)]), RecordSize::Four);
        assert_eq!(size(&[(65536, 50, 5000), (65536, 60, 5051)]), RecordSize::Eight);
        assert_eq!(size(&[(65536, 50, 5000), (65536, 60, 1 << 32)]), RecordSize::Sixteen);
        assert_eq!(size(&[(65536, 50, 5000), (65537, 60, 5050)]), RecordSize::Sixteen);
        assert_eq!(size(&[(2048, 50, 5000), (2048, 60, 5050)]), RecordSize::Sixteen, "below a block");
        let large = [(u32::MAX, 9, 0), (5, 5, 9)];
        assert_eq!(size(&large), RecordSize::ThirtyTwo);
    }

    #[test]
    fn records_read_back() {
        let lists: [&[(u32, u32, u64)]; 4] = [
            &[(65536, 50, 5001), (65536, 65536, 5051), (9, 9, 70587)],
            &[(65536, 50, 5000), (65536, 60, 5051)],
            &[(5000, 50, 1 << 40), (70_000, 0, 0), (6, 6, 7)],
            &[(u32::MAX, 50, 1 << 40), (70_000, 0, 0), (6, 6, 7)],
        ];
        for list in lists {
            let (shape, extents) = shape(list);
            for body_off in [32, 64, 76] {
                let mut out = vec![0xEE; body_off];
                shape.encode(Algorithm::Zstd, &extents, &mut out).unwrap();
                assert_eq!(out.len() as u64, body_off as u64 + shape.len_behind(body_off as u64));
                let table = shape.table_off(body_off as u64) as usize;
                let (mut la, mut sum) = (0, extents[0].pa);
                if shape.size == RecordSize::Four {
                    assert_eq!(out[table - 8..table], extents[0].pa.to_le_bytes());
                }
                for (bytes, extent) in out[table..].chunks(shape.size.len() as usize).zip(&extents) {
                    let record = ExtentRecord::decode(bytes, shape.size);
                    assert_eq!(record.plen.plen(), extent.plen);
                    assert_eq!(record.pa.unwrap_or(sum), extent.pa);
                    assert_eq!(record.la.unwrap_or(la), la);
                    (la, sum) = (la + u64::from(extent.llen), sum + u64::from(extent.plen));
                }
            }
        }
    }
}

//! Counts of what single reads need: pclusters of aligned blocks of files, room to decode in place.

use crate::map::extent::{Extent, ExtentKind, Pcluster};
use kiln_format::{Algorithm, BlockBits};
use std::collections::BTreeMap;
use std::ops::Range;

/// LZ4 extents in pclusters of their own blocks, those that the packed inode and the metabox are made of included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InPlace {
    /// All of them.
    pub extents: u64,
    /// Those that can be decoded in the blocks of their own text: the compressed bytes are read to the end of the
    /// last of these blocks, and the text behind the extent's last byte in that block leaves them so much room that
    /// the output never overtakes the input. LZ4 asks for `compressed / 256 + 32` bytes of room. The length of
    /// the pcluster stands for the compressed length: zeros in front of a stream are counted, too. An extent that
    /// is a part of what its pcluster decodes to never fits.
    pub fit: u64,
}

impl InPlace {
    pub(super) fn add(&mut self, extent: &Extent, block_bits: BlockBits) {
        let ExtentKind::Encoded { algorithm: Algorithm::Lz4, plen, partial, inline: None, .. } = extent.kind else {
            return;
        };
        let block = block_bits.len();
        let room = (block - extent.end() % block) % block;
        let plen = u64::from(plen);
        let fits = !partial && room >= plen / 256 + 32 && plen <= extent.llen.saturating_add(room);
        self.extents += 1;
        self.fit += u64::from(fits);
    }

    pub(super) fn merge(&mut self, other: &InPlace) {
        self.extents += other.extents;
        self.fit += other.fit;
    }
}

/// Numbers of blocks by the number of pclusters that they need.
pub(super) type BlockReads = BTreeMap<u64, u64>;

/// Counter of the blocks of one file, whose extents come in order.
pub(super) struct FileBlocks {
    counts: BlockReads,
    block_bits: BlockBits,
    /// The last block that an extent has touched, if others may touch it, too; its number is in units of its length.
    block: u64,
    pclusters: Vec<Pcluster>,
}

impl FileBlocks {
    /// Returns a counter that adds to these counts.
    pub(super) fn new(counts: BlockReads, block_bits: BlockBits) -> Self {
        Self { counts, block_bits, block: 0, pclusters: Vec::new() }
    }

    /// Adds a range of the file that is in one pcluster, or in none.
    pub(super) fn add(&mut self, range: Range<u64>, pcluster: Option<Pcluster>) {
        let Some(pcluster) = pcluster else { return };
        let (bits, block_len) = (self.block_bits.bits(), self.block_bits.len());
        let mut at = range.start;
        while at < range.end {
            let block = at >> bits;
            let whole = (range.end >> bits) - block;
            if at.is_multiple_of(block_len) && whole > 0 {
                *self.counts.entry(1).or_default() += whole;
                at += whole << bits;
                continue;
            }
            if block != self.block {
                self.close();
                self.block = block;
            }
            if !self.pclusters.contains(&pcluster) {
                self.pclusters.push(pcluster);
            }
            at = range.end.min((block << bits).saturating_add(block_len));
        }
    }

    /// Counts the last block, and returns all counts.
    pub(super) fn finish(mut self) -> BlockReads {
        self.close();
        self.counts
    }

    fn close(&mut self) {
        if !self.pclusters.is_empty() {
            *self.counts.entry(self.pclusters.len() as u64).or_default() += 1;
            self.pclusters.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_bits() -> BlockBits {
        BlockBits::new(12).expect("valid")
    }

    fn at(pa: u64) -> Option<Pcluster> {
        Some(Pcluster { device: 0, inline: None, pa, plen: 4096 })
    }

    fn counted(extents: &[(Range<u64>, Option<Pcluster>)]) -> Vec<(u64, u64)> {
        let mut blocks = FileBlocks::new(BlockReads::new(), block_bits());
        extents.iter().for_each(|(range, pcluster)| blocks.add(range.clone(), *pcluster));
        blocks.finish().into_iter().collect()
    }

    #[test]
    fn blocks_on_a_border_need_both_pclusters() {
        assert_eq!(counted(&[(0..10_000, at(0)), (10_000..20_480, at(1))]), [(1, 4), (2, 1)]);
        assert_eq!(counted(&[(0..8192, at(0)), (8192..8193, at(1))]), [(1, 3)]);
    }

    #[test]
    fn a_block_of_many_extents_is_counted_once_and_each_pcluster_of_it() {
        assert_eq!(counted(&[(0..10, at(0)), (10..20, at(1)), (20..30, at(0)), (30..40, at(2))]), [(3, 1)]);
    }

    #[test]
    fn holes_need_nothing() {
        assert_eq!(counted(&[(0..5000, None), (5000..8192, at(0)), (8192..1 << 60, None)]), [(1, 1)]);
        assert_eq!(counted(&[(0..100, at(0)), (100..8192, None), (8192..8200, at(1))]), [(1, 2)]);
        assert_eq!(counted(&[]), []);
    }

    fn fits(la: u64, llen: u64, plen: u32, partial: bool) -> bool {
        let kind = ExtentKind::Encoded { algorithm: Algorithm::Lz4, device: 0, pa: 0, plen, partial, inline: None };
        let mut in_place = InPlace::default();
        in_place.add(&Extent { la, llen, kind }, block_bits());
        assert_eq!(in_place.extents, 1);
        in_place.fit == 1
    }

    #[test]
    fn an_extent_fits_if_its_last_block_has_room_for_the_margin() {
        // A pcluster of 4096 bytes asks for 48.
        assert!(fits(0, 8192 - 48, 4096, false));
        assert!(!fits(0, 8192 - 47, 4096, false));
        assert!(!fits(0, 8192, 4096, false));
        assert!(fits(100, 8192 - 148, 4096, false));
        assert!(!fits(0, 8192 - 48, 4096, true));
        // 65,536 bytes ask for 288.
        assert!(fits(4096, 131_072 - 288, 65_536, false));
        assert!(!fits(4096, 131_072 - 287, 65_536, false));
        // The pcluster must not lie over the text in front of the extent.
        assert!(!fits(4000, 4000, 4200, false));
    }

    #[test]
    fn other_algorithms_and_inline_pclusters_are_not_counted() {
        let mut in_place = InPlace::default();
        let kind =
            |algorithm, inline| ExtentKind::Encoded { algorithm, device: 0, pa: 0, plen: 4096, partial: false, inline };
        let primary = Some(crate::metadata::space::MetadataSpace::Primary);
        for kind in [ExtentKind::Hole, kind(Algorithm::Zstd, None), kind(Algorithm::Lz4, primary)] {
            in_place.add(&Extent { la: 0, llen: 8000, kind }, block_bits());
        }
        assert_eq!(in_place, InPlace::default());
    }
}

//! The reused part of the packed inode of a base.

use kiln_tree::ReusedExtent;

/// The reused part of the packed inode of a base: the front of the new packed inode.
#[derive(Default)]
pub(crate) struct ReusedPacked {
    /// Its extents, contiguous as in the new image, each with its old start in the base's packed inode.
    pub extents: Vec<(u64, ReusedExtent)>,
}

impl ReusedPacked {
    /// Returns the bytes of plain text.
    pub(crate) fn len(&self) -> u64 {
        self.extents.last().map_or(0, |(_, extent)| extent.end())
    }

    /// Returns the new place of byte `off` of the base's packed inode.
    pub(crate) fn moved(&self, off: u64) -> Option<u64> {
        let behind = self.extents.partition_point(|(was, _)| *was <= off);
        let (was, extent) = self.extents.get(behind.checked_sub(1)?)?;
        (off - was < u64::from(extent.llen)).then(|| extent.la + (off - was))
    }

    /// Returns the extents that hold `len` bytes of the base's packed inode from `off` on.
    pub(crate) fn holding(&self, off: u64, len: u64) -> impl Iterator<Item = &ReusedExtent> {
        let first = self.extents.partition_point(|(was, extent)| was + u64::from(extent.llen) <= off);
        let behind = off.saturating_add(len);
        self.extents[first..].iter().take_while(move |(was, _)| *was < behind).map(|(_, extent)| extent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(la: u64, llen: u32) -> ReusedExtent {
        ReusedExtent { la, llen, pa: 4096 + la, plen: 4096, plain: false, partial: false }
    }

    #[test]
    fn bytes_of_what_stays_move_to_the_front() {
        let extents = vec![(10_000, extent(0, 5000)), (30_000, extent(5000, 100))];
        let packed = ReusedPacked { extents };
        assert_eq!(packed.len(), 5100);
        for (off, moved) in [
            (9999, None),
            (10_000, Some(0)),
            (14_999, Some(4999)),
            (15_000, None),
            (30_000, Some(5000)),
            (30_100, None),
        ] {
            assert_eq!(packed.moved(off), moved, "{off}");
        }
        assert_eq!((ReusedPacked::default().len(), ReusedPacked::default().moved(0)), (0, None));
    }
}

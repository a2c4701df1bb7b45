//! Table of the last positions of each hash, for [`rows`](super::rows).

use super::text::prefetch;

/// Number of positions in a row.
pub(super) const ROW_LEN: usize = 32;
/// Number of bits of a hash beside each position.
const TAG_BITS: u32 = 8;

/// Entries by lines of the processor's cache.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line<T, const N: usize>([T; N]);

pub(super) struct RowTable {
    positions: Box<[Line<u32, 16>]>,
    tags: Box<[Line<u8, 64>]>,
    /// Newest entry of each row; older ones follow, around its end.
    heads: Box<[u8]>,
}

impl RowTable {
    /// Creates a table of so many positions: a power of two, at least 4 rows.
    pub(super) fn new(len: usize) -> Self {
        assert!(len.is_power_of_two() && len >= 4 * ROW_LEN);
        RowTable {
            positions: vec![Line([0; 16]); len / 16].into_boxed_slice(),
            tags: vec![Line([0; 64]); len / 64].into_boxed_slice(),
            heads: vec![0; len / ROW_LEN].into_boxed_slice(),
        }
    }

    /// Sets all positions to 0.
    pub(super) fn clear(&mut self) {
        self.positions.fill(Line([0; 16]));
    }

    /// Returns pointers to the rows, for as long as the table is borrowed.
    pub(super) fn rows(&mut self) -> Rows {
        Rows {
            positions: self.positions.as_mut_ptr().cast(),
            tags: self.tags.as_mut_ptr().cast(),
            heads: self.heads.as_mut_ptr(),
            shift: 64 - self.heads.len().ilog2(),
        }
    }
}

/// Rows of a table.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    positions: *mut u32,
    tags: *mut u8,
    heads: *mut u8,
    /// Shift of a product that leaves the row.
    shift: u32,
}

/// Row, and tag of some bytes in it.
#[derive(Clone, Copy)]
pub(super) struct RowHash {
    row: usize,
    tag: u8,
}

/// Positions of a row whose tags are equal, from the newest to the oldest.
pub(super) struct Equal {
    positions: *const u32,
    head: u32,
    /// A bit for each of them, from the head on.
    bits: u32,
}

impl Rows {
    /// Returns the hash of the lowest 4 bytes of a word.
    #[inline(always)]
    pub(super) fn hash(self, word: u64) -> RowHash {
        let product = (word << 32).wrapping_mul(0x9E37_79B1_85EB_CA87);
        RowHash { row: (product >> self.shift) as usize, tag: (product >> (self.shift - TAG_BITS)) as u8 }
    }

    /// Asks the processor to load a row.
    #[inline(always)]
    pub(super) fn load(self, RowHash { row, .. }: RowHash) {
        let first = row * ROW_LEN;
        prefetch(self.tags.wrapping_add(first));
        prefetch(self.positions.wrapping_add(first));
        prefetch(self.positions.wrapping_add(first + ROW_LEN / 2));
    }

    /// Returns the positions with this hash.
    ///
    /// # Safety
    /// The hash comes from these rows, and the table is alive.
    #[inline(always)]
    pub(super) unsafe fn equal(self, RowHash { row, tag }: RowHash) -> Equal {
        // SAFETY: a hash has less than the table's number of rows.
        unsafe {
            let (tags, head) = (self.tags.add(row * ROW_LEN), u32::from(*self.heads.add(row)));
            let halves = [equal_16(tags, tag), equal_16(tags.add(ROW_LEN / 2), tag)];
            let bits = (u32::from(halves[0]) | u32::from(halves[1]) << 16).rotate_right(head);
            Equal { positions: self.positions.add(row * ROW_LEN), head, bits }
        }
    }

    /// Enters a position in the place of the oldest one of its row.
    ///
    /// # Safety
    /// As for [`equal`](Self::equal).
    #[inline(always)]
    pub(super) unsafe fn enter(self, at: usize, RowHash { row, tag }: RowHash) {
        // SAFETY: a hash has less than the table's number of rows.
        unsafe {
            let head = &mut *self.heads.add(row);
            *head = head.wrapping_sub(1) % ROW_LEN as u8;
            let place = row * ROW_LEN + usize::from(*head);
            *self.tags.add(place) = tag;
            *self.positions.add(place) = at as u32;
        }
    }
}

impl Equal {
    /// Returns the next position.
    ///
    /// # Safety
    /// The table is alive.
    #[inline(always)]
    pub(super) unsafe fn next(&mut self) -> Option<u32> {
        if self.bits == 0 {
            return None;
        }
        let slot = (self.bits.trailing_zeros() + self.head) as usize % ROW_LEN;
        self.bits &= self.bits - 1;
        // SAFETY: a slot of the row.
        Some(unsafe { *self.positions.add(slot) })
    }
}

/// Returns a bit for each of 16 tags that is equal to `tag`.
///
/// # Safety
/// `tags` points to 16 tags.
#[inline(always)]
unsafe fn equal_16(tags: *const u8, tag: u8) -> u16 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8};
        // SAFETY: guaranteed by the caller; all processors of this kind have SSE2.
        unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_loadu_si128(tags.cast()), _mm_set1_epi8(tag as i8))) as u16 }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        // SAFETY: guaranteed by the caller.
        let tags = unsafe { &*tags.cast::<[u8; 16]>() };
        tags.iter().enumerate().fold(0, |bits, (i, &other)| bits | u16::from(other == tag) << i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_forget_the_oldest() {
        let mut table = RowTable::new(4 * ROW_LEN);
        let rows = table.rows();
        let hash = rows.hash(u64::from_le_bytes(*b"abcd...."));
        assert_eq!(hash.row, rows.hash(u64::from_le_bytes(*b"abcd,,,,")).row, "4 bytes count");
        // SAFETY: hashes of these rows, and the table is alive.
        let positions = unsafe {
            (1..=40).for_each(|at| rows.enter(at, hash));
            rows.enter(99, RowHash { tag: hash.tag ^ 1, ..hash });
            let mut equal = rows.equal(hash);
            std::iter::from_fn(|| equal.next()).collect::<Vec<_>>()
        };
        assert!(positions.into_iter().eq((10..=40).rev()));
    }
}

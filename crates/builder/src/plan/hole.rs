//! Holes of sources: selection of those worth keeping, and storage of files with holes.

use kiln_format::BlockBits;
use std::ops::Range;

use kiln_tree::{Content, ContentError};

/// Shorter holes are stored as zeros: they compress to nothing, and a cut costs more.
pub(crate) const HOLE_MIN_LEN: u64 = 64 << 10;

/// Zeros that a byte of LZ4 encodes. Kernels without partial references support nothing better: 1 GiB of hole takes
/// 4.2 MB.
pub(crate) const ZEROS_RATIO: u64 = 255;

/// Largest chunk tried, log2: beyond it the table of any file is negligible.
const CHUNK_MAX_BITS: u8 = 40;

/// The holes of a file, in order.
pub(crate) type Holes = Box<[Range<u64>]>;

/// Returns the holes of a file, in order, shrunk to whole blocks (the end of the file counts as a boundary), without
/// those below [`HOLE_MIN_LEN`]. Data is not read.
///
/// # Errors
/// Errors of the source.
pub(crate) fn find(content: &mut dyn Content, len: u64, block_bits: BlockBits) -> Result<Holes, ContentError> {
    let mut holes = Vec::new();
    let mut pos = 0;
    while pos < len {
        let data = content.next_data(pos)?.unwrap_or(len..len);
        holes.extend(hole_within(pos, data.start, len, block_bits));
        // A source that does not advance would loop for ever.
        if data.end <= pos && data.start < len {
            return Err(ContentError::Changed("extents"));
        }
        pos = data.end;
    }
    Ok(holes.into())
}

/// Returns the holes of a file whose `data` is known, as [`find`] does.
pub(crate) fn between(data: &[Range<u64>], len: u64, block_bits: BlockBits) -> Holes {
    let ends = data.iter().map(|run| run.start).chain(std::iter::once(len));
    let starts = std::iter::once(0).chain(data.iter().map(|run| run.end));
    starts.zip(ends).filter_map(|(start, end)| hole_within(start, end, len, block_bits)).collect()
}

/// Returns the hole that is kept of `start..end`, if it is long enough: whole blocks of it.
fn hole_within(start: u64, end: u64, len: u64, block_bits: BlockBits) -> Option<Range<u64>> {
    let start = start.next_multiple_of(block_bits.len());
    let end = if end >= len { len } else { block_bits.floor(end) };
    (end > start && end - start >= HOLE_MIN_LEN).then_some(start..end)
}

/// Removes the last block of a file of `len` bytes from its holes, if there is data before: some programs assume
/// that a file ends behind the last extent that has a place (fsck.erofs 1.9.4).
pub(crate) fn before_end(mut holes: Holes, len: u64, block_bits: BlockBits) -> Holes {
    if let Some(last) = holes.last_mut()
        && last.end == len
        && *last != (0..len)
    {
        last.end = block_bits.floor(len - 1);
    }
    holes
}

/// Returns the runs between the holes of a file of `len` bytes.
pub(crate) fn data_runs(len: u64, holes: &[Range<u64>]) -> impl Iterator<Item = Range<u64>> {
    let starts = std::iter::once(0).chain(holes.iter().map(|hole| hole.end));
    let ends = holes.iter().map(|hole| hole.start).chain(std::iter::once(len));
    starts.zip(ends).map(|(start, end)| start..end).filter(|run| run.start < run.end)
}

/// Returns the total length of holes.
pub(crate) fn total(holes: &[Range<u64>]) -> u64 {
    holes.iter().map(|hole| hole.end - hole.start).sum()
}

/// Returns log2 of the chunk size that takes the least space: 4 bytes for each chunk, plus all chunks that are not
/// entirely holes. Prefers the largest of equals.
pub(crate) fn chunk_bits(len: u64, holes: &[Range<u64>], block_bits: BlockBits) -> u8 {
    let cost = |bits: u8| {
        let stored = stored_chunks(len, holes, bits).into_iter();
        let stored: u64 = stored.map(|run| (run.end << bits).min(len) - (run.start << bits)).sum();
        4 * len.div_ceil(1 << bits) + stored
    };
    (block_bits.bits()..=CHUNK_MAX_BITS).min_by_key(|&bits| (cost(bits), u8::MAX - bits)).expect("not empty")
}

/// Returns the number of chunks that lie entirely in `hole`.
fn hole_chunks(hole: &Range<u64>, len: u64, bits: u8) -> u64 {
    let end = if hole.end == len { len.div_ceil(1 << bits) } else { hole.end >> bits };
    end.saturating_sub(hole.start.div_ceil(1 << bits))
}

/// Returns runs of chunks, as chunk numbers, that are not entirely holes.
pub(crate) fn stored_chunks(len: u64, holes: &[Range<u64>], bits: u8) -> Vec<Range<u64>> {
    let mut runs = Vec::new();
    let mut next = 0;
    for hole in holes {
        let count = hole_chunks(hole, len, bits);
        let start = hole.start.div_ceil(1 << bits);
        if count > 0 {
            if start > next {
                runs.push(next..start);
            }
            next = start + count;
        }
    }
    let end = len.div_ceil(1 << bits);
    if end > next {
        runs.push(next..end);
    }
    runs
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // a file with one hole is the usual case
mod tests {
    use super::*;

    const K: u64 = 1024;

    #[test]
    fn chunks_follow_the_holes() {
        let bits = BlockBits::DEFAULT;
        // One hole of a gigabyte between two blocks: small tables win.
        let holes = [4 * K..(1 << 30)];
        let len = (1 << 30) + 4 * K;
        let chosen = chunk_bits(len, &holes, bits);
        let stored: u64 = stored_chunks(len, &holes, chosen).iter().map(|r| (r.end - r.start) << chosen).sum();
        assert!(chosen > 12 && stored < 1 << 20, "2^{chosen}, {stored} bytes");
        assert_eq!(chunk_bits(1 << 20, &[], bits), CHUNK_MAX_BITS);
        // The last chunk of a file may be much shorter than the others: it saves only its own length.
        let len = (1 << 35) + 100 * K;
        let chosen = chunk_bits(len, &[100 * K..len], bits);
        assert!(stored_chunks(len, &[100 * K..len], chosen) == [0..1] && chosen < 20, "2^{chosen}");
        assert_eq!(stored_chunks(100 * K, &[0..100 * K], 12), vec![]);
        assert_eq!(stored_chunks(100 * K, &[64 * K..100 * K], 16), vec![0..1]);
        assert_eq!(stored_chunks(200 * K, &[60 * K..130 * K], 16), vec![0..1, 2..4]);
    }

    #[test]
    fn the_end_of_a_file_is_no_hole_where_it_is_wanted() {
        let before_end = |holes: &[Range<u64>], len| before_end(holes.into(), len, BlockBits::DEFAULT).to_vec();
        assert_eq!(before_end(&[64 * K..200 * K], 200 * K), [64 * K..196 * K]);
        assert_eq!(before_end(&[0..64 * K, 68 * K..200 * K + 1], 200 * K + 1), [0..64 * K, 68 * K..200 * K]);
        assert_eq!(before_end(&[0..64 * K], 200 * K), [0..64 * K]);
        assert_eq!(before_end(&[0..200 * K], 200 * K), [0..200 * K]);
        assert_eq!(before_end(&[], 200 * K), []);
    }

    #[test]
    fn runs_are_what_holes_leave() {
        let runs: Vec<_> = data_runs(100, &[0..10, 20..30, 90..100]).collect();
        assert_eq!(runs, vec![10..20, 30..90]);
        assert_eq!(data_runs(100, &[]).collect::<Vec<_>>(), vec![0..100]);
        assert_eq!(data_runs(100, &[0..100]).count(), 0);
    }
}

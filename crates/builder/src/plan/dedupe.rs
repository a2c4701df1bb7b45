//! Equal files: digests to find candidates, bytes to decide.

pub(crate) mod chunker;
pub(crate) mod input;
pub(crate) mod matching;
pub(crate) mod revalidation;
pub(crate) mod split_points;

use kiln_format::BlockBits;
use std::ops::Range;
use xxhash_rust::xxh3::Xxh3Default;

use crate::error::BuildError;
use crate::plan::dedupe::revalidation::CheckedRange;
use crate::plan::file::ReadCompat;
use crate::plan::hole::{self, Holes, data_runs};
use kiln_tree::{Content, ContentError, NodeId, Tree};

/// Bytes read at a time.
const STEP: usize = 256 << 10;

/// Returns XXH3-128 of a file's data and of its places. Zeros of holes are not hashed, so a file with holes equals
/// only files with the same holes.
///
/// # Errors
/// Errors of the source.
pub(crate) fn digest(
    content: &mut dyn Content,
    len: u64,
    holes: &[Range<u64>],
    buf: &mut Vec<u8>,
) -> Result<u128, ContentError> {
    let mut hash = Xxh3Default::new();
    for run in data_runs(len, holes) {
        if !holes.is_empty() {
            hash.update(&run.start.to_le_bytes());
        }
        for_steps(run, |off, step| {
            buf.resize(step, 0);
            content.read_exact_at(buf, off)?;
            hash.update(buf);
            Ok::<_, ContentError>(true)
        })?;
    }
    Ok(hash.digest128())
}

/// Calls `each` with offset and length of consecutive steps until it returns false. Returns whether it never did.
pub(crate) fn for_steps<E>(run: Range<u64>, mut each: impl FnMut(u64, usize) -> Result<bool, E>) -> Result<bool, E> {
    let mut off = run.start;
    while off < run.end {
        let step = (run.end - off).min(STEP as u64) as usize;
        if !each(off, step)? {
            return Ok(false);
        }
        off += step as u64;
    }
    Ok(true)
}

/// The runs of data of a file: first byte, cells.
pub(crate) type Seen = Vec<(u64, Vec<CheckedRange>)>;

/// Returns the checked ranges of two files of the same length, if they hold the same bytes.
///
/// # Errors
/// Errors of either source, with its path.
pub(crate) fn same_bytes(
    tree: &Tree,
    [a, b]: [NodeId; 2],
    len: u64,
    sparse: bool,
    block_bits: BlockBits,
) -> Result<Option<Seen>, BuildError> {
    let mut contents = [tree.open(a)?, tree.open(b)?];
    let failed = |node| move |source| BuildError::Read { path: tree.path(node), source };
    let holes = if sparse {
        let [x, y] = &mut contents;
        let holes = hole::find(&mut **x, len, block_bits).map_err(failed(a))?;
        if hole::find(&mut **y, len, block_bits).map_err(failed(b))? != holes {
            return Ok(None);
        }
        holes
    } else {
        Holes::default()
    };
    let (mut x_buf, mut y_buf, mut seen) = (Vec::new(), Vec::new(), Seen::new());
    let [x, y] = &mut contents;
    for run in data_runs(len, &holes) {
        let (start, mut cells) = (run.start, Vec::new());
        let same = for_steps(run, |off, step| {
            x_buf.resize(step, 0);
            y_buf.resize(step, 0);
            x.read_exact_at(&mut x_buf, off).map_err(failed(a))?;
            y.read_exact_at(&mut y_buf, off).map_err(failed(b))?;
            let same = x_buf == y_buf;
            cells.extend(same.then(|| CheckedRange::of(&x_buf)));
            Ok::<_, BuildError>(same)
        })?;
        if !same {
            return Ok(None);
        }
        seen.push((start, cells));
    }
    y.verify_unchanged().map_err(failed(b))?;
    Ok(Some(seen))
}

/// Finds the first file, in plan order, with the same length and digest that is read alike.
#[derive(Default)]
pub(crate) struct Candidates {
    /// 64 bits of length and digest, and the file that has them. Files of equal keys are compared byte by byte.
    keys: Vec<(u64, u32)>,
}

impl Extend<(u32, u64, u128)> for Candidates {
    /// Adds files with lengths and digests.
    fn extend<I: IntoIterator<Item = (u32, u64, u128)>>(&mut self, files: I) {
        self.keys.extend(files.into_iter().map(|(file, len, digest)| ((digest as u64).wrapping_add(len), file)));
    }
}

impl Candidates {
    /// Returns for each file the earlier one that it may equal, and the file itself, in the order of files.
    pub(crate) fn pairs(mut self, read_compat: impl Fn(u32) -> ReadCompat) -> Vec<[u32; 2]> {
        self.keys.sort_unstable();
        let mut pairs = Vec::new();
        for alike in self.keys.chunk_by(|(a, _), (b, _)| a == b) {
            for (idx, &(_, file)) in alike.iter().enumerate() {
                let first = alike[..idx].iter().find(|(_, first)| read_compat(*first) == read_compat(file));
                pairs.extend(first.map(|(_, first)| [*first, file]));
            }
        }
        pairs.sort_unstable_by_key(|[_, file]| *file);
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_format::Algorithm;

    #[test]
    fn each_file_meets_the_first_that_is_like_it() {
        let mut candidates = Candidates::default();
        candidates.extend([(0, 5, 100), (1, 5, 101), (2, 5, 100), (3, 5, 101), (4, 5, 100), (5, 5, 102), (6, 5, 100)]);
        let compat = |file| (file % 4 == 2).then_some((Algorithm::Lz4, 4096));
        assert_eq!(candidates.pairs(compat), [[1, 3], [0, 4], [2, 6]]);
    }
}

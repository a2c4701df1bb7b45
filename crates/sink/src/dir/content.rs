//! Contents of regular files, with holes restored.

use super::node::Entry;
use super::run::Extraction;
use crate::SinkError;
use crate::salvage::{is_damage, salvage};
use kiln_read::{DigestVerifier, ExtentKind, ReadError};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Size in bytes of a worker's buffer.
const BUFFER_LEN: usize = 1 << 20;

/// Alignment and size in bytes of holes in nearly all filesystems; shorter runs of zeros are
/// written.
const HOLE_LEN: usize = 4096;

/// Returns a worker's buffer.
pub(super) fn buffer() -> Vec<u8> {
    vec![0; BUFFER_LEN]
}

/// Sets the length of an empty file, which makes it one hole.
pub(super) fn set_len(run: &Extraction<'_>, entry: &Entry, file: &File) -> Result<(), SinkError> {
    match entry.inode.meta.size {
        0 => Ok(()),
        size => rustix::fs::ftruncate(file, size).map_err(run.io(&entry.path, "set the length")),
    }
}

/// Writes the data in `range` to the file and leaves the holes. `digest` is updated with the whole
/// range. Returns false if contents are lost; the digest is then meaningless.
pub(super) fn copy(
    run: &Extraction<'_>,
    (entry, file): (&Entry, &File),
    range: Range<u64>,
    buffer: &mut [u8],
    mut digest: Option<&mut DigestVerifier>,
) -> Result<bool, SinkError> {
    let (mut off, mut is_whole) = (range.start, true);
    while off < range.end {
        run.check()?;
        let stop = range.end.min(off.saturating_add(buffer.len() as u64));
        let end = match data_end(run, entry, off, stop) {
            Ok(data_end) if data_end > off => {
                let bytes = &mut buffer[..(data_end - off) as usize];
                is_whole &= copy_data(run, entry, file, off, bytes)?;
                if let Some(digest) = &mut digest {
                    digest.update(bytes);
                }
                data_end
            }
            Ok(_) => {
                let end = hole_end(run, entry, off, range.end)?;
                if let Some(digest) = &mut digest {
                    digest.update_zeros(end - off);
                }
                end
            }
            // The extents cannot be decoded, so the position of these bytes is unknown.
            Err(error) => {
                lose(run, entry, off..stop, error)?;
                is_whole = false;
                stop
            }
        };
        run.advance(end - off);
        off = end;
    }
    Ok(is_whole)
}

/// Verifies the digest of a file that was written completely. Returns true if it matches. With
/// `zeros`, a mismatch is listed as a loss of the whole file, because it does not tell which bytes
/// are wrong.
pub(super) fn verify(
    run: &Extraction<'_>,
    entry: &Entry,
    digest: Option<DigestVerifier>,
    is_whole: bool,
) -> Result<bool, SinkError> {
    let Some(digest) = digest.filter(|_| is_whole) else { return Ok(false) };
    match digest.finish() {
        Ok(()) => Ok(true),
        Err(error) if run.options.zeros => {
            run.lose(|lost| lost.add(&entry.path, 0..entry.inode.meta.size, error.at_path(&entry.path))).map(|()| false)
        }
        Err(error) => Err(error.at_path(&entry.path).into()),
    }
}

/// Updates `digest` with the bytes of `range`, which have been written.
pub(super) fn read_back(
    run: &Extraction<'_>,
    (entry, file): (&Entry, &File),
    range: Range<u64>,
    buffer: &mut [u8],
    digest: &mut DigestVerifier,
) -> Result<(), SinkError> {
    let mut off = range.start;
    while off < range.end {
        run.check()?;
        let len = usize::try_from(range.end - off).unwrap_or(usize::MAX).min(buffer.len());
        let bytes = &mut buffer[..len];
        file.read_exact_at(bytes, off).map_err(|source| {
            let path = run.target.path_of(&entry.path);
            SinkError::Io { path, action: "read what was written", source }
        })?;
        digest.update(bytes);
        off += len as u64;
    }
    Ok(())
}

/// Returns the end of the data at `off`, at most `stop`; `off` if a hole is there.
fn data_end(run: &Extraction<'_>, entry: &Entry, off: u64, stop: u64) -> Result<u64, ReadError> {
    let mut end = off;
    while end < stop {
        match extent_end(run, entry, end)? {
            (ExtentKind::Hole, _) => return Ok(end),
            (_, next) => end = next,
        }
    }
    Ok(stop)
}

/// Returns the end of the hole at `off`, at most `stop`.
fn hole_end(run: &Extraction<'_>, entry: &Entry, off: u64, stop: u64) -> Result<u64, SinkError> {
    let end = extent_end(run, entry, off).map_err(|error| error.at_path(&entry.path))?.1;
    Ok(end.min(stop))
}

/// Returns the kind and the end of the extent at `off`.
fn extent_end(run: &Extraction<'_>, entry: &Entry, off: u64) -> Result<(ExtentKind, u64), ReadError> {
    let extent = run.image.extent_at(&entry.inode, off)?;
    Ok((extent.kind, extent.end().max(off + 1))) // whatever happens, we go on
}

/// Writes the data at `off`. Returns false if some of it is lost.
fn copy_data(run: &Extraction<'_>, entry: &Entry, file: &File, off: u64, bytes: &mut [u8]) -> Result<bool, SinkError> {
    let at_path = |source| SinkError::Io { path: run.target.path_of(&entry.path), action: "write", source };
    let is_whole = match run.image.read_at(&entry.inode, bytes, off) {
        Ok(have) if have < bytes.len() => return Err(at_path(io::ErrorKind::UnexpectedEof.into())),
        Ok(_) => true,
        Err(_) => read_rest(run, entry, off, bytes)?,
    };
    if !entry.inode.meta.layout().is_compressed() {
        return file.write_all_at(bytes, off).map_err(at_path).map(|()| is_whole);
    }
    // Few compressed layouts have holes; the others store them as extents of zeros.
    for run in nonzero_runs(bytes, off) {
        file.write_all_at(&bytes[run.clone()], off + run.start as u64).map_err(at_path)?;
    }
    Ok(is_whole)
}

/// Reads the bytes at `off` after an attempt to read them as a whole has failed. Those that are
/// lost become zeros. Returns false if there are some.
fn read_rest(run: &Extraction<'_>, entry: &Entry, off: u64, bytes: &mut [u8]) -> Result<bool, SinkError> {
    let mut lost = Vec::new();
    salvage(run.image, &entry.inode, off, bytes, &mut |range, error| lost.push((range, error)));
    let is_whole = lost.is_empty();
    lost.into_iter().try_for_each(|(range, error)| lose(run, entry, range, error))?;
    Ok(is_whole)
}

/// Notes that `range` of the file is lost, or returns the error with its position if zeros may not
/// take its place.
fn lose(run: &Extraction<'_>, entry: &Entry, range: Range<u64>, error: ReadError) -> Result<(), SinkError> {
    let is_kept = run.options.zeros && is_damage(&error);
    let error = error.at_path(&entry.path).at_byte(range.start);
    if is_kept { run.lose(|lost| lost.add(&entry.path, range, error)) } else { Err(error.into()) }
}

/// Returns the parts of `bytes`, which begin at `off` of the file, without aligned blocks of zeros.
fn nonzero_runs(bytes: &[u8], off: u64) -> impl Iterator<Item = Range<usize>> {
    let first_len = HOLE_LEN - (off % HOLE_LEN as u64) as usize;
    let mut blocks = std::iter::successors(Some(0..first_len.min(bytes.len())), move |block: &Range<usize>| {
        (block.end < bytes.len()).then(|| block.end..(block.end + HOLE_LEN).min(bytes.len()))
    })
    .filter(|block| !is_zero(&bytes[block.clone()]))
    .peekable();
    std::iter::from_fn(move || {
        let mut run = blocks.next()?;
        while let Some(next) = blocks.next_if(|next| next.start == run.end) {
            run.end = next.end;
        }
        Some(run)
    })
}

fn is_zero(block: &[u8]) -> bool {
    let (words, rest) = block.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(bytes: &[u8], off: u64) -> Vec<Range<usize>> {
        nonzero_runs(bytes, off).collect()
    }

    #[test]
    fn blocks_of_zeros_are_left_out() {
        let mut bytes = vec![0; 5 * HOLE_LEN + 10];
        assert!(runs(&bytes, 0).is_empty());
        bytes[HOLE_LEN] = 1;
        bytes[3 * HOLE_LEN - 1] = 1;
        bytes[5 * HOLE_LEN + 9] = 1;
        assert_eq!(runs(&bytes, 0), [HOLE_LEN..3 * HOLE_LEN, 5 * HOLE_LEN..5 * HOLE_LEN + 10]);
        assert!(runs(&[], 7).is_empty());
        assert_eq!(runs(&[0, 1, 0], 4095).first(), Some(&(1..3)));
    }

    /// The plain definition: copying the runs into zeros restores the bytes, wherever they start.
    #[test]
    fn nothing_but_zeros_is_left_out() {
        let mut seed = 1u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            seed >> 33
        };
        for _ in 0..200 {
            let mut bytes = vec![0; (random() % 30_000) as usize];
            for _ in 0..random() % 5 {
                let len = bytes.len().max(1) as u64;
                if let Some(byte) = bytes.get_mut((random() % len) as usize) {
                    *byte = 1;
                }
            }
            let off = random() % 10_000;
            let mut copy = vec![0; bytes.len()];
            let mut last = 0;
            for run in nonzero_runs(&bytes, off) {
                assert!(run.start >= last && run.start < run.end);
                last = run.end;
                copy[run.clone()].copy_from_slice(&bytes[run]);
            }
            assert_eq!(copy, bytes);
        }
    }
}

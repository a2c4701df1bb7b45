//! Reading: the contents of files, in pieces, in the order in which they are stored. Each piece is read once.
//!
//! Readers are not processors: most of them wait for a disk or a network, so there are more of them, and they run ahead
//! of the thread that takes decisions, within a budget of bytes. A reader also finds out all that the decisions need
//! while the text is in its cache: hashes, chunks, first bytes.
//!
//! A file is stored as it was read. If it has changed since it was scanned, that is recorded; if it has another length,
//! it is an error, or, with `keep_going`, it is stored with the scanned length.

mod hashes;
pub(crate) mod look;
mod piece;

use std::iter::Fuse;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::context::Context;
use crate::error::BuildError;
use crate::format::Format;
use crate::read::look::Looker;
use kiln_parallel::ordered::{self, Costed};
use kiln_tree::Version;

pub(crate) use hashes::{Digests, Hashes};
pub(crate) use piece::{Piece, ReadRequest, Role, Unread, Wanted};

/// Cost of a piece beside its bytes, so that tiny files are bounded too.
pub(crate) const PIECE_COST: u64 = 4096;
/// Least cost of a group of pieces, but for the last one.
const GROUP_LEN: u64 = 96 << 10;
/// Number of no file.
const NO_FILE: u32 = u32::MAX;
/// Groups that the budget has room for, at least: so all readers have work.
const GROUPS_MIN: u64 = 64;

/// Reads the pieces of files ahead, and passes them to `take` in order; errors only if such files may be skipped. Of a
/// file that cannot be read, some of the pieces behind the first error are left out.
///
/// # Errors
/// The first file that cannot be read, unless such files are to be skipped; those of `take`; an interruption.
pub(crate) fn run(
    files: impl Iterator<Item = impl Iterator<Item = ReadRequest> + Send> + Send,
    context: Context<'_>,
    mut take: impl FnMut(ReadRequest, Result<Piece, Unread>) -> Result<(), BuildError>,
) -> Result<(), BuildError> {
    let Context { format, control, .. } = context;
    let failed = &AtomicU32::new(NO_FILE);
    let worker = || {
        let mut reader = Reader { looker: Looker::new(format), context };
        Ok(move |group: Vec<ReadRequest>| {
            let read = |request: ReadRequest| {
                control.check()?;
                let piece = skippable(reader.read(&request), format)?;
                if piece.is_err() {
                    failed.store(request.file, Ordering::Relaxed);
                }
                Ok::<_, BuildError>((request, piece.map_err(Unread::Failed)))
            };
            group.into_iter().map(read).collect::<Result<Vec<_>, _>>()
        })
    };
    let work = &format.work;
    let group_len = GROUP_LEN.min(work.read_ahead() / GROUPS_MIN);
    let jobs = Groups { files: files.fuse(), file: None, failed, group_len };
    ordered::run(work.readers, work.read_ahead(), jobs, worker, |group| {
        group.into_iter().try_for_each(|(request, piece)| take(request, piece))
    })
}

/// Groups of requests that one reader serves in a row: handing small files over one by one costs more than to read
/// them.
struct Groups<'a, I: Iterator> {
    files: Fuse<I>,
    /// The rest of a file.
    file: Option<I::Item>,
    /// Number of a file that cannot be read: a long one is not tried piece by piece.
    failed: &'a AtomicU32,
    group_len: u64,
}

impl<I: Iterator<Item: Iterator<Item = ReadRequest>>> Groups<'_, I> {
    fn request(&mut self) -> Option<ReadRequest> {
        loop {
            let next = self.file.as_mut().and_then(Iterator::next);
            match next.filter(|request| request.file != self.failed.load(Ordering::Relaxed)) {
                None => self.file = Some(self.files.next()?),
                request => return request,
            }
        }
    }
}

impl<I: Iterator<Item: Iterator<Item = ReadRequest>>> Iterator for Groups<'_, I> {
    type Item = Costed<Vec<ReadRequest>>;

    fn next(&mut self) -> Option<Self::Item> {
        let cost_of = |request: &ReadRequest| PIECE_COST + (request.range.end - request.range.start);
        let first = self.request()?;
        let (mut cost, mut group) = (cost_of(&first), vec![first]);
        while cost < self.group_len {
            let Some(request) = self.request() else { break };
            cost += cost_of(&request);
            group.push(request);
        }
        Some(Costed { job: group, cost })
    }
}

/// Turns an input's error into a value if inputs may be skipped.
pub(crate) fn skippable<T>(
    outcome: Result<T, BuildError>,
    format: &Format,
) -> Result<Result<T, BuildError>, BuildError> {
    match outcome {
        Err(error) if !(format.work.keep_going && error.is_input()) => Err(error),
        outcome => Ok(outcome),
    }
}

/// Reads a piece again, whose text was dropped.
///
/// # Errors
/// A file that cannot be read.
pub(crate) fn again(request: &ReadRequest, context: Context<'_>) -> Result<Piece, BuildError> {
    let mut reader = Reader { looker: Looker::new(context.format), context };
    reader.read(request)
}

/// Reads pieces; one for each thread.
struct Reader<'a> {
    looker: Looker,
    context: Context<'a>,
}

impl Reader<'_> {
    fn read(&mut self, request: &ReadRequest) -> Result<Piece, BuildError> {
        let format = self.context.format;
        let wanted = request.wanted;
        let all = (request.range.end - request.range.start) as usize;
        let len = if wanted.is_estimate && !wanted.digest && !wanted.chunks { look::least(all) } else { all };
        let mut text = Vec::with_capacity(room(len, format));
        text.resize(len, 0);
        let changed = fill(request, &mut text, self.context)?;
        let piece = self.looker.piece(request.clone(), text);
        let text = if wanted.is_estimate { Arc::default() } else { piece.text };
        Ok(Piece { text, changed, ..piece })
    }
}

/// Length in bytes from which on text is not moved to fill its last block. A block's room for each small file would be
/// more than their text.
const LONG_LEN: usize = 64 << 10;

/// Returns the room in bytes for `len` bytes of text: with that to fill the last block if they are long.
pub(crate) fn room(len: usize, format: &Format) -> usize {
    if len < LONG_LEN { len } else { len.next_multiple_of(format.block_bits.len() as usize) }
}

/// Fills `text` from the start of the piece on. Returns the change of a file that is stored nevertheless.
fn fill(request: &ReadRequest, text: &mut [u8], context: Context<'_>) -> Result<Option<BuildError>, BuildError> {
    let Context { tree, format, .. } = context;
    let failed = |source| BuildError::Read { path: tree.path(request.node), source };
    let read = |version, text: &mut [u8]| {
        let mut content = tree.open_version(request.node, version)?;
        content.read_exact_at(text, request.range.start).map_err(failed)?;
        Ok::<_, BuildError>(content)
    };
    let is_stored = |change: &BuildError| change.is_change() && (format.work.keep_going || !change.is_resize());
    let change = match read(request.version, text) {
        Ok(mut content) => match content.verify_unchanged().map_err(failed) {
            Ok(()) => return Ok(None),
            // It changed while it was read: the bytes are those of one reading.
            Err(change) if is_stored(&change) => return Ok(Some(change)),
            Err(error) => return Err(error),
        },
        Err(change) if is_stored(&change) => change,
        Err(error) => return Err(error),
    };
    match read(Version::Changed, text)?.verify_unchanged().map_err(failed) {
        Ok(()) => Ok(Some(change)),
        // Zeros stand for bytes that are missing.
        Err(shorter) if is_stored(&shorter) => Ok(Some(if change.is_resize() { change } else { shorter })),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_tree::NodeId;
    use std::ops::Range;

    fn request(file: u32, range: Range<u64>) -> ReadRequest {
        let role = Role::Data { is_first: true, is_last: false };
        let (node, run) = (NodeId(file), range.clone());
        ReadRequest { file, node, range, run, version: Version::Scanned, role, wanted: Wanted::default() }
    }

    /// A file of an image or archive may claim any length.
    #[test]
    fn a_file_that_cannot_be_read_is_not_tried_to_its_end() {
        let failed = &AtomicU32::new(NO_FILE);
        let piece = |(file, at): (u32, u64)| request(file, at << 22..(at + 1) << 22);
        let files = [(0, 1 << 40), (1, 1)].map(|(file, count)| (0..count).map(move |at| piece((file, at))));
        let mut groups = Groups { files: files.into_iter().fuse(), file: None, failed, group_len: GROUP_LEN };
        let mut next = || Some(groups.next()?.job.iter().map(|request| request.file).collect::<Vec<_>>());
        assert_eq!((next(), next()), (Some(vec![0]), Some(vec![0])));
        failed.store(0, Ordering::Relaxed);
        assert_eq!((next(), next()), (Some(vec![1]), None));
    }
}

//! Reading: the contents of files, in pieces, in the order in which they are stored. Each piece is read once.
//!
//! Readers are not processors: most of them wait for a disk or a network, so there are more of them, and they run ahead
//! of the thread that takes decisions, within a budget of bytes. A reader also finds out all that the decisions need
//! while the text is in its cache: hashes, chunks, first bytes.
//!
//! A file is stored as it was read. If it has changed since it was scanned, that is recorded; if it has another length,
//! it is an error, or, with `keep_going`, it is stored with the scanned length.

mod look;

use std::ops::Range;
use std::sync::Arc;

use crate::context::Context;
use crate::error::BuildError;
use crate::format::Format;
use crate::plan::dedupe::matching::Chunk;
use crate::plan::fragments::Head;
use kiln_parallel::ordered::{self, Costed};
use kiln_tree::{NodeId, Version};
use look::Looker;

/// Cost of a piece beside its bytes, so that tiny files are bounded too.
pub(crate) const PIECE_COST: u64 = 4096;

/// The part that a piece has in the storage of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Data of a file that is stored anew.
    Data {
        /// It is the first piece of the file.
        is_first: bool,
        /// It is the last piece of the file.
        is_last: bool,
    },
    /// Text between extents that are reused from a base.
    Gap {
        /// The next text begins at a block boundary, or there is none.
        ends_stream: bool,
    },
    /// The last bytes of an uncompressed file, which go beside its inode.
    Tail,
}

/// Facts to be found out about a piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Its digest, to find equal files.
    pub digest: bool,
    /// The SHA-256 of the file, of which the piece is all.
    pub sha256: bool,
    /// The first bytes of the file.
    pub head: bool,
    /// Its chunks.
    pub chunks: bool,
    /// The entropy of its first bytes, if they do not compress.
    pub entropy: bool,
    /// Only first bytes are read, and the digest if that is wanted. Nothing is stored.
    pub is_estimate: bool,
}

/// A piece to be read.
#[derive(Clone, Debug)]
pub(crate) struct ReadRequest {
    /// Index of the file in the plan.
    pub file: u32,
    /// Its node.
    pub node: NodeId,
    /// Bytes of the file.
    pub range: Range<u64>,
    /// The stretch between holes that has these bytes.
    pub run: Range<u64>,
    /// Version of the contents.
    pub version: Version,
    /// Part that the piece has in the storage of its file.
    pub role: Role,
    /// Facts to be found out.
    pub wanted: Wanted,
}

/// Text of a piece, and facts about it.
pub(crate) struct Piece {
    /// The request.
    pub request: ReadRequest,
    /// The bytes; none if only facts were wanted.
    pub text: Arc<Vec<u8>>,
    /// BLAKE3 of the bytes.
    pub digest: Option<[u8; 32]>,
    /// SHA-256 of the file.
    pub sha256: Option<[u8; 32]>,
    /// First bytes of a file that may go into the packed stream.
    pub head: Option<Head>,
    /// Chunks.
    pub chunks: Box<[Chunk]>,
    /// Entropy of the first bytes in bits per byte, if they do not compress.
    pub entropy: Option<f64>,
    /// A change since the scan.
    pub changed: Option<BuildError>,
}

/// Reads pieces ahead, and passes them to `take` in order; errors only if such files may be skipped.
///
/// # Errors
/// The first file that cannot be read, unless such files are to be skipped; those of `take`; an interruption.
pub(crate) fn run(
    requests: impl Iterator<Item = ReadRequest> + Send,
    context: Context<'_>,
    mut take: impl FnMut(ReadRequest, Result<Piece, BuildError>) -> Result<(), BuildError>,
) -> Result<(), BuildError> {
    let Context { format, control, .. } = context;
    let jobs = requests.map(|job| Costed { cost: PIECE_COST + (job.range.end - job.range.start), job });
    let worker = || {
        let mut reader = Reader { looker: Looker::new(format), context };
        Ok(move |request: ReadRequest| {
            control.check()?;
            let piece = skippable(reader.read(&request), format)?;
            Ok::<_, BuildError>((request, piece))
        })
    };
    let work = &format.work;
    ordered::run(work.readers, work.read_ahead(), jobs, worker, |(request, piece)| take(request, piece))
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
        // With room to fill the last block, so that nothing has to be moved then.
        let mut text = Vec::with_capacity(len.next_multiple_of(format.block_bits.len() as usize));
        text.resize(len, 0);
        let changed = fill(request, &mut text, self.context)?;
        let seen = self.looker.look(&text, wanted);
        if wanted.is_estimate {
            text = Vec::new();
        }
        Ok(Piece {
            request: request.clone(),
            text: Arc::new(text),
            digest: seen.digest,
            sha256: seen.sha256,
            head: seen.head,
            chunks: seen.chunks,
            entropy: seen.entropy,
            changed,
        })
    }
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
    read(Version::Changed, text)?;
    Ok(Some(change))
}

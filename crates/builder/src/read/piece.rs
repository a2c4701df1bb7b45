//! Pieces of files: what is asked for, and what is there when it was read.

use std::ops::Range;
use std::sync::Arc;

use super::hashes::{Digests, Hashes};
use crate::error::BuildError;
use crate::plan::dedupe::matching::Chunk;
use crate::plan::fragments::Head;
use kiln_tree::{NodeId, Version};

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
    /// Digests of the file that are stored or compared.
    pub hashes: Hashes,
    /// The piece is all of the file, and these digests are found out with it.
    pub is_whole: bool,
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
    /// Digests of the file, if the piece is all of it.
    pub digests: Digests,
    /// First bytes of a file that may go into the packed stream.
    pub head: Option<Head>,
    /// Chunks.
    pub chunks: Box<[Chunk]>,
    /// Entropy of the first bytes in bits per byte, if they do not compress.
    pub entropy: Option<f64>,
    /// A change since the scan.
    pub changed: Option<BuildError>,
}

/// Reason why a piece has no text.
pub(crate) enum Unread {
    /// The file cannot be read.
    Failed(BuildError),
    /// The source cannot give it, and tells of that itself.
    Told,
}

impl Piece {
    /// Returns the piece without text and chunks.
    pub(crate) fn without_text(self) -> Self {
        Self { text: Arc::default(), chunks: Box::default(), ..self }
    }

    /// Returns the piece with a text.
    pub(crate) fn with_text(self, text: Vec<u8>) -> Self {
        Self { text: Arc::new(text), ..self }
    }
}

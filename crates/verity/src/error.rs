//! Errors of hash trees.

use kiln_digest::Digest;
use kiln_output::OutputError;
use kiln_read::FormatError;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

/// The reason why a hash tree cannot be made or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerityError {
    /// A field of the superblock is damaged, hostile or unknown.
    #[error("hash tree: {0}")]
    Superblock(#[from] FormatError),
    /// Data or tree end before the superblock says so.
    #[error("{part} ends at byte {len}, but {needed} bytes are needed{}", hint(part))]
    TooShort {
        /// The data, or the hash tree.
        part: Part,
        /// Length of its source.
        len: u64,
        /// Length that the superblock asks for.
        needed: u64,
    },
    /// The tree would lie in the data that it covers.
    #[error("the hash tree begins at byte {tree_off}, inside the data, which end at byte {data_len}")]
    Overlap {
        /// Byte offset of the superblock of the tree.
        tree_off: u64,
        /// Length of the covered data.
        data_len: u64,
    },
    /// The root hash is of another algorithm than the tree.
    #[error("the root hash has {given} bytes, but those of {name} have {expected}")]
    RootHashLength {
        /// The tree's algorithm.
        name: &'static str,
        /// Bytes of its digests.
        expected: usize,
        /// Bytes of the root hash.
        given: usize,
    },
    /// Not one root hash for the image and for each of its extra devices, or more trees than these.
    #[error("{} and {} for {}", counted(*hashes, "root hash", "es"), counted(*trees, "hash tree", "s"), parts(*expected))]
    RootHashCount {
        /// The image and its extra devices.
        expected: usize,
        /// Root hashes that were given.
        hashes: usize,
        /// Trees that were given.
        trees: usize,
    },
    /// There is no tree.
    #[error("no hash tree, neither behind nor beside it")]
    NoTree,
    /// A block has another digest than the tree, or the root hash, says.
    #[error("{0}")]
    Mismatch(Box<Mismatch>),
    /// The rest of the last hash block of a level is not zero: the number of data blocks may be a lie.
    #[error("hash block of level {level} at byte {off}: not zero behind its last digest")]
    Spare {
        /// Level of the block.
        level: u32,
        /// Byte offset in the source of the tree.
        off: u64,
    },
    /// The levels of a stored tree do not fit each other.
    #[error("the levels of the hash tree do not fit each other: it is damaged")]
    Inconsistent,
    /// A block of the data was never hashed.
    #[error("data block {block} was not hashed")]
    MissingBlock {
        /// The first such block.
        block: u64,
    },
    /// The data are too long for the memory.
    #[error("no memory for a hash tree of {len} bytes")]
    Memory {
        /// Length of the tree.
        len: u64,
    },
    /// The bytes of data or tree could not be read.
    #[error("cannot read {part} from byte {off} on: {source}")]
    Read {
        /// The data, or the hash tree.
        part: Part,
        /// First byte of the read that failed.
        off: u64,
        /// Error of the source.
        source: io::Error,
    },
    /// A file beside the image says nothing usable.
    #[error("{}: {reason}", path.display())]
    Sidecar {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A file beside the image cannot be written.
    #[error("{0}")]
    Output(#[from] OutputError),
    /// The caller has asked to stop.
    #[error("interrupted")]
    Interrupted,
}

fn counted(count: usize, name: &str, plural: &str) -> String {
    format!("{count} {name}{}", if count == 1 { "" } else { plural })
}

/// Names an image and its extra devices, by the number of all of them.
fn parts(count: usize) -> String {
    match count {
        0 | 1 => "an image: one root hash is needed".to_owned(),
        _ => format!("an image and {}: {count} root hashes are needed", counted(count - 1, "extra device", "s")),
    }
}

fn hint(part: &Part) -> &'static str {
    match part {
        Part::Data => ": the image was cut, or the tree is that of another one",
        Part::Tree => ": it was cut",
    }
}

impl VerityError {
    /// Returns true if image or tree are damaged, or are not those of the root hash.
    pub fn is_of_image(&self) -> bool {
        matches!(
            self,
            VerityError::Superblock(_)
                | VerityError::TooShort { .. }
                | VerityError::Overlap { .. }
                | VerityError::Mismatch(_)
                | VerityError::Spare { .. }
        )
    }
}

/// Part of a verified image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The covered data.
    Data,
    /// The hash tree.
    Tree,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Data => "the data",
            Part::Tree => "the hash tree",
        })
    }
}

/// A block that has another digest than expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Level of a hash block, 0 for digests of data; `None` for a block of data.
    pub level: Option<u32>,
    /// Byte offset in the source of the data or of the tree.
    pub off: u64,
    /// Data that it covers.
    pub covers: Range<u64>,
    /// Digest that the block above, or the root hash, asks for.
    pub expected: Digest,
    /// Digest of the block.
    pub found: Digest,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { level, off, covers, expected, found } = self;
        match level {
            None => write!(f, "data block at byte {off}")?,
            Some(level) => {
                let last = covers.end.saturating_sub(1);
                write!(f, "hash block of level {level} at byte {off}, over the data bytes {} to {last}", covers.start)?;
            }
        }
        write!(f, ": wrong digest: expected {expected}, found {found}")
    }
}

impl std::error::Error for Mismatch {}

impl From<VerityError> for io::Error {
    fn from(error: VerityError) -> Self {
        match error {
            VerityError::Read { source, .. } => source,
            VerityError::Mismatch(mismatch) => io::Error::new(io::ErrorKind::InvalidData, *mismatch),
            VerityError::TooShort { .. } => io::Error::new(io::ErrorKind::UnexpectedEof, error),
            error => io::Error::other(error),
        }
    }
}

//! Report of a check.

use crate::error::ReadError;
use kiln_format::{Incompat, Nid};
use std::fmt;

/// Report of a check.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CheckReport {
    /// Inodes that were checked, the packed inode and the metabox included.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Extents of their contents. A fragment is none of its own: it is part of an extent of the
    /// packed inode.
    pub extents: u64,
    /// Length in bytes of the contents of files, directories and symbolic links, each inode once,
    /// holes included. The packed inode and the metabox only hold contents of others.
    pub bytes: u64,
    /// The part of `bytes` that is contents of regular files.
    pub file_bytes: u64,
    /// The part of `file_bytes` that was compared with stored digests, and is right.
    pub digested_bytes: u64,
    /// Files of a composefs image whose contents are objects outside of it: they are no part of
    /// `file_bytes`.
    pub objects: u64,
    /// True if the superblock has a checksum, which was compared. No other metadata of the format
    /// has one.
    pub has_checksum: bool,
    /// Digests that were not compared, because the contents are far longer than what the image has
    /// of them.
    pub unverified_digests: u64,
    /// Problems; at most 1000 of them.
    pub problems: Vec<CheckProblem>,
    /// Number of problems.
    pub problem_count: u64,
    /// Facts that are no errors.
    pub notes: Vec<Note>,
}

/// Something wrong in an image.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckProblem {
    /// Path of the file it is about; empty where it is about the image.
    pub path: Vec<u8>,
    /// Inode it is about.
    pub nid: Option<Nid>,
    /// Defect.
    pub error: Finding,
}

/// Defect.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Finding {
    /// Something cannot be read.
    Unreadable(ReadError),
    /// A field contradicts the rest of the image.
    Field {
        /// The kernel's name of the field.
        field: &'static str,
        /// Its value.
        stored: u64,
        /// Expected value.
        expected: u64,
    },
    /// An entry of a directory.
    Entry {
        /// The entry's name.
        name: Vec<u8>,
        /// Reason why it is wrong.
        reason: &'static str,
    },
    /// An extended attribute.
    Xattr {
        /// The attribute's name.
        name: Vec<u8>,
        /// Reason why it is wrong.
        reason: &'static str,
    },
    /// The digest that is stored for a file's contents.
    Digest(&'static str),
    /// Bytes with two meanings.
    Overlap {
        /// Device number, `None` for the metabox.
        device: Option<u16>,
        /// First range: kind, byte address, length in bytes.
        first: (&'static str, u64, u64),
        /// Range that begins before its end.
        second: (&'static str, u64, u64),
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Unreadable(error) => error.fmt(f),
            Finding::Field { field, stored, expected } => write!(f, "{field} = {stored}, should be {expected}"),
            Finding::Entry { name, reason } => write!(f, "entry {}: {reason}", name.escape_ascii()),
            Finding::Xattr { name, reason } => write!(f, "attribute {}: {reason}", name.escape_ascii()),
            Finding::Digest(reason) => write!(f, "stored digest: {reason}"),
            Finding::Overlap { device, first, second } => {
                let (kind, at, len) = first;
                write!(f, "{kind} ({len} bytes at byte {at}) overlaps ")?;
                let (kind, at, len) = second;
                write!(f, "{kind} ({len} bytes at byte {at})")?;
                match device {
                    Some(0) => Ok(()),
                    Some(device) => write!(f, " on device {device}"),
                    None => write!(f, " in the metabox"),
                }
            }
        }
    }
}

impl fmt::Display for CheckProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.escape_ascii();
        match (&self.error, self.nid) {
            // Such an error names its place itself.
            (Finding::Unreadable(error), _) => error.fmt(f),
            (error, Some(nid)) if self.path.is_empty() => write!(f, "nid {nid}: {error}"),
            (error, Some(nid)) => write!(f, "{path} (nid {nid}): {error}"),
            (error, None) if self.path.is_empty() => write!(f, "superblock: {error}"),
            (error, None) => write!(f, "{path}: {error}"),
        }
    }
}

/// Something that is no error, because the kernel reads the image nevertheless.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Note {
    /// A feature that is used but not announced. Linux 6.18 reads the image; a kernel that is older
    /// than the feature misreads it instead of refusing it.
    Unannounced {
        /// The bit that should be set.
        missing: Incompat,
        /// Use that needs it.
        because: &'static str,
        /// The first inode that uses it.
        path: Vec<u8>,
        /// Its number.
        nid: Nid,
    },
    /// There are too many extents to remember where each of them lies.
    OverlapsUnknown {
        /// Ranges that were remembered, and compared with each other.
        compared: usize,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Unannounced { missing, because, path, nid } => {
                let mut names = missing.iter_names().map(|(name, _)| name);
                let (path, bit) = (path.escape_ascii(), names.next().unwrap_or("a bit"));
                write!(f, "{path} (nid {nid}): feature_incompat lacks {bit}: {because}; older kernels would misread it")
            }
            Note::OverlapsUnknown { compared } => {
                write!(f, "more extents than the image has room for: overlaps were looked for among {compared} only")
            }
        }
    }
}

//! The storage of each regular file, decided for it alone.

use kiln_codec::Spec;
use kiln_format::Algorithm;
use std::ops::Range;

use crate::format::Format;
use crate::plan::hole::{self, Holes};
use crate::plan::text::TextSource;
use kiln_tree::NodeId;

/// A regular file.
#[derive(Clone, Debug)]
pub(crate) struct FilePlan {
    /// Its node.
    pub node: NodeId,
    /// Size in bytes.
    pub len: u64,
    /// Bytes of its inode with its xattrs: the most of all inodes that share its data, since each has its own copy
    /// of the tail.
    pub inode_len: u32,
    /// Its storage.
    pub storage: Storage,
    /// Its compression, if that gains.
    pub compression: Option<Spec>,
}

// There are as many as files.
const _: () = assert!(size_of::<FilePlan>() <= 48);

/// Holes of a file, as they are stored.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileHoles {
    /// Those that take no space.
    pub kept: Holes,
    /// Bytes of those that are stored as zeros.
    pub filled_bytes: u64,
}

impl FilePlan {
    /// Decides how a file with these holes is stored alone.
    pub(crate) fn with_holes(&mut self, holes: Holes, format: &Format) -> FileHoles {
        self.storage = storage(self, &holes, format);
        match self.storage {
            Storage::Compressed { sparse: true } if format.compression.encoded_extents => {
                FileHoles { kept: hole::before_end(holes, self.len, format.block_bits), filled_bytes: 0 }
            }
            Storage::Chunks { sparse: true, .. } | Storage::Compressed { sparse: true } => {
                FileHoles { kept: holes, filled_bytes: 0 }
            }
            _ => FileHoles { kept: Holes::default(), filled_bytes: hole::total(&holes) },
        }
    }

    /// Returns the algorithm that compresses it in the base, if it is reused from there.
    pub(crate) fn reused_algorithm(&self) -> Option<Algorithm> {
        match self.storage {
            Storage::Reused { algorithm, .. } => algorithm,
            _ => None,
        }
    }
}

/// The storage of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    /// It cannot be read and is left out.
    LeftOut,
    /// It has no bytes.
    Empty,
    /// Like the file with this index, byte for byte.
    Duplicate(u32),
    /// In the packed stream, of which it is a member.
    Fragment,
    /// Uncompressed, contiguous.
    Flat,
    /// Uncompressed, in chunks of which some are holes.
    Chunks {
        /// log2 of the chunk size.
        chunk_bits: u8,
        /// It has holes.
        sparse: bool,
    },
    /// In chunks, on devices that hold it already.
    Placed {
        /// log2 of the chunk size.
        chunk_bits: u8,
    },
    /// As the base stores it.
    Reused {
        /// Algorithm that compresses it, if any.
        algorithm: Option<Algorithm>,
        /// Bytes at its end that are stored again, beside the inode.
        tail_len: u16,
    },
    /// Compressed; a file of one part may still turn out flat.
    Compressed {
        /// It has holes, stored as references to one pcluster of zeros.
        sparse: bool,
    },
}

/// Decides how a file with bytes of its own is stored alone.
pub(crate) fn storage(file: &FilePlan, holes: &[Range<u64>], format: &Format) -> Storage {
    let (len, block_bits, sparse) = (file.len, format.block_bits, !holes.is_empty());
    let chunks = || {
        let chunk_bits = format.layout.chunk_bits.unwrap_or_else(|| hole::chunk_bits(len, holes, block_bits));
        Storage::Chunks { chunk_bits, sparse }
    };
    let plain = || match format.layout.chunk_bits {
        None if !sparse || !format.holes.plain => Storage::Flat,
        _ => chunks(),
    };
    match (file.compression, sparse) {
        (None, _) => plain(),
        (Some(_), false) => Storage::Compressed { sparse },
        (Some(_), true) => {
            // Before partial references, zeros are compressed like anything else.
            let are_shared = format.holes.compressed;
            let zeros_len = if are_shared { 0 } else { hole::total(holes) / hole::ZEROS_RATIO };
            // An index has 8 bytes for each block, even in holes: too much for a file that is nearly all holes.
            let index_len = block_bits.blocks_for(len) * 8;
            if format.holes.plain && index_len + zeros_len > (len - hole::total(holes)) / 2 {
                chunks()
            } else {
                Storage::Compressed { sparse: are_shared }
            }
        }
    }
}

/// Returns the compression of a source of text, if it has one; `packed` is that of the packed stream.
pub(crate) fn compression_of(source: TextSource, files: &[FilePlan], packed: Option<Spec>) -> Option<Spec> {
    match source {
        TextSource::File(file) => files[file as usize].compression,
        TextSource::Fragments => packed,
    }
}

/// The compression of a file as readers see it: files that share data agree in it.
pub(crate) type ReadCompat = Option<(Algorithm, u32)>;

/// Returns a compression as readers see it.
pub(crate) fn read_compat(compression: Option<Spec>) -> ReadCompat {
    compression.map(|spec| (spec.method.algorithm(), spec.pcluster_len))
}

//! The map of a compressed stream: an lcluster index or encoded extents.

use kiln_format::Algorithm;
use kiln_format::inode::IndexKind;

use crate::error::BuildError;
use crate::layout::encoded_extents::RecordShape;
use crate::layout::lcluster_index::{self, IndexShape, ZExtent};

/// Shape of the map of a compressed stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapShape {
    /// An index of lclusters.
    Index(IndexShape),
    /// Encoded extents.
    Records(RecordShape),
}

impl MapShape {
    /// Returns the bytes from the end of the body at `body_off` of its inode to the end of the map, including
    /// alignment.
    ///
    /// # Errors
    /// Block sizes that the compact index cannot have.
    pub(crate) fn len_behind(&self, body_off: u64) -> Result<u64, BuildError> {
        match self {
            MapShape::Index(shape) => lcluster_index::len_behind(body_off, *shape),
            MapShape::Records(shape) => Ok(shape.len_behind(body_off)),
        }
    }

    /// Appends the map to `out`, which holds the inode and its body so far.
    ///
    /// # Errors
    /// Extents that contradict the format, which is a bug.
    pub(crate) fn encode(
        &self,
        algorithm: Algorithm,
        extents: &[ZExtent],
        out: &mut Vec<u8>,
    ) -> Result<(), BuildError> {
        match self {
            MapShape::Index(shape) => lcluster_index::encode(*shape, algorithm, extents, out),
            MapShape::Records(shape) => shape.encode(algorithm, extents, out),
        }
    }

    /// Returns the inode's name for this kind of map.
    pub(crate) fn index_kind(&self) -> IndexKind {
        match self {
            MapShape::Index(shape) if !shape.is_full() => IndexKind::Compact,
            _ => IndexKind::Full,
        }
    }
}

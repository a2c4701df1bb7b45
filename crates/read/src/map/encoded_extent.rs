//! Extents that are encoded in pclusters.

use super::extent::{Extent, ExtentKind, Pcluster};
use crate::error::ReadError;
use kiln_format::Algorithm;
use kiln_format::compr_cfg::{EXTENT_MAX_LEN, PCLUSTER_MAX_LEN};

/// For a front of an extent, the same share of its pcluster is read, and one part in this many of
/// the pcluster more, rounded up to units of [`FRONT_UNIT`] bytes.
const FRONT_MARGIN: usize = 8;
const FRONT_UNIT: usize = 4096;

/// Everything that determines the bytes of an encoded extent: equal values decode to equal bytes.
/// The key of the cache of decoded extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EncodedExtent {
    pub pcluster: Pcluster,
    pub algorithm: Algorithm,
    /// The pcluster decodes to more than the extent.
    pub partial: bool,
    pub llen: u32,
}

impl EncodedExtent {
    /// Returns the encoded extent if it is within the limits of kernels, which bound the decoders'
    /// buffers.
    pub(crate) fn of(extent: &Extent) -> Result<Self, ReadError> {
        let ExtentKind::Encoded { algorithm, device, pa, plen, partial, inline } = extent.kind else {
            return Err(ReadError::Internal { what: "decoding an extent that is not encoded".into() });
        };
        let unsupported = |field, value, reason| Err(ReadError::unsupported("pcluster", pa, field, value, reason));
        if plen as usize > PCLUSTER_MAX_LEN {
            return unsupported("plen", plen.into(), "pclusters have at most 1 MiB");
        }
        if extent.llen > EXTENT_MAX_LEN as u64 {
            return unsupported("llen", extent.llen, "extents have at most 12 MiB");
        }
        let pcluster = Pcluster { device, inline, pa, plen };
        Ok(Self { pcluster, algorithm, partial, llen: extent.llen as u32 })
    }

    /// Returns the bytes from the start of its pcluster on that are fetched for the first `len`
    /// bytes of the extent.
    pub(crate) fn fetched_for(&self, len: usize) -> u64 {
        match self.front_len(len) {
            0 => self.pcluster.plen.into(),
            front_len => front_len as u64,
        }
    }

    /// Returns the length of the extent in bytes.
    pub(crate) fn len(&self) -> usize {
        self.llen as usize
    }

    /// Returns the number of bytes of the pcluster that the first `len` bytes of the extent
    /// probably take, if the rest of the pcluster is worth leaving out; else 0. Only for LZ4: the
    /// other algorithms decode in large blocks, or so slowly that reading does not matter.
    pub(crate) fn front_len(&self, len: usize) -> usize {
        let plen = self.pcluster.plen as usize;
        if self.algorithm != Algorithm::Lz4 || self.pcluster.inline.is_some() {
            return 0;
        }
        let front_len = (plen * len / self.len() + plen / FRONT_MARGIN).next_multiple_of(FRONT_UNIT);
        if front_len + FRONT_UNIT < plen { front_len } else { 0 }
    }
}

//! The front of a patch: magic, version, and length and checksum of the stored header.

use std::io::Read;
use std::ops::RangeInclusive;

use crate::error::{DeltaError, PatchDefect};
use crate::format::wire::Fields;

/// First bytes of a patch.
const MAGIC: [u8; 8] = *b"\x8Akilnpat";
/// Versions of patches that this program writes and applies.
const VERSIONS: RangeInclusive<u32> = 1..=2;
/// Length in bytes of the front.
pub(crate) const FRONT_LEN: usize = 8 + 4 + 8 + 8;
/// Maximum length of a header in bytes, both stored and decompressed.
pub(crate) const HEADER_MAX_LEN: u64 = 8 << 20;

/// Version from which on a header describes the hash tree of the new image. Patches without one stay readable for
/// programs that know version 1 only.
pub(crate) const TREE_VERSION: u32 = 2;

/// Length and checksum of a header as it is stored.
pub(crate) struct PatchFront {
    /// Version of the patch.
    pub version: u32,
    /// Length in bytes, at most [`HEADER_MAX_LEN`].
    pub header_len: u64,
    /// First 8 bytes of the header's BLAKE3 digest.
    pub header_check: [u8; 8],
}

impl PatchFront {
    /// Returns the front that precedes `header`, a header of this version as it is stored.
    pub(crate) fn of(version: u32, header: &[u8]) -> Self {
        Self { version, header_len: header.len() as u64, header_check: check(header) }
    }

    /// Appends the front to `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(MAGIC);
        out.extend(self.version.to_le_bytes());
        out.extend(self.header_len.to_le_bytes());
        out.extend(self.header_check);
    }

    /// Reads the front of a patch.
    ///
    /// # Errors
    /// [`DeltaError::NotAPatch`], [`DeltaError::Version`]; a header that is too long; a patch that ends early or cannot
    /// be read.
    pub(crate) fn read(input: &mut impl Read) -> Result<Self, DeltaError> {
        let mut bytes = Vec::with_capacity(FRONT_LEN);
        let read = input.take(FRONT_LEN as u64).read_to_end(&mut bytes);
        let len = bytes.len();
        read.map_err(|source| DeltaError::PatchRead { at: len as u64, source })?;
        bytes.resize(FRONT_LEN, 0);
        let mut fields = Fields::new("front", &bytes);
        let magic = fields.array("magic")?;
        if magic != MAGIC {
            return Err(DeltaError::NotAPatch(magic));
        }
        if len < FRONT_LEN {
            return Err(DeltaError::patch_end(len as u64));
        }
        let version = u32::from_le_bytes(fields.array("version")?);
        if !VERSIONS.contains(&version) {
            return Err(DeltaError::Version { found: version.into(), known: (*VERSIONS.end()).into() });
        }
        let header_len = u64::from_le_bytes(fields.array("header_len")?);
        if header_len > HEADER_MAX_LEN {
            return Err(fields.defect("header_len", header_len, "exceeds the maximum").into());
        }
        Ok(Self { version, header_len, header_check: fields.array("header_check")? })
    }

    /// Reads the header as it is stored, which follows the front.
    ///
    /// # Errors
    /// A header that does not match its checksum; a patch that ends early or cannot be read.
    pub(crate) fn read_header(&self, input: &mut impl Read) -> Result<Vec<u8>, DeltaError> {
        let at = FRONT_LEN as u64;
        let mut header = Vec::new();
        input.take(self.header_len).read_to_end(&mut header).map_err(|source| DeltaError::PatchRead { at, source })?;
        if (header.len() as u64) < self.header_len {
            return Err(DeltaError::patch_end(at + header.len() as u64));
        }
        if check(&header) != self.header_check {
            let (record, value) = ("front", u64::from_le_bytes(self.header_check));
            let (field, reason) = ("header_check", "does not match the header");
            return Err(PatchDefect { record, at, field, value, reason }.into());
        }
        Ok(header)
    }
}

/// Returns the first 8 bytes of the BLAKE3 digest of `header`.
fn check(header: &[u8]) -> [u8; 8] {
    let mut check = [0; 8];
    check.copy_from_slice(&blake3::hash(header).as_bytes()[..8]);
    check
}

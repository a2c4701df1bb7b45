//! Header that composefs writes in front of its images, in the bytes before the superblock that
//! EROFS leaves free.

use zerocopy::byteorder::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Magic number at the start of the header.
pub const COMPOSEFS_MAGIC: u32 = 0xD078_629A;
/// The only version of the header so far.
pub const COMPOSEFS_HEADER_VERSION: u32 = 1;

/// `struct lcfs_erofs_header_s`, at byte 0 of an image.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawComposefsHeader {
    /// [`COMPOSEFS_MAGIC`].
    pub magic: U32,
    /// [`COMPOSEFS_HEADER_VERSION`].
    pub version: U32,
    /// Bit 0: the image has ACLs.
    pub flags: U32,
    /// Version of composefs's own rules: 0, 1 or 2.
    pub composefs_version: U32,
    /// Zero.
    pub unused: [U32; 4],
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<RawComposefsHeader>() == 32);
    assert!(offset_of!(RawComposefsHeader, magic) == 0);
    assert!(offset_of!(RawComposefsHeader, version) == 4);
    assert!(offset_of!(RawComposefsHeader, flags) == 8);
    assert!(offset_of!(RawComposefsHeader, composefs_version) == 12);
    assert!(offset_of!(RawComposefsHeader, unused) == 16);
};

impl RawComposefsHeader {
    /// Returns true if these bytes are a composefs header of the known version. The meaning of
    /// other versions is unknown.
    pub fn is_valid(&self) -> bool {
        self.magic.get() == COMPOSEFS_MAGIC && self.version.get() == COMPOSEFS_HEADER_VERSION
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_version_1_is_known() {
        let header = |magic: u32, version: u32| {
            let mut bytes = [0; 32];
            bytes[..4].copy_from_slice(&magic.to_le_bytes());
            bytes[4..8].copy_from_slice(&version.to_le_bytes());
            RawComposefsHeader::read_from_bytes(&bytes).unwrap().is_valid()
        };
        assert!(header(COMPOSEFS_MAGIC, 1));
        assert!(!header(COMPOSEFS_MAGIC, 0) && !header(COMPOSEFS_MAGIC, 2) && !header(0, 1));
    }
}

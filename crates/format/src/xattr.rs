//! Extended attributes: bodies, entries, name prefixes, name filter.

use crate::FormatError;
use xxhash_rust::xxh32::xxh32;
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of the header of an xattr body in bytes.
pub const BODY_HEADER_LEN: usize = 12;
/// Length of an entry's header in bytes.
pub const ENTRY_HEADER_LEN: usize = 4;
/// Longest value in bytes.
pub const VALUE_MAX_LEN: usize = 65535;
/// Longest name in bytes, with its prefix (Linux's XATTR_NAME_MAX).
pub const NAME_MAX_LEN: usize = 255;
/// Highest number of shared attributes that one inode can list.
pub const SHARED_MAX: usize = 255;
/// Largest xattr body in bytes.
pub const BODY_MAX_LEN: usize = BODY_HEADER_LEN + 4 * (u16::MAX as usize - 1);
/// Highest number of long prefixes in an image.
pub const LONG_PREFIX_MAX: usize = 128;
/// Bit of `e_name_index`: the other bits number a long prefix.
pub const LONG_PREFIX: u8 = 0x80;

/// `e_name_index` of attributes that kernels do not show.
pub const HIDDEN: u8 = 0;
/// Usual name of the hidden attribute with a digest of the contents.
pub const FINGERPRINT_NAME: &[u8] = b"erofs.fingerprint.v1";

const FILTER_SEED: u32 = 0x25BB_E08F;

/// `struct erofs_xattr_ibody_header`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawXattrBodyHeader {
    /// Filter: a set bit promises that the inode has no attribute with that hash.
    pub h_name_filter: U32,
    /// Number of shared ids after the header.
    pub h_shared_count: u8,
    /// Zero.
    pub h_reserved2: [u8; 7],
}

/// `struct erofs_xattr_entry`, without its name and value.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawXattrEntry {
    /// Length of the name after the prefix, in bytes.
    pub e_name_len: u8,
    /// Index of the prefix.
    pub e_name_index: u8,
    /// Length of the value in bytes.
    pub e_value_size: U16,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<RawXattrBodyHeader>() == BODY_HEADER_LEN);
    assert!(offset_of!(RawXattrBodyHeader, h_name_filter) == 0);
    assert!(offset_of!(RawXattrBodyHeader, h_shared_count) == 4);
    assert!(offset_of!(RawXattrBodyHeader, h_reserved2) == 5);
    assert!(size_of::<RawXattrEntry>() == ENTRY_HEADER_LEN);
    assert!(offset_of!(RawXattrEntry, e_name_len) == 0);
    assert!(offset_of!(RawXattrEntry, e_name_index) == 1);
    assert!(offset_of!(RawXattrEntry, e_value_size) == 2);
};

/// Name prefixes that `e_name_index` abbreviates. The ACLs' prefixes are whole names.
const PREFIXES: [(u8, &[u8]); 5] = [
    (1, b"user."),
    (2, b"system.posix_acl_access"),
    (3, b"system.posix_acl_default"),
    (4, b"trusted."),
    (6, b"security."),
];

/// Returns the prefix with this index; `None` for reserved and unknown ones, whose attributes
/// kernels do not show.
pub fn prefix(index: u8) -> Option<&'static [u8]> {
    PREFIXES.iter().find(|(i, _)| *i == index).map(|(_, prefix)| *prefix)
}

/// Splits a full name into prefix index and rest. Returns `None` if no prefix fits: the format
/// cannot store such a name.
pub fn split_name(name: &[u8]) -> Option<(u8, &[u8])> {
    PREFIXES.iter().find_map(|(index, prefix)| {
        let rest = name.strip_prefix(*prefix)?;
        // The name of an ACL is the whole prefix; after the others something must follow.
        (rest.is_empty() == matches!(index, 2 | 3)).then_some((*index, rest))
    })
}

/// Returns the filter bit of a name: `index` is the (base) prefix index, `rest` the part after the
/// prefix.
pub fn filter_bit(index: u8, rest: &[u8]) -> u32 {
    1 << (xxh32(rest, FILTER_SEED.wrapping_add(index.into())) % 32)
}

/// Returns the length of an entry in bytes, with padding.
pub fn entry_len(name_rest_len: usize, value_len: usize) -> usize {
    (ENTRY_HEADER_LEN + name_rest_len + value_len).next_multiple_of(4)
}

/// Appends the record of a long prefix, padded to 4 bytes: the index of its base prefix, and the
/// part after that.
///
/// # Errors
/// An infix over 255 bytes.
pub fn encode_long_prefix(base_index: u8, infix: &[u8], out: &mut Vec<u8>) -> Result<(), FormatError> {
    let refuse = || FormatError::does_not_fit("erofs_xattr_long_prefix", "len", infix.len() as u64 + 1);
    let len = u8::try_from(infix.len()).map_err(|_| refuse())?;
    out.extend_from_slice(&(u16::from(len) + 1).to_le_bytes());
    out.push(base_index);
    out.extend_from_slice(infix);
    out.resize(out.len().next_multiple_of(4), 0);
    Ok(())
}

/// Appends an entry, padded to 4 bytes.
///
/// # Errors
/// A name or a value that is too long.
pub fn encode_entry(index: u8, name_rest: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<(), FormatError> {
    let refuse = |field, len: usize| FormatError::does_not_fit("erofs_xattr_entry", field, len as u64);
    let raw = RawXattrEntry {
        e_name_len: u8::try_from(name_rest.len()).map_err(|_| refuse("e_name_len", name_rest.len()))?,
        e_name_index: index,
        e_value_size: u16::try_from(value.len()).map_err(|_| refuse("e_value_size", value.len()))?.into(),
    };
    out.extend_from_slice(raw.as_bytes());
    out.extend_from_slice(name_rest);
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
    Ok(())
}

/// Returns `i_xattr_icount` for a body of `len` bytes: 0, or a multiple of 4 that is at least a
/// header.
///
/// # Errors
/// Other lengths, and those over [`BODY_MAX_LEN`].
pub fn icount(len: usize) -> Result<u16, FormatError> {
    let refuse = || FormatError::does_not_fit("erofs_inode", "i_xattr_icount", len as u64);
    match len {
        0 => Ok(0),
        BODY_HEADER_LEN..=BODY_MAX_LEN if len.is_multiple_of(4) => {
            u16::try_from((len - BODY_HEADER_LEN) / 4 + 1).map_err(|_| refuse())
        }
        _ => Err(refuse()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_bits_are_the_documented_ones() {
        for (name, bit) in [
            ("user.a", 21),
            ("user.mime_type", 23),
            ("trusted.overlay.opaque", 20),
            ("trusted.overlay.metacopy", 31),
            ("trusted.overlay.redirect", 17),
            ("security.selinux", 11),
            ("security.capability", 29),
            ("system.posix_acl_access", 30),
            ("system.posix_acl_default", 21),
        ] {
            let (index, rest) = split_name(name.as_bytes()).unwrap();
            assert_eq!(filter_bit(index, rest), 1 << bit, "{name}");
        }
    }

    #[test]
    fn names_split_where_the_format_can_store_them() {
        assert_eq!(split_name(b"user.x"), Some((1, &b"x"[..])));
        assert_eq!(split_name(b"system.posix_acl_access"), Some((2, &b""[..])));
        for name in [&b"user."[..], b"system.posix_acl_access.x", b"system.nfs4_acl", b"os2.x", b""] {
            assert_eq!(split_name(name), None);
        }
    }
}

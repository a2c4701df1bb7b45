//! User and group ids in the values of extended attributes: POSIX ACLs, and file capabilities of a
//! user namespace.

use std::fmt;

/// Name of the attribute that holds the ACL of an inode.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of the attribute that holds the default ACL of a directory, which new files in it get.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";
const CAPABILITY: &[u8] = b"security.capability";

/// Tags of the entries of an ACL.
const USER: [u8; 2] = 0x02_u16.to_le_bytes();
const GROUP: [u8; 2] = 0x08_u16.to_le_bytes();

/// Kind of an id: user or group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdKind {
    /// A user id.
    Uid,
    /// A group id.
    Gid,
}

impl fmt::Display for IdKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IdKind::Uid => "uid",
            IdKind::Gid => "gid",
        })
    }
}

/// Returns the ids, little-endian, in the `value` of the attribute `name`, to be replaced in place.
/// A value of an unknown form has none.
pub fn named_ids<'a>(name: &[u8], value: &'a mut [u8]) -> impl Iterator<Item = (IdKind, &'a mut [u8; 4])> {
    let (acl, root) = match name {
        ACCESS | DEFAULT => (entries(value), None),
        CAPABILITY => (&mut [][..], namespace_root(value)),
        _ => (&mut [][..], None),
    };
    let named = acl.iter_mut().filter_map(|[tag_low, tag_high, _, _, id @ ..]| match [*tag_low, *tag_high] {
        USER => Some((IdKind::Uid, id)),
        GROUP => Some((IdKind::Gid, id)),
        _ => None,
    });
    named.chain(root.map(|root| (IdKind::Uid, root)))
}

/// Returns the entries of an ACL: tag (2 bytes), permissions (2) and id (4) each. Returns none if
/// `value` is not an ACL of version 2, the only version.
pub fn entries(value: &mut [u8]) -> &mut [[u8; 8]] {
    const VERSION: [u8; 4] = 2_u32.to_le_bytes();
    match value.split_first_chunk_mut() {
        Some((version, entries)) if *version == VERSION => match entries.as_chunks_mut() {
            (entries, []) => entries,
            _ => &mut [],
        },
        _ => &mut [],
    }
}

/// Returns the id of the namespace's root user, with which a capability of revision 3 ends.
fn namespace_root(value: &mut [u8]) -> Option<&mut [u8; 4]> {
    match value {
        [_, _, _, 3, rest @ ..] if rest.len() == 20 => rest.last_chunk_mut(),
        _ => None,
    }
}

//! Parser of extended attributes.

use kiln_tree::Xattr;
use std::io;

use super::fields::{Fields, invalid};
use super::inode::Inode;
use super::volume::Volume;

const MAGIC: u32 = 0xEA02_0000;
/// Length in bytes of the header of an attribute block. Attributes in an inode have the magic
/// number only.
const BLOCK_HEADER_LEN: usize = 32;
const INODE_HEADER_LEN: usize = 4;
/// Length in bytes of an entry without its name.
const ENTRY_LEN: usize = 16;
/// Maximum length in bytes of a value in Linux.
const VALUE_MAX_LEN: u64 = 1 << 16;

const INDEX_ACL_ACCESS: u8 = 2;
const INDEX_ACL_DEFAULT: u8 = 3;
const INDEX_SYSTEM: u8 = 7;
/// Name of the attribute with the part of inline contents that does not fit in place of the block
/// map.
const INLINE_DATA_NAME: &[u8] = b"data";

/// Version of ACLs on disk, and of those that the kernel shows.
const ACL_DISK_VERSION: u32 = 1;
const ACL_VERSION: u32 = 2;
/// Tags of entries for a named user or group.
const ACL_NAMED: [u16; 2] = [2, 8];
const ACL_NO_ID: u32 = u32::MAX;

/// An entry before its value is read.
struct Raw<'a> {
    index: u8,
    name: &'a [u8],
    value: Value,
}

/// Position of a value.
enum Value {
    /// `len` bytes from offset `at` of the same inode or block.
    Here { at: usize, len: usize },
    /// The complete contents of an inode.
    Inode { ino: u32, len: u64 },
}

/// Returns the attributes of `inode` that Linux shows. `read_inode` returns the contents of an
/// inode, given its number and expected length in bytes.
///
/// # Errors
/// Damaged entries and values.
pub(super) fn xattrs(
    volume: &Volume,
    inode: &Inode,
    read_inode: impl Fn(u32, u64) -> io::Result<Vec<u8>>,
) -> io::Result<Vec<Xattr>> {
    let mut xattrs: Vec<Xattr> = Vec::new();
    let mut take = |bytes: &[u8], first: usize, base: usize| {
        for raw in entries(bytes, first, base)? {
            let Some(prefix) = prefix(raw.index) else { continue };
            if raw.index == INDEX_SYSTEM && raw.name == INLINE_DATA_NAME {
                continue;
            }
            let value = match raw.value {
                Value::Here { at, len } => Fields(bytes).bytes(at, len)?.to_vec(),
                Value::Inode { ino, len } => read_inode(ino, len)?,
            };
            let is_acl = matches!(raw.index, INDEX_ACL_ACCESS | INDEX_ACL_DEFAULT);
            let value = if is_acl { acl(&value)? } else { value };
            xattrs.push(Xattr { name: [prefix, raw.name].concat().into(), value: value.into() });
        }
        Ok::<_, io::Error>(())
    };
    let (room, _) = inode.room();
    if has_magic(room) {
        take(room, INODE_HEADER_LEN, INODE_HEADER_LEN)?;
    }
    if inode.xattr_block != 0 {
        let block = volume.block(inode.xattr_block)?;
        if !has_magic(&block) {
            return Err(invalid(format!("block {} has no attributes", inode.xattr_block)));
        }
        take(&block, BLOCK_HEADER_LEN, 0)?;
    }
    xattrs.sort_by(|a, b| a.name.cmp(&b.name));
    xattrs.dedup_by(|later, first| later.name == first.name);
    Ok(xattrs)
}

/// Returns the position of the end of inline contents of `inode`: offset in the image and length,
/// in bytes.
///
/// # Errors
/// Damaged entries; a missing attribute.
pub(super) fn inline_rest(inode: &Inode) -> io::Result<(u64, u64)> {
    let (room, off) = inode.room();
    if has_magic(room) {
        for raw in entries(room, INODE_HEADER_LEN, INODE_HEADER_LEN)? {
            if let (INDEX_SYSTEM, INLINE_DATA_NAME, Value::Here { at, len }) = (raw.index, raw.name, raw.value) {
                return Ok((off + at as u64, len as u64));
            }
        }
    }
    Err(invalid("the inline contents lack their second part"))
}

fn has_magic(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC.to_le_bytes())
}

/// Parses the entries from byte `first` of `bytes`. Offsets of values are relative to byte `base`.
fn entries(bytes: &[u8], first: usize, base: usize) -> io::Result<Vec<Raw<'_>>> {
    let fields = Fields(bytes);
    let (mut at, mut entries) = (first, Vec::new());
    // Four zero bytes end the list, unless it fills the available space.
    while at + 4 <= bytes.len() && fields.u32(at)? != 0 {
        let (name_len, index) = (usize::from(fields.u8(at)?), fields.u8(at + 1)?);
        let (value_at, ino, len) = (fields.u16(at + 2)?, fields.u32(at + 4)?, u64::from(fields.u32(at + 8)?));
        if len > VALUE_MAX_LEN {
            return Err(invalid(format!("e_value_size = {len}")));
        }
        let value = match ino {
            0 => Value::Here { at: base + usize::from(value_at), len: len as usize },
            ino => Value::Inode { ino, len },
        };
        entries.push(Raw { index, name: fields.bytes(at + ENTRY_LEN, name_len)?, value });
        at += (ENTRY_LEN + name_len).next_multiple_of(4);
    }
    Ok(entries)
}

/// Returns the name prefix with number `index`, or `None` if Linux does not show such attributes.
fn prefix(index: u8) -> Option<&'static [u8]> {
    Some(match index {
        1 => b"user.",
        INDEX_ACL_ACCESS => b"system.posix_acl_access",
        INDEX_ACL_DEFAULT => b"system.posix_acl_default",
        4 => b"trusted.",
        6 => b"security.",
        INDEX_SYSTEM => b"system.",
        8 => b"system.richacl",
        _ => return None,
    })
}

/// Converts an ACL to the format of the attribute. There each entry has an id; on disk only those
/// of named users and groups do.
fn acl(disk: &[u8]) -> io::Result<Vec<u8>> {
    let fields = Fields(disk);
    let version = fields.u32(0)?;
    if version != ACL_DISK_VERSION {
        return Err(invalid(format!("a_version = {version} of an ACL")));
    }
    let (mut at, mut acl) = (4, ACL_VERSION.to_le_bytes().to_vec());
    while at < disk.len() {
        let has_id = ACL_NAMED.contains(&fields.u16(at)?);
        let id = if has_id { fields.u32(at + 4)? } else { ACL_NO_ID };
        acl.extend_from_slice(fields.bytes(at, 4)?);
        acl.extend_from_slice(&id.to_le_bytes());
        at += if has_id { 8 } else { 4 };
    }
    Ok(acl)
}

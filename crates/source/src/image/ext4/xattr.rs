//! Extended attributes.

use kiln_tree::Xattr;
use std::io;

use super::fields::{Fields, invalid};
use super::inode::Inode;
use super::volume::Volume;

const MAGIC: u32 = 0xEA02_0000;
/// The header of a block of attributes; in an inode there is the magic number alone.
const BLOCK_HEADER_LEN: usize = 32;
const INODE_HEADER_LEN: usize = 4;
/// An entry without its name.
const ENTRY_LEN: usize = 16;
/// The largest value that Linux knows.
const VALUE_MAX_LEN: u64 = 1 << 16;

const INDEX_ACL_ACCESS: u8 = 2;
const INDEX_ACL_DEFAULT: u8 = 3;
const INDEX_SYSTEM: u8 = 7;
/// The name of what does not fit in the block map, of contents that lie in the inode.
const INLINE_DATA_NAME: &[u8] = b"data";

/// Version of ACLs on disk, and of those that the kernel shows.
const ACL_DISK_VERSION: u32 = 1;
const ACL_VERSION: u32 = 2;
/// Tags of entries that name a user or a group.
const ACL_NAMED: [u16; 2] = [2, 8];
const ACL_NO_ID: u32 = u32::MAX;

/// An entry.
struct Raw<'a> {
    index: u8,
    name: &'a [u8],
    value: Value,
}

/// Where a value lies.
enum Value {
    /// In the same inode or block: from this byte of it on, so many bytes.
    Here { at: usize, len: usize },
    /// All of the contents of an inode.
    Inode { ino: u32, len: u64 },
}

/// Attributes of `inode` that Linux shows. `read_inode` gives the contents of an inode, as many bytes as it is told.
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
            return Err(invalid(format!("no attributes in block {}", inode.xattr_block)));
        }
        take(&block, BLOCK_HEADER_LEN, 0)?;
    }
    xattrs.sort_by(|a, b| a.name.cmp(&b.name));
    xattrs.dedup_by(|later, first| later.name == first.name);
    Ok(xattrs)
}

/// Where the end of contents that lie in `inode` is: byte of the image, and length.
///
/// # Errors
/// Damaged entries; no such contents.
pub(super) fn inline_rest(inode: &Inode) -> io::Result<(u64, u64)> {
    let (room, off) = inode.room();
    if has_magic(room) {
        for raw in entries(room, INODE_HEADER_LEN, INODE_HEADER_LEN)? {
            if let (INDEX_SYSTEM, INLINE_DATA_NAME, Value::Here { at, len }) = (raw.index, raw.name, raw.value) {
                return Ok((off + at as u64, len as u64));
            }
        }
    }
    Err(invalid("contents in the inode that end with the block map"))
}

fn has_magic(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC.to_le_bytes())
}

/// Entries from byte `first` of `bytes` on. Offsets of values count from byte `base`.
fn entries(bytes: &[u8], first: usize, base: usize) -> io::Result<Vec<Raw<'_>>> {
    let fields = Fields(bytes);
    let (mut at, mut entries) = (first, Vec::new());
    // Four zero bytes are the end, if the room does not end before.
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

/// What a number stands for in front of a name; `None`: Linux shows no such attributes.
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

/// An ACL in the form of the attribute: each entry has an id there, on disk only those that need one.
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

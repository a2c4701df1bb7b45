//! Inodes, and directory entries, which are inodes followed by names.

use kiln_format::inode::FileType;
use kiln_tree::Metadata;
use std::io;

use super::volume::{Order, invalid};

/// Length of an inode in bytes.
pub(super) const INODE_LEN: usize = 12;

/// An inode: mode (16 bits) and user (16); size (24) and group (8); length of the name (6) and
/// offset (26), both in words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inode {
    mode: u16,
    uid: u32,
    gid: u32,
    /// Length in bytes of a file, target or directory; device number of a device.
    pub size: u32,
    /// Length in bytes of the name after the inode, including padding.
    name_len: usize,
    /// Offset of the contents in the image, in bytes.
    pub data_off: u64,
}

impl Inode {
    pub(super) fn decode(bytes: &[u8; INODE_LEN], order: Order) -> Self {
        let mut words = order.words(bytes);
        let mut split = |bits| order.split(words.next().unwrap_or_default(), bits);
        let ((mode, uid), (size, gid), (name_words, data_words)) = (split(16), split(24), split(6));
        let (name_len, data_off) = (name_words as usize * 4, u64::from(data_words) * 4);
        Self { mode: mode as u16, uid, gid, size, name_len, data_off }
    }

    /// Returns the type of the inode.
    ///
    /// # Errors
    /// An unknown type.
    pub(super) fn file_type(&self) -> io::Result<FileType> {
        FileType::from_mode(self.mode).ok_or_else(|| invalid(format!("mode = {:#o}", self.mode)))
    }

    pub(super) fn metadata(&self) -> Metadata {
        Metadata { permissions: self.mode & 0o7777, uid: self.uid, gid: self.gid, ..Metadata::default() }
    }
}

/// An entry of a directory.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    /// Offset within the directory in bytes.
    pub at: usize,
    pub inode: Inode,
    pub name: &'a [u8],
}

/// Returns the entries of the directory `bytes`, up to the first damaged one.
pub(super) fn entries(bytes: &[u8], order: Order) -> impl Iterator<Item = io::Result<Entry<'_>>> {
    let mut next_at = Some(0);
    std::iter::from_fn(move || {
        let at = next_at.filter(|at| *at < bytes.len())?;
        let entry = entry(bytes, at, order);
        next_at = entry.as_ref().ok().map(|entry| at + INODE_LEN + entry.inode.name_len);
        Some(entry)
    })
}

fn entry(bytes: &[u8], at: usize, order: Order) -> io::Result<Entry<'_>> {
    let Some((record, rest)) = bytes[at..].split_first_chunk() else {
        return Err(invalid(format!("an incomplete entry at byte {at} of a directory of {} bytes", bytes.len())));
    };
    let inode = Inode::decode(record, order);
    let Some(name) = rest.get(..inode.name_len) else {
        let (name_len, rest_len) = (inode.name_len, rest.len());
        return Err(invalid(format!(
            "namelen = {name_len} bytes at byte {at} of a directory, where {rest_len} are left"
        )));
    };
    let fill_len = name.iter().rev().take_while(|byte| **byte == 0).count();
    Ok(Entry { at, inode, name: &name[..name.len() - fill_len] })
}

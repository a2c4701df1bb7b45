//! Writer of dumps.

use crate::tree::{CfsTree, Data, FileData, NodeIdx};
use std::collections::HashMap;
use std::io::{self, Write};

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Writes a tree as a dump: depth first, by the bytes of names. The first path of a file in this order
/// has the line without `@`, so that all programs make the same image of it.
///
/// # Errors
/// Errors of the output.
pub fn write(tree: &CfsTree, out: &mut impl Write) -> io::Result<()> {
    write_some(tree, |_| true, out)
}

/// Writes as [`write()`] does, of the entries of the root only those whose names `is_wanted` accepts, and
/// everything below them.
///
/// # Errors
/// Errors of the output.
pub fn write_some(tree: &CfsTree, is_wanted: impl Fn(&[u8]) -> bool, out: &mut impl Write) -> io::Result<()> {
    let mut first_paths: HashMap<u32, Vec<u8>> = HashMap::new();
    let mut has_names = vec![false; tree.len()];
    for node in tree.nodes() {
        if let Data::Link(target) = node.data {
            has_names[target as usize] = true;
        }
    }
    let mut line = Vec::new();
    let mut path = Vec::new();
    // Nodes to write, with the lengths of their parents' paths.
    let mut stack = vec![(0, NodeIdx::ROOT)];
    while let Some((parent_len, node)) = stack.pop() {
        path.truncate(parent_len);
        if node != NodeIdx::ROOT {
            path.push(b'/');
            path.extend_from_slice(tree.name(node));
        }
        let inode = tree.inode(node);
        let target = match has_names[inode.at()] {
            true => match first_paths.get(&inode.0) {
                Some(first) => Some(&**first),
                None => {
                    first_paths.insert(inode.0, path.clone());
                    None
                }
            },
            false => None,
        };
        line.clear();
        write_line(tree, inode, if path.is_empty() { b"/" } else { &path }, target, &mut line);
        out.write_all(&line)?;
        let children = tree.children(node.0).iter().rev().map(|&child| NodeIdx(child));
        let wanted = children.filter(|&child| node != NodeIdx::ROOT || is_wanted(tree.name(child)));
        stack.extend(wanted.map(|child| (path.len(), child)));
    }
    Ok(())
}

/// Appends a line; that of a hard link to `target`, if there is one.
fn write_line(tree: &CfsTree, inode: NodeIdx, path: &[u8], target: Option<&[u8]>, line: &mut Vec<u8>) {
    let node = &tree.nodes()[inode.at()];
    let (attributes, data) = (&node.attributes, tree.data(inode));
    let mode = node.data.file_type().mode_bits() | attributes.permissions;
    let (size, rdev) = match data {
        FileData::Inline(contents) => (contents.len() as u64, 0),
        FileData::External { size, .. } => (size, 0),
        FileData::Symlink(target) => (target.len() as u64, 0),
        FileData::CharDevice(rdev) | FileData::BlockDevice(rdev) => (0, rdev),
        FileData::Directory | FileData::Fifo | FileData::Socket => (0, 0),
    };
    let nlink = match node.data {
        Data::Directory { .. } => tree.dir_nlink(inode),
        _ => attributes.nlink,
    };
    escape(path, b'\0', line);
    let at = if target.is_some() { "@" } else { "" };
    let (uid, gid, secs, nsec) = (attributes.uid, attributes.gid, attributes.mtime, attributes.mtime_nsec);
    write!(line, " {size} {at}{mode:o} {nlink} {uid} {gid} {rdev} {secs}.{nsec} ").expect("memory");
    let (payload, content, digest) = match data {
        FileData::Inline(contents) => (None, Some(contents), None),
        FileData::External { digest, object, .. } => (object, None, digest),
        FileData::Symlink(target) => (Some(target), None, None),
        _ => (None, None, None),
    };
    field(target.or(payload), line);
    line.push(b' ');
    field(content, line);
    line.push(b' ');
    match digest {
        Some(digest) => {
            for byte in digest.as_bytes() {
                line.extend([HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
        }
        None => line.push(b'-'),
    }
    for (key, value) in tree.xattrs(inode) {
        line.push(b' ');
        escape(key, b'=', line);
        line.push(b'=');
        escape(value, b'=', line);
    }
    line.push(b'\n');
}

/// Appends a field that may be missing or empty, which a dash says.
fn field(bytes: Option<&[u8]>, line: &mut Vec<u8>) {
    match bytes {
        None | Some(b"") => line.push(b'-'),
        Some(b"-") => line.extend_from_slice(b"\\x2d"),
        Some(bytes) => escape(bytes, b'\0', line),
    }
}

/// Appends bytes, with escapes for those that are no graphic ASCII, and for `special`.
fn escape(bytes: &[u8], special: u8, line: &mut Vec<u8>) {
    for &byte in bytes {
        match byte {
            b'\\' => line.extend_from_slice(b"\\\\"),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\t' => line.extend_from_slice(b"\\t"),
            _ if byte.is_ascii_graphic() && byte != special => line.push(byte),
            _ => line.extend([b'\\', b'x', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]),
        }
    }
}

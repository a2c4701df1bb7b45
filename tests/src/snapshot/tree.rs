//! Expected snapshots of trees.

use super::{Record, Snapshot, hash, joined};
use kiln_builder::BuildError;
use kiln_format::inode::{FileType, Rdev};
use kiln_tree::{Kind, NodeId, Tree};
use std::cell::RefCell;
use std::collections::HashMap;

/// Returns the snapshot that an image of `tree` must have.
///
/// # Errors
/// Contents that cannot be read.
pub fn of_tree(tree: &Tree) -> Result<Snapshot, BuildError> {
    let mut snapshot = Snapshot::new();
    let mut first_names = HashMap::new();
    let mut stack = vec![(Vec::new(), NodeId::ROOT)];
    while let Some((path, id)) = stack.pop() {
        let first_name: &mut Vec<u8> = first_names.entry(id).or_insert_with(|| path.clone());
        if *first_name != path {
            let record = snapshot[first_name].clone();
            snapshot.insert(path, record);
            continue;
        }
        let record = record_of(tree, id, path.clone())?;
        let below = tree.entries(id).iter().rev().map(|entry| (joined(&path, entry.name), entry.node));
        stack.extend(below);
        snapshot.insert(path, record);
    }
    Ok(snapshot)
}

fn record_of(tree: &Tree, id: NodeId, path: Vec<u8>) -> Result<Record, BuildError> {
    let node = tree.node(id);
    let is_dir = |id| matches!(tree.node(id).kind, Kind::Directory(_));
    let (file_type, size, target, rdev) = match &node.kind {
        Kind::Directory(_) => (FileType::Directory, 0, &b""[..], Rdev::default()),
        Kind::File { len, .. } => (FileType::Regular, *len, &b""[..], Rdev::default()),
        Kind::Symlink(target) => (FileType::Symlink, target.len() as u64, &**target, Rdev::default()),
        Kind::CharDevice(rdev) => (FileType::CharDevice, 0, &b""[..], *rdev),
        Kind::BlockDevice(rdev) => (FileType::BlockDevice, 0, &b""[..], *rdev),
        Kind::Fifo => (FileType::Fifo, 0, &b""[..], Rdev::default()),
        Kind::Socket => (FileType::Socket, 0, &b""[..], Rdev::default()),
    };
    let contents = match file_type {
        FileType::Regular => {
            let failed = |source| BuildError::Read { path: path.clone(), source };
            let content = RefCell::new(tree.open(id)?);
            let next_data = |off| content.borrow_mut().next_data(off).map(|run| run.map(|run| run.start));
            hash(size, next_data, |buf, off| content.borrow_mut().read_exact_at(buf, off)).map_err(failed)?
        }
        _ => 0,
    };
    Ok(Record {
        file_type,
        permissions: node.meta.permissions,
        uid: node.meta.uid,
        gid: node.meta.gid,
        nlink: match file_type {
            FileType::Directory => 2 + tree.entries(id).iter().filter(|entry| is_dir(entry.node)).count() as u32,
            _ => tree.names_of(id),
        },
        mtime: (node.meta.mtime, node.meta.mtime_nsec),
        size,
        rdev: (rdev.major, rdev.minor),
        target: target.to_vec(),
        xattrs: node.xattrs.iter().map(|xattr| (xattr.name.to_vec(), xattr.value.to_vec())).collect(),
        contents,
        first_name: path,
    })
}

//! Trees as maps, which are easy to edit.
#![allow(dead_code)] // each test module uses a part of it

use kiln_format::inode::Rdev;
use kiln_tests::mem::{Fault, MemFile, MemTree};
use kiln_tree::{Kind, Metadata, NodeId, Tree};
use std::collections::BTreeMap;

/// Kind of the node at a path.
#[derive(Clone, Debug)]
pub enum SpotKind {
    Dir,
    File(MemFile),
    Symlink(&'static str),
    CharDevice(u32, u32),
    Fifo,
    /// A further name of the node at this path, which sorts before and is not a link itself.
    Link(Vec<u8>),
}

/// A node with its metadata and attributes.
#[derive(Clone, Debug)]
pub struct Spot {
    pub kind: SpotKind,
    pub meta: Metadata,
    pub xattrs: BTreeMap<&'static str, Vec<u8>>,
}

/// Nodes by path; directories precede their contents.
pub type Model = BTreeMap<Vec<u8>, Spot>;

impl Spot {
    pub fn new(kind: SpotKind) -> Self {
        let meta = Metadata { permissions: 0o644, uid: 0, gid: 0, mtime: 1_700_000_000, mtime_nsec: 0 };
        Self { kind, meta, xattrs: BTreeMap::new() }
    }

    pub fn file(bytes: &[u8]) -> Self {
        Self::new(SpotKind::File(MemFile::whole(bytes.to_vec())))
    }
}

/// Returns the tree of a model.
pub fn tree(model: &Model) -> Tree {
    faulty_tree(model, None)
}

/// Returns the tree of a model with one broken file.
pub fn faulty_tree(model: &Model, fault: Option<(&[u8], Fault)>) -> Tree {
    let mut mem = MemTree::default();
    let mut nodes = BTreeMap::from([(&b""[..], NodeId::ROOT)]);
    for (path, spot) in model {
        let (dir, name) = match path.iter().rposition(|&b| b == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&b""[..], &path[..]),
        };
        let dir = nodes[dir];
        let kind = match &spot.kind {
            SpotKind::Link(to) => {
                mem.name(dir, name, nodes[&to[..]]);
                continue;
            }
            SpotKind::File(file) => {
                let node = mem.file(dir, name, file.clone());
                finish(&mut mem, node, spot);
                nodes.insert(path, node);
                continue;
            }
            SpotKind::Dir => Kind::Directory(Box::default()),
            SpotKind::Symlink(target) => Kind::Symlink(target.as_bytes().into()),
            SpotKind::CharDevice(major, minor) => Kind::CharDevice(Rdev { major: *major, minor: *minor }),
            SpotKind::Fifo => Kind::Fifo,
        };
        let node = mem.add(dir, name, kind);
        finish(&mut mem, node, spot);
        nodes.insert(path, node);
    }
    if let Some((path, fault)) = fault {
        mem.fault(nodes[path], fault);
    }
    mem.finish().unwrap()
}

fn finish(mem: &mut MemTree, node: NodeId, spot: &Spot) {
    *mem.meta(node) = spot.meta;
    for (name, value) in &spot.xattrs {
        mem.xattr(node, name.as_bytes(), value);
    }
}

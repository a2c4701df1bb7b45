//! Inodes of an image: those of the tree and the stubs, in their order, with whiteouts as the files
//! that stand for them.
//!
//! A whiteout of the tree must not act as one where the image is mounted: it becomes an empty file
//! that overlayfs's marks tell from others. The root gets a whiteout as a stub for each directory of
//! objects, so that no object can be seen.

use crate::tree::{Attributes, CfsTree, Data, NodeIdx};
use kiln_format::inode::FileType;

/// Index of a node of the tree; from its length on, number of a stub.
pub(super) type Item = u32;

const STUB_PERMISSIONS: u16 = 0o644;

/// Contents of an inode, as the image holds them.
#[derive(Clone, Copy, Debug)]
pub(super) enum Contents<'t> {
    Directory,
    /// None: empty files, pipes, sockets.
    Nothing,
    Inline(&'t [u8]),
    /// Holes only, since the contents are elsewhere.
    External {
        size: u64,
    },
    Symlink(&'t [u8]),
    Device(u32),
}

/// Inodes in the order of the image.
pub(super) struct Prepared<'t> {
    pub(super) tree: &'t CfsTree,
    /// Item of each inode, by number.
    pub(super) order: Vec<Item>,
    /// Number of each node's inode.
    numbers: Vec<u32>,
    /// Entries of the root with stubs, sorted by name.
    root: Vec<Item>,
    stub_names: Vec<[u8; 2]>,
    stub: Attributes,
}

impl<'t> Prepared<'t> {
    pub(super) fn new(tree: &'t CfsTree) -> Self {
        let first_stub = tree.len() as u32;
        let (mut root, mut stub_names) = (Vec::new(), Vec::new());
        let own = tree.children(NodeIdx::ROOT.0);
        let mut left = own.iter().copied().peekable();
        for byte in 0..=u8::MAX {
            let name = [byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]);
            while let Some(item) = left.next_if(|&item| tree.name(NodeIdx(item)) < &name[..]) {
                root.push(item);
            }
            if left.peek().is_none_or(|&item| tree.name(NodeIdx(item)) != name) {
                root.push(first_stub + stub_names.len() as u32);
                stub_names.push(name);
            }
        }
        root.extend(left);

        let stub = Attributes { permissions: STUB_PERMISSIONS, nlink: 1, ..*tree.attributes(NodeIdx::ROOT) };
        let numbers = vec![0; tree.len() + stub_names.len()];
        let mut prepared = Self { tree, order: vec![0], numbers, root, stub_names, stub };
        // Breadth first: the list of inodes is also the list of directories to visit.
        let mut next = 0;
        while let Some(&item) = prepared.order.get(next) {
            next += 1;
            let children = if item == 0 { &prepared.root } else { prepared.own_children(item) };
            for &child in children {
                if prepared.target(child) == child {
                    prepared.numbers[child as usize] = prepared.order.len() as u32;
                    prepared.order.push(child);
                }
            }
        }
        prepared
    }

    /// Returns the entries of a directory, sorted by name.
    pub(super) fn children(&self, item: Item) -> &[Item] {
        if item == 0 { &self.root } else { self.own_children(item) }
    }

    fn own_children(&self, item: Item) -> &'t [Item] {
        if self.is_stub(item) { &[] } else { self.tree.children(item) }
    }

    pub(super) fn is_stub(&self, item: Item) -> bool {
        item as usize >= self.tree.len()
    }

    pub(super) fn name(&self, item: Item) -> &[u8] {
        match self.is_stub(item) {
            true => &self.stub_names[item as usize - self.tree.len()],
            false => self.tree.name(NodeIdx(item)),
        }
    }

    /// Returns the item whose inode an entry names.
    pub(super) fn target(&self, entry: Item) -> Item {
        match self.tree.nodes().get(entry as usize) {
            Some(node) => match node.data {
                Data::Link(target) => target,
                _ => entry,
            },
            None => entry,
        }
    }

    /// Returns the number of an item's inode.
    pub(super) fn number(&self, item: Item) -> u32 {
        self.numbers[item as usize]
    }

    /// Returns the directory of an item that is no stub; the root's is the root.
    pub(super) fn parent(&self, item: Item) -> Item {
        self.tree.nodes()[item as usize].parent
    }

    pub(super) fn attributes(&self, item: Item) -> &Attributes {
        match self.tree.nodes().get(item as usize) {
            Some(node) => &node.attributes,
            None => &self.stub,
        }
    }

    pub(super) fn nlink(&self, item: Item) -> u32 {
        match self.contents(item) {
            Contents::Directory => self.tree.dir_nlink(NodeIdx(item)),
            _ => self.attributes(item).nlink,
        }
    }

    /// Returns the type, that of whiteouts after their conversion.
    pub(super) fn file_type(&self, item: Item) -> FileType {
        match self.tree.nodes().get(item as usize) {
            Some(node) if node.data.is_whiteout() => FileType::Regular,
            Some(node) => node.data.file_type(),
            None => FileType::CharDevice,
        }
    }

    pub(super) fn contents(&self, item: Item) -> Contents<'t> {
        let Some(node) = self.tree.nodes().get(item as usize) else { return Contents::Device(0) };
        match node.data {
            Data::Directory { .. } => Contents::Directory,
            Data::Inline(contents) => Contents::Inline(self.tree.text_of(contents)),
            Data::External { size, .. } => Contents::External { size },
            Data::Symlink(target) => Contents::Symlink(self.tree.text_of(target)),
            Data::CharDevice(0) => Contents::Nothing,
            Data::CharDevice(rdev) | Data::BlockDevice(rdev) => Contents::Device(rdev),
            Data::Empty | Data::Fifo | Data::Socket | Data::Link(_) => Contents::Nothing,
        }
    }

    /// Returns the least mtime of all inodes.
    pub(super) fn least_mtime(&self) -> (i64, u32) {
        let mtime = |&item: &Item| {
            let attributes = self.attributes(item);
            (attributes.mtime, attributes.mtime_nsec)
        };
        self.order.iter().map(mtime).min().unwrap_or_default()
    }
}

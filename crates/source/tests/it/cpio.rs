//! cpio archives of programs, the parts of an initramfs, and hostile archives.

mod hostile;
mod initramfs;
mod programs;

use crate::common::GOING;
use kiln_source::{ScanOptions, SourceError, SourceOptions, open};
use kiln_tests::snapshot::of_tree;
use kiln_tests::temp::TempDir;
use kiln_tree::Tree;
use std::fs;
use std::path::Path;

const FILE: u32 = 0o100_644;
const SYMLINK: u32 = 0o120_777;

/// An archive under construction.
#[derive(Clone, Default)]
struct Archive(Vec<u8>);

impl Archive {
    /// Appends a newc member with its own inode number.
    fn member(self, name: &str, mode: u32, data: &[u8]) -> Self {
        let ino = self.0.len() as u32 + 1000;
        self.link(name, mode, (ino, 1), data)
    }

    /// Appends a newc member with an inode number and a number of links.
    fn link(self, name: &str, mode: u32, (ino, nlink): (u32, u32), data: &[u8]) -> Self {
        let name = [name.as_bytes(), b"\0"].concat();
        let fields = [ino, mode, 7, 8, nlink, 99, data.len() as u32, 0, 1, 0, 0, name.len() as u32, 0];
        self.raw("070701", &fields, &name, data)
    }

    fn raw(mut self, magic: &str, fields: &[u32], name: &[u8], data: &[u8]) -> Self {
        self.0.extend_from_slice(magic.as_bytes());
        fields.iter().for_each(|field| self.0.extend(format!("{field:08X}").bytes()));
        for part in [name, data] {
            self.0.extend_from_slice(part);
            self.0.resize(self.0.len().next_multiple_of(4), 0);
        }
        self
    }

    fn end(self) -> Vec<u8> {
        self.link("TRAILER!!!", 0, (0, 1), b"").0
    }
}

/// Returns the tree of the archive at `path`, as opened by [`open`].
fn scan(path: &Path) -> Result<Tree, SourceError> {
    open(path, &SourceOptions::default())?.scan(&ScanOptions::new(&GOING)).map(|scan| scan.tree)
}

/// Returns the tree of the archive `bytes`.
fn scan_bytes(bytes: &[u8]) -> Result<Tree, SourceError> {
    let dir = TempDir::in_memory("cpio").unwrap();
    fs::write(dir.join("a.cpio"), bytes).unwrap();
    scan(&dir.join("a.cpio"))
}

/// Returns the error for the archive `bytes`, without its name.
fn error_of(bytes: &[u8]) -> String {
    let message = scan_bytes(bytes).map(drop).unwrap_err().to_string();
    message.split_once(": ").unwrap().1.to_owned()
}

fn paths(tree: &Tree) -> Vec<String> {
    of_tree(tree).unwrap().into_keys().map(|path| path.escape_ascii().to_string()).collect()
}

fn contents(tree: &Tree, path: &str) -> Vec<u8> {
    let id = tree.find(path.split('/').map(str::as_bytes)).unwrap();
    let kiln_tree::Kind::File { len, .. } = tree.node(id).kind else { panic!("{path} is no file") };
    let mut bytes = vec![0xA5; len as usize];
    tree.open(id).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

//! Golden images and their expected trees, for the tests beside this folder.
#![allow(dead_code)] // each test program uses a part of it

pub mod handmade;
pub mod noting;

use kiln_read::{FileSource, Image, ImageOptions, Inode, ReadAt, ReadError};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// One line of the manifest.
pub struct Golden {
    pub name: String,
    pub tree: String,
}

pub fn dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

pub fn manifest() -> Vec<Golden> {
    let text = std::fs::read_to_string(dir().join("MANIFEST.tsv")).unwrap();
    let golden = |line: &str| {
        let mut fields = line.split('\t').map(str::to_owned);
        Golden { name: fields.next().unwrap(), tree: fields.next().unwrap() }
    };
    let list: Vec<_> = text.lines().skip(1).map(golden).collect();
    assert_eq!(list.len(), 36);
    list
}

/// The image of a name, which is one of the manifest's.
pub fn named(name: &str) -> Golden {
    manifest().into_iter().find(|golden| golden.name == name).unwrap()
}

/// The image of mkcomposefs, which is in a folder of its own: its files are not all in it.
pub fn composefs() -> Golden {
    Golden { name: "composefs/image".into(), tree: "composefs".into() }
}

impl Golden {
    pub fn path(&self) -> PathBuf {
        dir().join(format!("{}.erofs", self.name))
    }

    pub fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap()
    }

    /// The extra devices: one, or none.
    pub fn device_paths(&self) -> Vec<PathBuf> {
        Vec::from_iter(Some(dir().join(format!("{}.blob", self.name))).filter(|path| path.exists()))
    }

    pub fn devices(&self) -> Vec<Arc<dyn ReadAt>> {
        let open = |path: &PathBuf| Arc::new(FileSource::open(path).unwrap()) as Arc<dyn ReadAt>;
        self.device_paths().iter().map(open).collect()
    }

    pub fn open(&self) -> Image {
        Image::open_path(&self.path(), &self.device_paths(), &ImageOptions::default()).unwrap()
    }

    /// The expected tree by path.
    pub fn expected(&self) -> BTreeMap<Vec<u8>, Value> {
        let text = std::fs::read_to_string(dir().join(format!("tree-{}.jsonl", self.tree))).unwrap();
        let entry = |line: &str| {
            let value: Value = serde_json::from_str(line).unwrap();
            (latin1(value["path"].as_str().unwrap()), value)
        };
        text.lines().map(entry).collect()
    }
}

/// Bytes written as code points.
pub fn latin1(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).expect("a code point below 256")).collect()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub fn read_whole(image: &Image, inode: &Inode) -> Result<Vec<u8>, ReadError> {
    let mut contents = vec![0; inode.meta.size as usize];
    let len = image.read_at(inode, &mut contents, 0)?;
    assert_eq!(len, contents.len());
    Ok(contents)
}

/// Regular files of an image, with paths.
pub fn regular_files(image: &Image) -> Vec<(Vec<u8>, Inode)> {
    let root = image.inode(image.root_nid()).unwrap();
    let entries = image.walk(&root, b"/").map(Result::unwrap);
    let files = entries.filter(|e| e.inode.meta.file_type == kiln_format::inode::FileType::Regular);
    files.map(|e| (e.path, e.inode)).collect()
}

/// A small generator of numbers for tests (xorshift64*): the same on every machine.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `end`, which must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}

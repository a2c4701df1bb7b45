//! Shared by the tests: tiny images made by hand.

use kiln_format::chunk::{ChunkEntry, ChunkFormat};
use kiln_format::dirent::{DIRENT_LEN, Dirent, encode_block};
use kiln_format::inode::{CompactTimes, Epoch, FileType, Inode, InodeData, Rdev};
use kiln_format::superblock::{SUPERBLOCK_OFF, Superblock};
use kiln_format::{Blkaddr, BlockBits, Incompat, Nid};
use kiln_read::{Image, ImageOptions, MemorySource};
use kiln_tests::records::{plain_inode, plain_superblock};
use std::sync::Arc;

/// A node of a tiny image.
pub enum Node {
    Dir(Vec<(&'static str, Node)>),
    File(Vec<u8>),
    /// Chunks of 1 MiB; `None` is a hole.
    Chunks(Vec<Option<Vec<u8>>>),
    Symlink(&'static str),
    CharDevice,
    Fifo,
}

const BLOCK_LEN: usize = 4096;
const META_SLOTS: usize = 32; // nids are slots of 32 bytes; every inode gets this many
const CHUNK_LEN: usize = 1 << 20;

/// Returns an image of `root` with uncompressed blocks and extended inodes. Names are written
/// unchecked, in the given order.
pub fn image(root: Node) -> Image {
    let mut maker = Maker { data: vec![0; BLOCK_LEN], inodes: Vec::new() };
    maker.inodes.push(Vec::new());
    maker.fill(0, 0, &root);
    let meta_block = maker.data.len() / BLOCK_LEN;
    let mut bytes = maker.data;
    for inode in maker.inodes {
        let end = bytes.len() + META_SLOTS * 32;
        bytes.extend(inode);
        assert!(bytes.len() <= end);
        bytes.resize(end, 0);
    }
    bytes.resize(bytes.len().next_multiple_of(BLOCK_LEN), 0);
    let superblock = Superblock {
        incompat: Incompat::CHUNKED_FILE,
        blocks: (bytes.len() / BLOCK_LEN) as u64,
        meta_blkaddr: Blkaddr(meta_block as u64),
        ..plain_superblock(BlockBits::DEFAULT)
    };
    let superblock = superblock.encode().unwrap();
    bytes[SUPERBLOCK_OFF as usize..][..superblock.len()].copy_from_slice(&superblock);
    Image::open(Arc::new(MemorySource::new(bytes)), Vec::new(), &ImageOptions::default()).unwrap()
}

struct Maker {
    data: Vec<u8>,
    inodes: Vec<Vec<u8>>,
}

impl Maker {
    fn append(&mut self, bytes: &[u8]) -> u32 {
        let block = self.data.len() / BLOCK_LEN;
        self.data.extend_from_slice(bytes);
        self.data.resize(self.data.len().next_multiple_of(BLOCK_LEN), 0);
        block as u32
    }

    /// Stores bytes in separate blocks.
    fn flat(&mut self, bytes: &[u8]) -> InodeData {
        InodeData::FlatPlain(Some(Blkaddr(self.append(bytes).into())))
    }

    fn fill(&mut self, idx: usize, parent: usize, node: &Node) {
        let (file_type, size, data, table) = match node {
            Node::Dir(entries) => {
                let block = self.directory(idx, parent, entries);
                (FileType::Directory, BLOCK_LEN, self.flat(&block), Vec::new())
            }
            Node::File(bytes) => (FileType::Regular, bytes.len(), self.flat(bytes), Vec::new()),
            Node::Chunks(chunks) => {
                let starts = chunks.iter().map(|chunk| chunk.as_ref().map_or(u32::MAX, |bytes| self.append(bytes)));
                let table = starts.flat_map(u32::to_le_bytes).collect();
                let format = ChunkFormat { chunk_bits: 20, entry: ChunkEntry::BlockMap };
                (FileType::Regular, chunks.len() * CHUNK_LEN, InodeData::ChunkBased(Ok(format)), table)
            }
            Node::Symlink(target) => (FileType::Symlink, target.len(), self.flat(target.as_bytes()), Vec::new()),
            Node::CharDevice => (FileType::CharDevice, 0, InodeData::Device(Rdev { major: 1, minor: 3 }), Vec::new()),
            Node::Fifo => (FileType::Fifo, 0, InodeData::Nothing, Vec::new()),
        };
        let inode = Inode {
            ino: idx as u32 + 1,
            mtime: 1_600_000_000,
            mtime_nsec: 5,
            nlink: if file_type == FileType::Directory { 2 } else { 1 },
            ..plain_inode(file_type, data, size as u64)
        };
        self.inodes[idx] =
            [inode.encode(Epoch::default(), CompactTimes::Shared, BlockBits::DEFAULT).unwrap(), table].concat();
    }

    fn directory(&mut self, idx: usize, parent: usize, entries: &[(&str, Node)]) -> Vec<u8> {
        let nid = |idx: usize| Nid((idx * META_SLOTS) as u64);
        let dirent = |idx, name| Dirent { nid: nid(idx), file_type: 0, name };
        let mut dirents = vec![dirent(idx, &b"."[..]), dirent(parent, &b".."[..])];
        for (name, node) in entries {
            let child = self.inodes.len();
            self.inodes.push(Vec::new());
            self.fill(child, idx, node);
            dirents.push(dirent(child, name.as_bytes()));
        }
        let mut block = vec![0; BLOCK_LEN];
        // The encoder refuses hostile names, so it gets harmless ones of the same lengths, which
        // are replaced afterwards.
        let harmless: Vec<_> = dirents.iter().map(|dirent| vec![b'x'; dirent.name.len()]).collect();
        let accepted: Vec<_> = dirents.iter().zip(&harmless).map(|(dirent, name)| Dirent { name, ..*dirent }).collect();
        encode_block(&accepted, &mut block).unwrap();
        let names = dirents.iter().map(|dirent| dirent.name).collect::<Vec<_>>().concat();
        block[dirents.len() * DIRENT_LEN..][..names.len()].copy_from_slice(&names);
        block
    }
}

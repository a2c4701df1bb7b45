//! A naive writer of images with one file, for what no golden image has. It follows the format's
//! description with the plainest means: an entry for each lcluster in a list, bytes put where they
//! belong.
#![allow(dead_code)] // each test program uses a part of it

use super::Rng;
use kiln_codec::{Encoder, Method, Spec};
use kiln_format::chunk::ChunkFormat;
use kiln_format::compr_cfg::{Algorithm, ComprCfgs, Lz4Cfg};
use kiln_format::dirent::{Dirent, encode_block};
use kiln_format::inode::{CompactTimes, DataLayout, Epoch, FileType, IndexKind, Inode, InodeData};
use kiln_format::superblock::{ComprInfo, SUPERBLOCK_OFF, Superblock, checksum, checksum_len};
use kiln_format::{Blkaddr, BlockBits, Compat, Incompat, Nid};
use kiln_tests::records::{plain_inode, plain_superblock};

/// Byte offset of nid 0.
pub const META_OFF: u64 = 64 << 10;
/// The file's nid: its map ends far before the data.
pub const FILE_NID: Nid = Nid(16);
/// Nid of the packed inode, or of another helper.
pub const HELPER_NID: Nid = Nid(32 << 10);
/// Byte offset of the first block of data.
pub const DATA_OFF: u64 = 4 << 20;

pub fn algorithms() -> ComprCfgs {
    ComprCfgs {
        lz4: Some(Lz4Cfg { max_distance: 65535, max_pclusterblks: 256 }),
        lzma_dict_size: Some(1 << 20),
        deflate_windowbits: Some(15),
        zstd_windowlog: Some(20),
    }
}

pub struct Handmade {
    pub sb: Superblock,
    pub bytes: Vec<u8>,
    /// Place of the next data.
    pub next: u64,
}

impl Handmade {
    pub fn new(block_bits: u8) -> Self {
        let block_bits = BlockBits::new(block_bits).unwrap();
        let sb = Superblock {
            compat: Compat::SB_CHKSUM,
            incompat: Incompat::all().difference(Incompat::METABOX | Incompat::FRAGMENTS),
            inos: 2,
            epoch: 1_700_000_000,
            fixed_nsec: 5,
            meta_blkaddr: Blkaddr(META_OFF / block_bits.len()),
            compr_info: ComprInfo::AvailableAlgs(algorithms().algorithms()),
            ..plain_superblock(block_bits)
        };
        Self { sb, bytes: vec![0; DATA_OFF as usize], next: DATA_OFF }
    }

    pub fn block_len(&self) -> u64 {
        self.sb.block_bits.len()
    }

    pub fn put(&mut self, at: u64, bytes: &[u8]) {
        let end = at as usize + bytes.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[at as usize..end].copy_from_slice(bytes);
    }

    /// Put bytes behind the data so far. Returns their address.
    pub fn append(&mut self, bytes: &[u8]) -> u64 {
        let at = self.next;
        self.put(at, bytes);
        self.next = at + bytes.len() as u64;
        at
    }

    /// Let the next data start at a block.
    pub fn align(&mut self) {
        self.next = self.next.next_multiple_of(self.block_len());
    }

    /// An extended regular file: 64 bytes without attributes. Flat at block `u32::MAX`: a hole.
    pub fn file(&self, layout: DataLayout, size: u64, i_u: u32) -> Inode {
        let start = Blkaddr(i_u.into());
        let data = match layout {
            DataLayout::FlatPlain => InodeData::FlatPlain((i_u != u32::MAX).then_some(start)),
            DataLayout::FlatInline => InodeData::FlatInline(start),
            DataLayout::ChunkBased => InodeData::ChunkBased(ChunkFormat::decode(i_u, self.sb.block_bits)),
            DataLayout::CompressedFull => InodeData::Compressed { index: IndexKind::Full, blocks: i_u },
            DataLayout::CompressedCompact => InodeData::Compressed { index: IndexKind::Compact, blocks: i_u },
        };
        let plain = plain_inode(FileType::Regular, data, size);
        Inode { permissions: 0o644, mtime: self.sb.epoch, mtime_nsec: self.sb.fixed_nsec, nlink: 1, ..plain }
    }

    /// Byte offset of an inode in the image.
    pub fn inode_off(nid: Nid) -> u64 {
        META_OFF + nid.0 * 32
    }

    /// Put an inode and what lies directly behind it.
    pub fn inode(&mut self, nid: Nid, inode: &Inode, body: &[u8]) {
        let epoch = Epoch { secs: self.sb.epoch, nsec: self.sb.fixed_nsec };
        let head = inode.encode(epoch, CompactTimes::Shared, self.sb.block_bits).unwrap();
        self.put(Self::inode_off(nid), &[&head, body].concat());
    }

    /// Put a directory with one file at nid 0, the superblock, and give out the image.
    pub fn finish(mut self) -> Vec<u8> {
        let entry = |nid, file_type, name| Dirent { nid, file_type, name };
        let entries = [entry(Nid(0), 2, &b"."[..]), entry(Nid(0), 2, b".."), entry(FILE_NID, 1, b"f")];
        let mut block = [0; 3 * 12 + 4];
        encode_block(&entries, &mut block).unwrap();
        let file_type = FileType::Directory;
        let dir = self.file(DataLayout::FlatInline, block.len() as u64, 0);
        self.inode(Nid(0), &Inode { file_type, nlink: 2, permissions: 0o755, ..dir }, &block);
        self.align();
        self.bytes.resize(self.bytes.len().max(self.next as usize).next_multiple_of(self.block_len() as usize), 0);
        self.sb.blocks = self.bytes.len() as u64 / self.block_len();
        let mut head = self.sb.encode().unwrap();
        if self.sb.incompat.contains(Incompat::COMPR_CFGS) {
            head.extend(algorithms().encode().unwrap());
        }
        self.put(SUPERBLOCK_OFF, &head);
        let start = SUPERBLOCK_OFF as usize;
        let sum = checksum(&self.bytes[start..start + checksum_len(self.sb.block_bits)]);
        self.put(SUPERBLOCK_OFF + 4, &sum.to_le_bytes());
        self.bytes
    }
}

/// Text that compresses to about a third.
pub fn text(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len + 16);
    while out.len() < len {
        match rng.below(4) {
            0 => out.extend((rng.next() as u32).to_le_bytes()),
            1 => out.extend(b"some words, "),
            2 => out.extend(b"other words. "),
            _ => out.extend([rng.below(256) as u8; 9]),
        }
    }
    out.truncate(len);
    out
}

/// The whole of `plain` as one stream, without padding.
pub fn encode(algorithm: Algorithm, plain: &[u8]) -> Vec<u8> {
    let method = match algorithm {
        Algorithm::Lz4 => Method::Lz4,
        Algorithm::Lzma => Method::Lzma,
        Algorithm::Deflate => Method::Deflate,
        Algorithm::Zstd => Method::Zstd,
    };
    let level = (method == Method::Lzma).then_some(1);
    let spec = Spec::new(method, level, 1 << 20).unwrap();
    let mut out = vec![0; 1 << 20];
    let filled = Encoder::new(&spec).unwrap().fill(plain, &mut out).unwrap();
    assert_eq!(filled.consumed, plain.len(), "the test's extents compress to less than 1 MiB");
    out.truncate(filled.produced);
    out
}

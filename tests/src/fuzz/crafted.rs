//! A small image around one inode that the fuzzer writes, so that it reaches the inode's map and
//! attributes directly, without having to guess a superblock and a directory.

use crate::records::{plain_inode, plain_superblock};
use kiln_format::compr_cfg::{ComprCfgs, Lz4Cfg};
use kiln_format::dirent::{Dirent, encode_block};
use kiln_format::inode::{CompactTimes, Epoch, FileType, Inode, InodeData};
use kiln_format::superblock::{ComprInfo, SUPERBLOCK_OFF, Superblock};
use kiln_format::{Blkaddr, BlockBits, Incompat, Nid};
use kiln_read::{Image, ImageOptions, MemorySource, ReadAt, ReadError};
use std::sync::Arc;

/// Nid of the inode that the fuzzer writes.
pub const NID: Nid = Nid(8);
/// Nid of the packed inode, which covers the data area.
const PACKED_NID: Nid = Nid(4);
/// Maximum number of bytes of the inode and the data beside it.
pub const INODE_MAX_LEN: usize = 4096;
/// Maximum number of bytes of the data area.
pub const DATA_MAX_LEN: usize = 8192;

/// The image under construction.
pub struct Crafted {
    pub sb: Superblock,
    /// Bytes of the inode, and those after it.
    pub inode: Vec<u8>,
    /// Bytes of the data area, which begins at [`Crafted::data_off`].
    pub data: Vec<u8>,
}

impl Crafted {
    pub fn new(block_bits: BlockBits) -> Self {
        let sb = Superblock {
            incompat: Incompat::all().difference(Incompat::METABOX),
            inos: 2,
            meta_blkaddr: Blkaddr(meta_off(block_bits) / block_bits.len()),
            xattr_blkaddr: Blkaddr(data_off(block_bits) / block_bits.len()),
            compr_info: ComprInfo::AvailableAlgs(cfgs().algorithms()),
            xattr_prefix_off: data_off(block_bits),
            packed_nid: Some(PACKED_NID),
            ..plain_superblock(block_bits)
        };
        Self { sb, inode: Vec::new(), data: Vec::new() }
    }

    pub fn data_off(&self) -> u64 {
        data_off(self.sb.block_bits)
    }

    /// Opens the image. `blob` is its extra device, which continues the flat space.
    pub fn open(mut self, blob: Option<Vec<u8>>) -> Result<Image, ReadError> {
        let block_bits = self.sb.block_bits;
        let data_off = self.data_off();
        let end = data_off + DATA_MAX_LEN as u64 + block_bits.len();
        let mut bytes = vec![0; end.next_multiple_of(block_bits.len()) as usize];
        let mut put = |at: u64, part: &[u8]| {
            let at = at as usize;
            bytes[at..at + part.len()].copy_from_slice(part);
        };
        let at_nid = |nid: Nid| meta_off(block_bits) + nid.0 * 32;
        let mut root = [0; 3 * 12 + 4];
        let entry = |nid, file_type, name| Dirent { nid, file_type, name };
        let entries = [entry(Nid(0), 2, &b"."[..]), entry(Nid(0), 2, b".."), entry(NID, 1, b"f")];
        encode_block(&entries, &mut root).expect("there is room");
        let encoded = |inode: Inode| inode.encode(Epoch::default(), CompactTimes::Shared, block_bits).expect("fits");
        let dir = plain_inode(FileType::Directory, InodeData::FlatInline(Blkaddr(0)), root.len() as u64);
        put(at_nid(Nid(0)), &[encoded(dir), root.to_vec()].concat());
        let data_block = (data_off / block_bits.len()) as u32;
        let data = InodeData::FlatPlain(Some(Blkaddr(data_block.into())));
        let packed = plain_inode(FileType::Regular, data, DATA_MAX_LEN as u64);
        put(at_nid(PACKED_NID), &encoded(packed));
        put(at_nid(NID), &self.inode[..self.inode.len().min(INODE_MAX_LEN)]);
        put(data_off, &self.data[..self.data.len().min(DATA_MAX_LEN)]);
        if let Some(blob) = &blob {
            // The slot is after the configuration records.
            self.sb.extra_devices = 1;
            self.sb.devt_off = 1536;
            let blocks = (blob.len() as u64 / block_bits.len()) as u32;
            put(self.sb.devt_off + 64, &[blocks.to_le_bytes(), (data_block + 2).to_le_bytes()].concat());
        }
        let head = self.sb.encode()?;
        put(SUPERBLOCK_OFF, &[head, cfgs().encode()?].concat());
        let source = |bytes| Arc::new(MemorySource::new(bytes)) as Arc<dyn ReadAt>;
        let options = ImageOptions::default().with_cache_bytes(1 << 20);
        Image::open(source(bytes), blob.map(source).into_iter().collect(), &options)
    }
}

/// Returns the byte offset of nid 0.
fn meta_off(block_bits: BlockBits) -> u64 {
    block_bits.len().max(2048)
}

fn data_off(block_bits: BlockBits) -> u64 {
    (meta_off(block_bits) + NID.0 * 32 + INODE_MAX_LEN as u64).next_multiple_of(block_bits.len())
}

/// Returns configurations of all algorithms, with small windows.
pub fn cfgs() -> ComprCfgs {
    ComprCfgs {
        lz4: Some(Lz4Cfg { max_distance: 65535, max_pclusterblks: 16 }),
        lzma_dict_size: Some(64 << 10),
        deflate_windowbits: Some(15),
        zstd_windowlog: Some(16),
    }
}

//! A small image around one inode that the fuzzer writes: so its map and its attributes are reached at once, not only
//! behind a superblock and a directory that the fuzzer would have to guess.

use kiln_format::compr_cfg::{ComprCfgs, Lz4Cfg};
use kiln_format::dirent::{Dirent, encode_block};
use kiln_format::inode::{CompactTimes, Epoch, FileType, Form, Inode, InodeData};
use kiln_format::superblock::{BASE_LEN, ComprInfo, SUPERBLOCK_OFF, Superblock};
use kiln_format::{Blkaddr, BlockBits, Compat, Incompat, Nid};
use kiln_read::{Image, ImageOptions, MemorySource, ReadAt, ReadError};
use std::sync::Arc;

/// The inode that the fuzzer writes.
pub const NID: Nid = Nid(8);
/// The packed inode: all of the data area.
const PACKED_NID: Nid = Nid(4);
/// Bytes that the inode and what is beside it may take.
pub const INODE_MAX_LEN: usize = 4096;
/// Bytes of the data area.
pub const DATA_MAX_LEN: usize = 8192;

/// The image in the making.
pub struct Crafted {
    pub sb: Superblock,
    /// The inode's bytes, and those behind it.
    pub inode: Vec<u8>,
    /// Bytes of the data area, which is at [`Crafted::data_off`].
    pub data: Vec<u8>,
}

impl Crafted {
    pub fn new(block_bits: BlockBits) -> Self {
        let sb = Superblock {
            block_bits,
            checksum: 0,
            compat: Compat::empty(),
            incompat: Incompat::all().difference(Incompat::METABOX),
            root_nid: Nid(0),
            inos: 2,
            epoch: 0,
            fixed_nsec: 0,
            blocks: 0,
            meta_blkaddr: Blkaddr(meta_off(block_bits) / block_bits.len()),
            xattr_blkaddr: Blkaddr(data_off(block_bits) / block_bits.len()),
            uuid: [0; 16],
            volume_name: [0; 16],
            compr_info: ComprInfo::AvailableAlgs(cfgs().algorithms()),
            extra_devices: 0,
            devt_off: 0,
            xattr_prefix_count: 0,
            xattr_prefix_off: data_off(block_bits),
            xattr_filter_reserved: 0,
            ishare_xattr_prefix_id: 0,
            packed_nid: Some(PACKED_NID),
            build_time: 0,
            metabox_nid: None,
            record_len: BASE_LEN as u64,
        };
        Self { sb, inode: Vec::new(), data: Vec::new() }
    }

    pub fn data_off(&self) -> u64 {
        data_off(self.sb.block_bits)
    }

    /// An inode with this much of everything, for those that do not come from the fuzzer.
    pub fn plain_inode(file_type: FileType, data: InodeData, size: u64) -> Inode {
        Inode {
            form: Form::Extended,
            data,
            omits_dot: false,
            implies_nlink: false,
            xattr_icount: 0,
            file_type,
            permissions: 0o755,
            size,
            ino: 0,
            uid: 0,
            gid: 0,
            mtime: 0,
            mtime_nsec: 0,
            nlink: 2,
        }
    }

    /// Open the image. With `blob`, that is its extra device, which continues the flat space.
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
        let dir = Self::plain_inode(FileType::Directory, InodeData::FlatInline(Blkaddr(0)), root.len() as u64);
        put(at_nid(Nid(0)), &[encoded(dir), root.to_vec()].concat());
        let data_block = (data_off / block_bits.len()) as u32;
        let data = InodeData::FlatPlain(Some(Blkaddr(data_block.into())));
        let packed = Self::plain_inode(FileType::Regular, data, DATA_MAX_LEN as u64);
        put(at_nid(PACKED_NID), &encoded(packed));
        put(at_nid(NID), &self.inode[..self.inode.len().min(INODE_MAX_LEN)]);
        put(data_off, &self.data[..self.data.len().min(DATA_MAX_LEN)]);
        if let Some(blob) = &blob {
            // The slot lies behind the configuration records.
            self.sb.extra_devices = 1;
            self.sb.devt_off = 1536;
            let blocks = (blob.len() as u64 / block_bits.len()) as u32;
            put(self.sb.devt_off + 64, &[blocks.to_le_bytes(), (data_block + 2).to_le_bytes()].concat());
        }
        let head = self.sb.encode()?;
        put(SUPERBLOCK_OFF, &[head, cfgs().encode()?].concat());
        let source = |bytes| Arc::new(MemorySource::new(bytes)) as Arc<dyn ReadAt>;
        let options = ImageOptions { cache_bytes: 1 << 20, ..ImageOptions::default() };
        Image::open(source(bytes), blob.map(source).into_iter().collect(), &options)
    }
}

/// Byte offset of nid 0.
fn meta_off(block_bits: BlockBits) -> u64 {
    block_bits.len().max(2048)
}

fn data_off(block_bits: BlockBits) -> u64 {
    (meta_off(block_bits) + NID.0 * 32 + INODE_MAX_LEN as u64).next_multiple_of(block_bits.len())
}

/// All algorithms, with small windows.
pub fn cfgs() -> ComprCfgs {
    ComprCfgs {
        lz4: Some(Lz4Cfg { max_distance: 65535, max_pclusterblks: 16 }),
        lzma_dict_size: Some(64 << 10),
        deflate_windowbits: Some(15),
        zstd_windowlog: Some(16),
    }
}

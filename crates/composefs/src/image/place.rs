//! Places of inodes: tails, blocks, positions.

use super::entries::{Filling, entries};
use super::prepare::{Contents, Prepared};
use super::xattrs::Xattrs;
use kiln_digest::fsverity::BLOCK_LEN;
use kiln_format::chunk::{ChunkEntry, ChunkFormat};
use kiln_format::inode::Form;
use kiln_format::superblock::{BASE_LEN, SUPERBLOCK_OFF};
use kiln_format::{BlockBits, FormatError, xattr};

const BLOCK: u64 = BLOCK_LEN as u64;
const SLOT: u64 = kiln_format::addr::SLOT_LEN;
/// Longest tail beside an inode that composefs makes of contents.
const TAIL_MAX_LEN: usize = BLOCK_LEN / 2;
/// Largest log2 of a chunk's size: 31 more than that of a block.
const CHUNK_MAX_BITS: u32 = BlockBits::DEFAULT.bits() as u32 + kiln_format::chunk::CHUNK_MAX_SHIFT as u32;

/// Place of an inode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Offset in the image in bytes.
    pub(super) pos: u64,
    pub(super) form: Form,
    pub(super) icount: u16,
    /// Number of blocks of data.
    pub(super) blocks: u32,
    /// Bytes of data behind the inode and its attributes.
    pub(super) tail: u32,
}

/// Places of all inodes, and of what follows them.
pub(super) struct Places {
    pub(super) inodes: Vec<Place>,
    /// End of the inodes: begin of the shared attributes.
    pub(super) inodes_end: u64,
    /// Begin of the blocks of data.
    pub(super) data_start: u64,
    /// Number of all blocks of data.
    pub(super) data_blocks: u64,
    /// Time of compact inodes.
    pub(super) time: (i64, u32),
}

impl Places {
    pub(super) fn new(prepared: &Prepared<'_>, xattrs: &Xattrs<'_>) -> Result<Self, FormatError> {
        let time = prepared.least_mtime();
        let mut end = SUPERBLOCK_OFF + BASE_LEN as u64;
        let (mut inodes, mut data_blocks) = (Vec::with_capacity(prepared.order.len()), 0);
        for (number, &item) in prepared.order.iter().enumerate() {
            let attributes = prepared.attributes(item);
            let contents = prepared.contents(item);
            let (blocks, tail) = match contents {
                Contents::Directory => {
                    let mut filling = Filling::default();
                    entries(prepared, item).for_each(|entry| {
                        filling.add(entry.name);
                    });
                    promoted(filling.finish())
                }
                Contents::Inline(contents) => {
                    promoted(((contents.len() / BLOCK_LEN) as u32, contents.len() % BLOCK_LEN))
                }
                Contents::Symlink(target) => (0, target.len()),
                Contents::External { size } => (0, (chunks(size).count(size) * ChunkEntry::BlockMap.len()) as usize),
                Contents::Nothing | Contents::Device(_) => (0, 0),
            };
            let is_small = prepared.nlink(item) <= u16::MAX.into()
                && attributes.uid <= u16::MAX.into()
                && attributes.gid <= u16::MAX.into()
                && size(&contents, blocks, tail) <= u32::MAX.into();
            let is_compact = is_small && (attributes.mtime, attributes.mtime_nsec) == time;
            let form = if is_compact { Form::Compact } else { Form::Extended };
            let body_len = xattrs.body_len(number);
            let icount = xattr::icount(body_len)?;
            let head = (form.len() + body_len) as u64;
            let at = end.next_multiple_of(SLOT);
            let (pos, added, tail) = match contents {
                Contents::Symlink(_) => place_symlink(at, head, tail as u64),
                _ => place(at, head, tail as u64),
            };
            end = pos + head + tail;
            let blocks = blocks + added;
            data_blocks += u64::from(blocks);
            inodes.push(Place { pos, form, icount, blocks, tail: tail as u32 });
        }
        let inodes_end = end.next_multiple_of(SLOT);
        let data_start = (inodes_end + xattrs.table_len).next_multiple_of(BLOCK);
        Ok(Self { inodes, inodes_end, data_start, data_blocks, time })
    }
}

/// Returns the size of an inode. `blocks` and `tail` are those before it got its place.
pub(super) fn size(contents: &Contents<'_>, blocks: u32, tail: usize) -> u64 {
    match contents {
        Contents::Directory => u64::from(blocks) * BLOCK + tail as u64,
        Contents::Inline(bytes) | Contents::Symlink(bytes) => bytes.len() as u64,
        Contents::External { size } => *size,
        Contents::Nothing | Contents::Device(_) => 0,
    }
}

/// Returns the chunk format of an external file: one chunk, or several of the largest size.
pub(super) fn chunks(size: u64) -> ChunkFormat {
    let needed = u64::BITS - (size - 1).leading_zeros();
    let bits = needed.clamp(BlockBits::DEFAULT.bits().into(), CHUNK_MAX_BITS);
    ChunkFormat { chunk_bits: bits as u8, entry: ChunkEntry::BlockMap }
}

/// Makes a long tail a block.
fn promoted((blocks, tail): (u32, usize)) -> (u32, usize) {
    if tail > TAIL_MAX_LEN { (blocks + 1, 0) } else { (blocks, tail) }
}

/// Returns the position of an inode from `at` on whose tail must not cross the end of a block, the
/// number of blocks that its tail takes, and the length of the tail beside the inode.
fn place(at: u64, head: u64, tail: u64) -> (u64, u32, u64) {
    let room = |pos: u64| BLOCK - (pos + head) % BLOCK;
    if room(at) >= tail {
        return (at, 0, tail);
    }
    let moved = at + room(at).next_multiple_of(SLOT);
    if room(moved) >= tail { (moved, 0, tail) } else { (at.next_multiple_of(BLOCK), 1, 0) }
}

/// Same for a symbolic link, all of whose inode must be in the block of its target.
fn place_symlink(at: u64, head: u64, target: u64) -> (u64, u32, u64) {
    let total = head + target;
    // The target counts here even if it gets a block.
    let crosses = at / BLOCK != (at + total - 1) / BLOCK;
    let pos = if crosses { at.next_multiple_of(BLOCK) } else { at };
    if total >= BLOCK { (pos, 1, 0) } else { (pos, 0, target) }
}

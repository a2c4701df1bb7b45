//! Metadata: streams of records in blocks of 8 KiB. Each block is compressed separately and
//! preceded by its length.

use std::cell::RefCell;
use std::sync::Arc;

use super::blocks::{Blocks, StoredBlock};
use super::cache::Cache;
use super::problem::{Problem, corrupt};

/// Plain length in bytes of a metadata block; the last one of a stream may be shorter.
pub(super) const BLOCK_LEN: usize = 8 << 10;
/// Maximum number of decoded blocks in memory (32 MiB).
const CACHED_COUNT: usize = 4096;
/// Bit in the header of a block that is stored uncompressed.
const PLAIN: u16 = 0x8000;

/// Position of a record: offset of a metadata block in its table, and offset in the block's plain
/// text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ref(pub u64);

impl Ref {
    pub(super) fn new(block_off: u32, byte: u16) -> Self {
        Self(u64::from(block_off) << 16 | u64::from(byte))
    }

    /// Returns the offset of the block in its table.
    fn block_off(self) -> u64 {
        self.0 >> 16
    }

    /// Returns the offset in the plain text of the block.
    fn byte(self) -> usize {
        (self.0 & 0xFFFF) as usize
    }
}

struct Block {
    plain: Box<[u8]>,
    /// Offset in the image of the end of the block, where the stream continues.
    end: u64,
}

/// Metadata of an image.
pub(super) struct Metadata {
    blocks: Arc<Blocks>,
    cache: RefCell<Cache<u64, Arc<Block>>>,
}

impl Metadata {
    pub(super) fn new(blocks: Arc<Blocks>) -> Self {
        Self { blocks, cache: RefCell::new(Cache::new(CACHED_COUNT)) }
    }

    pub(super) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Opens the stream at `at`, in the table that starts at byte `table_off` of the image.
    ///
    /// # Errors
    /// A damaged or missing block; a position beyond its end.
    pub(super) fn cursor(&self, table_off: u64, at: Ref) -> Result<Cursor<'_>, Problem> {
        let offset = table_off.saturating_add(at.block_off());
        let block = self.block(offset)?;
        if at.byte() > block.plain.len() {
            let message =
                format!("a reference to byte {} of a metadata block of {} bytes", at.byte(), block.plain.len());
            return Err(corrupt(offset, message));
        }
        Ok(Cursor { metadata: self, block, offset, byte: at.byte() })
    }

    /// Returns the block at byte `offset` of the image.
    fn block(&self, offset: u64) -> Result<Arc<Block>, Problem> {
        if let Some(block) = self.cache.borrow_mut().get(&offset) {
            return Ok(block);
        }
        let mut header = [0; 2];
        self.blocks.read(&mut header, offset, "the header of a metadata block")?;
        let header = u16::from_le_bytes(header);
        let (len, start) = (u64::from(header & !PLAIN), offset + 2);
        if len == 0 || len > BLOCK_LEN as u64 {
            return Err(corrupt(offset, format!("a metadata block of {len} bytes")));
        }
        let end = start + len;
        let mut plain = vec![0; BLOCK_LEN];
        let stored = StoredBlock { range: start..end, is_compressed: header & PLAIN == 0 };
        let len = self.blocks.decode(&stored, &mut Vec::new(), &mut plain)?;
        plain.truncate(len);
        let block = Arc::new(Block { plain: plain.into(), end });
        self.cache.borrow_mut().insert(offset, Arc::clone(&block));
        Ok(block)
    }
}

/// Position in a stream of metadata.
pub(super) struct Cursor<'a> {
    metadata: &'a Metadata,
    block: Arc<Block>,
    /// Offset of the current block in the image, in bytes.
    offset: u64,
    byte: usize,
}

impl Cursor<'_> {
    /// Returns the offset of the current block in the image, for messages.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Fills `buf`, from as many blocks as needed.
    ///
    /// # Errors
    /// A damaged or missing block.
    pub(super) fn read(&mut self, mut buf: &mut [u8]) -> Result<(), Problem> {
        loop {
            let rest = &self.block.plain[self.byte..];
            let part = rest.len().min(buf.len());
            let (front, back) = buf.split_at_mut(part);
            front.copy_from_slice(&rest[..part]);
            self.byte += part;
            if back.is_empty() {
                return Ok(());
            }
            buf = back;
            let offset = self.block.end;
            (self.block, self.offset, self.byte) = (self.metadata.block(offset)?, offset, 0);
            if self.block.plain.is_empty() {
                return Err(corrupt(offset, "an empty metadata block"));
            }
        }
    }

    /// Reads the next `N` bytes.
    ///
    /// # Errors
    /// Those of [`Cursor::read`].
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        let mut bytes = [0; N];
        self.read(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads the next `len` bytes. The caller must have limited `len`.
    ///
    /// # Errors
    /// Those of [`Cursor::read`].
    pub(super) fn vec(&mut self, len: usize) -> Result<Vec<u8>, Problem> {
        let mut bytes = vec![0; len];
        self.read(&mut bytes)?;
        Ok(bytes)
    }
}

//! Contents of files, decoded on demand.

use kiln_tree::{Content, ContentError, ContentId, PlainContents, Version};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::blocks::{BLOCK_LEN, Table, decode};
use super::volume::Volume;

/// Maximum number of blocks per read.
const WINDOW_COUNT: usize = 32;

/// Position of a file's block table.
#[derive(Clone, Copy, Debug)]
pub(super) struct File {
    /// Offset of the table in bytes.
    pub off: u32,
    /// Length of the contents in bytes.
    pub len: u32,
}

/// Contents of all files of an image.
pub(super) struct ImageContents {
    pub volume: Arc<Volume>,
    pub files: Vec<File>,
}

impl PlainContents for ImageContents {
    fn open_plain(&self, id: ContentId, _: &[u8], _: Version) -> Result<Box<dyn Content>, ContentError> {
        let file = self.files[id.0 as usize];
        Ok(Box::new(ImageContent::open(Arc::clone(&self.volume), file)?))
    }
}

/// Reads all contents of `file`, which must be short.
///
/// # Errors
/// Damaged blocks; read errors.
pub(super) fn read_all(volume: &Volume, file: File) -> io::Result<Vec<u8>> {
    let table = Table::read(volume, file.off.into(), file.len.into())?;
    let mut plain = vec![0; file.len as usize];
    for (idx, plain) in plain.chunks_mut(BLOCK_LEN).enumerate() {
        let Range { start, end } = table.packed(idx);
        decode(&volume.read_vec(start, end - start)?, start, plain)?;
    }
    Ok(plain)
}

/// Contents of a file.
struct ImageContent {
    volume: Arc<Volume>,
    len: u64,
    table: Table,
    /// Compressed blocks of the last read.
    window: Vec<u8>,
    /// Offset of `window` in the image, in bytes.
    window_off: u64,
    /// Index of the block decoded in `plain`.
    last: Option<usize>,
    plain: Vec<u8>,
}

impl ImageContent {
    fn open(volume: Arc<Volume>, file: File) -> io::Result<Self> {
        let table = Table::read(&volume, file.off.into(), file.len.into())?;
        let len = file.len.into();
        Ok(Self { volume, len, table, window: Vec::new(), window_off: 0, last: None, plain: Vec::new() })
    }

    /// Decodes block `idx` to `plain`. Blocks up to `last_idx` are read ahead.
    fn decode(&mut self, idx: usize, last_idx: usize, plain: &mut [u8]) -> io::Result<()> {
        let Range { start, end } = self.table.packed(idx);
        if start < self.window_off || end - self.window_off > self.window.len() as u64 {
            let window_end = self.table.packed(last_idx.min(idx + WINDOW_COUNT - 1)).end;
            // Left empty if the read fails.
            self.window.clear();
            self.window_off = start;
            self.window = self.volume.read_vec(start, window_end - start)?;
        }
        let at = (start - self.window_off) as usize;
        decode(&self.window[at..at + (end - start) as usize], start, plain)
    }

    /// Fills `buf` from byte `from` of block `idx`, for a read of a part of it.
    fn read_part(&mut self, buf: &mut [u8], idx: usize, from: usize) -> io::Result<()> {
        if self.last.take() != Some(idx) {
            let mut plain = std::mem::take(&mut self.plain);
            plain.resize(self.table.plain_len(idx), 0);
            self.decode(idx, idx, &mut plain)?;
            self.plain = plain;
        }
        self.last = Some(idx);
        buf.copy_from_slice(&self.plain[from..from + buf.len()]);
        Ok(())
    }
}

impl Content for ImageContent {
    fn read_exact_at(&mut self, mut buf: &mut [u8], off: u64) -> Result<(), ContentError> {
        let Some(end) = off.checked_add(buf.len() as u64).filter(|end| *end <= self.len) else {
            return Err(ContentError::Changed("it was read beyond its end"));
        };
        let (mut idx, mut from) = ((off / BLOCK_LEN as u64) as usize, (off % BLOCK_LEN as u64) as usize);
        let last_idx = (end.saturating_sub(1) / BLOCK_LEN as u64) as usize;
        while !buf.is_empty() {
            let plain_len = self.table.plain_len(idx);
            let (front, rest) = buf.split_at_mut((plain_len - from).min(buf.len()));
            match front.len() == plain_len {
                true => self.decode(idx, last_idx, front)?,
                false => self.read_part(front, idx, from)?,
            }
            (buf, idx, from) = (rest, idx + 1, 0);
        }
        Ok(())
    }

    fn next_data(&mut self, off: u64) -> Result<Option<Range<u64>>, ContentError> {
        if off >= self.len {
            return Ok(None);
        }
        let (table, count) = (&self.table, self.table.block_count());
        let first = ((off / BLOCK_LEN as u64) as usize..count).find(|idx| !table.is_hole(*idx));
        Ok(first.map(|first| {
            let end = (first..count).find(|idx| table.is_hole(*idx)).unwrap_or(count);
            off.max((first * BLOCK_LEN) as u64)..self.len.min((end * BLOCK_LEN) as u64)
        }))
    }

    fn verify_unchanged(&mut self) -> Result<(), ContentError> {
        Ok(())
    }
}

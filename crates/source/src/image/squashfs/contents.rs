//! Contents of the files of an image, decoded on demand.

use kiln_tree::{Content, ContentError, ContentId, PlainContents, Version};
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::blocks::{Blocks, StoredBlock};
use super::cache::Cache;
use super::problem::{Problem, corrupt};

/// Maximum length in bytes of decoded fragment blocks in memory, unless another one is asked for.
pub(super) const FRAGMENTS_LEN: u64 = 64 << 20;
/// Maximum number of blocks per run returned by [`Content::next_data`].
const RUN_MAX_COUNT: usize = 1024;

/// Position of a file's data.
#[derive(Clone, Debug)]
pub(super) struct File {
    /// Length in bytes.
    pub len: u64,
    /// Offset of the first block in the image, in bytes.
    pub start: u64,
    /// Range of its blocks in [`Files::blocks`].
    pub blocks: Range<usize>,
    /// Fragment block with the end of the file, and the offset in its plain text.
    pub fragment: Option<(StoredBlock, u32)>,
}

/// Positions of the data of all files.
#[derive(Default)]
pub(super) struct Files {
    pub files: Vec<File>,
    /// Blocks of all files.
    pub blocks: Vec<BlockEnd>,
}

/// End offset of a block in the image, and the flag that it is compressed. The block starts at the
/// end of the previous one; a block of length 0 is a hole.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockEnd(u64);

impl BlockEnd {
    pub(super) fn new(stored: &StoredBlock) -> Self {
        Self(stored.range.end << 1 | u64::from(stored.is_compressed))
    }

    fn end(self) -> u64 {
        self.0 >> 1
    }
}

impl Files {
    /// Returns the position of block `idx` of a file; an empty range is a hole.
    fn stored(&self, file: &File, idx: usize) -> StoredBlock {
        let blocks = &self.blocks[file.blocks.clone()];
        let start = if idx == 0 { file.start } else { blocks[idx - 1].end() };
        StoredBlock { range: start..blocks[idx].end(), is_compressed: blocks[idx].0 & 1 != 0 }
    }
}

/// A fragment block, decoded by the first thread that needs it, or the kind and text of its error.
type Fragment = OnceLock<Result<Box<[u8]>, (io::ErrorKind, String)>>;

/// Contents of all files.
pub(super) struct ImageContents(Arc<Shared>);

struct Shared {
    blocks: Arc<Blocks>,
    block_len: usize,
    files: Files,
    fragments: Mutex<Cache<StoredBlock, Arc<Fragment>>>,
}

impl ImageContents {
    /// Creates the contents of `files` in an image with blocks of `block_len` bytes. Fragment blocks of about
    /// `fragments_len` bytes stay in memory.
    pub(super) fn new(blocks: Arc<Blocks>, block_len: u32, files: Files, fragments_len: u64) -> Self {
        let count = usize::try_from(fragments_len / u64::from(block_len)).unwrap_or(usize::MAX);
        let block_len = block_len as usize;
        let fragments = Mutex::new(Cache::new(count));
        Self(Arc::new(Shared { blocks, block_len, files, fragments }))
    }
}

impl PlainContents for ImageContents {
    fn open_plain(&self, id: ContentId, _: &[u8], _: Version) -> Result<Box<dyn Content>, ContentError> {
        let shared = Arc::clone(&self.0);
        Ok(Box::new(ImageContent {
            shared,
            idx: id.0 as usize,
            fragment: None,
            last: None,
            plain: Vec::new(),
            packed: Vec::new(),
        }))
    }
}

impl Shared {
    /// Returns the fragment block at `stored`, which may not be decoded yet.
    fn fragment(&self, stored: &StoredBlock) -> Arc<Fragment> {
        let mut fragments = self.fragments.lock();
        fragments.get(stored).unwrap_or_else(|| {
            let fragment = Arc::<Fragment>::default();
            fragments.insert(stored.clone(), Arc::clone(&fragment));
            fragment
        })
    }

    fn decode_fragment(
        &self,
        stored: &StoredBlock,
        packed: &mut Vec<u8>,
    ) -> Result<Box<[u8]>, (io::ErrorKind, String)> {
        let mut plain = vec![0; self.block_len];
        match self.blocks.decode(stored, packed, &mut plain) {
            Ok(len) => {
                plain.truncate(len);
                Ok(plain.into())
            }
            Err(problem) => {
                let error = io::Error::from(problem);
                Err((error.kind(), error.to_string()))
            }
        }
    }
}

/// Contents of a file, with the most recently decoded block.
struct ImageContent {
    shared: Arc<Shared>,
    idx: usize,
    fragment: Option<Arc<Fragment>>,
    /// Index of the block decoded in `plain`.
    last: Option<usize>,
    plain: Vec<u8>,
    packed: Vec<u8>,
}

impl ImageContent {
    /// Fills `buf` from byte `from` of block `idx`, whose plain length is `plain_len`.
    fn read_block(&mut self, buf: &mut [u8], idx: usize, from: usize, plain_len: usize) -> Result<(), Problem> {
        if self.last == Some(idx) {
            buf.copy_from_slice(&self.plain[from..from + buf.len()]);
            return Ok(());
        }
        let (files, blocks) = (&self.shared.files, &self.shared.blocks);
        let stored = files.stored(&files.files[self.idx], idx);
        if stored.range.is_empty() {
            buf.fill(0);
            return Ok(());
        }
        let decode = |packed: &mut Vec<u8>, plain: &mut [u8]| {
            let len = blocks.decode(&stored, packed, plain)?;
            // A block shorter than the block size ends with zeros.
            if len < plain.len() && plain.len() < self.shared.block_len {
                let message = format!("a last block of {len} bytes where {} bytes are left", plain.len());
                return Err(corrupt(stored.range.start, message));
            }
            plain[len..].fill(0);
            Ok(())
        };
        if buf.len() == plain_len {
            return decode(&mut self.packed, buf);
        }
        self.last = None;
        self.plain.resize(plain_len, 0);
        decode(&mut self.packed, &mut self.plain)?;
        self.last = Some(idx);
        buf.copy_from_slice(&self.plain[from..from + buf.len()]);
        Ok(())
    }

    /// Fills `buf` from byte `from` of the part of the file in a fragment block.
    fn read_tail(&mut self, buf: &mut [u8], from: usize) -> Result<(), ContentError> {
        let file = &self.shared.files.files[self.idx];
        let Some((stored, start)) = &file.fragment else {
            return Err(ContentError::Changed("it was read beyond its end"));
        };
        let fragment = self.fragment.get_or_insert_with(|| self.shared.fragment(stored));
        let plain = match fragment.get_or_init(|| self.shared.decode_fragment(stored, &mut self.packed)) {
            Ok(plain) => plain,
            Err((kind, message)) => return Err(io::Error::new(*kind, message.clone()).into()),
        };
        let start = *start as usize + from;
        match plain.get(start..start + buf.len()) {
            Some(tail) => buf.copy_from_slice(tail),
            None => {
                let message =
                    format!("a fragment of {} bytes at {start}, in a block of {} bytes", buf.len(), plain.len());
                return Err(corrupt(stored.range.start, message).into());
            }
        }
        Ok(())
    }
}

impl Content for ImageContent {
    fn read_exact_at(&mut self, mut buf: &mut [u8], mut off: u64) -> Result<(), ContentError> {
        let (block_len, file) = (self.shared.block_len, &self.shared.files.files[self.idx]);
        let (len, block_count) = (file.len, file.blocks.len());
        if off.checked_add(buf.len() as u64).is_none_or(|end| end > len) {
            return Err(ContentError::Changed("it was read beyond its end"));
        }
        while !buf.is_empty() {
            let (idx, from) = ((off / block_len as u64) as usize, (off % block_len as u64) as usize);
            let plain_len = (len - (off - from as u64)).min(block_len as u64) as usize;
            let part = buf.len().min(plain_len - from);
            let (front, rest) = buf.split_at_mut(part);
            if idx < block_count {
                self.read_block(front, idx, from, plain_len)?;
            } else {
                self.read_tail(front, from)?;
            }
            (buf, off) = (rest, off + part as u64);
        }
        Ok(())
    }

    fn next_data(&mut self, off: u64) -> Result<Option<Range<u64>>, ContentError> {
        let (block_len, files) = (self.shared.block_len as u64, &self.shared.files);
        let file = &files.files[self.idx];
        if off >= file.len {
            return Ok(None);
        }
        let count = file.blocks.len() + usize::from(file.fragment.is_some());
        // Data in a fragment block are never a hole.
        let is_hole = |idx: usize| idx < file.blocks.len() && files.stored(file, idx).range.is_empty();
        let Some(first) = ((off / block_len) as usize..count).find(|idx| !is_hole(*idx)) else { return Ok(None) };
        let most = count.min(first + RUN_MAX_COUNT);
        let end = (first + 1..most).find(|idx| is_hole(*idx)).unwrap_or(most);
        Ok(Some(off.max(first as u64 * block_len)..file.len.min(end as u64 * block_len)))
    }

    fn verify_unchanged(&mut self) -> Result<(), ContentError> {
        Ok(())
    }
}

//! Directories: lookup by bisection, listing in stored order.

use crate::cache::access_pattern::AccessPattern;
use crate::cache::byte_cache::SharedBytes;
use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::map::data_part::DataPiece;
use crate::map::file_map::FileMap;
use crate::metadata::inode::Inode;
use crate::metadata::reader::MetadataReader;
use crate::metadata::space::MetadataSpace;
use kiln_format::Nid;
use kiln_format::dirent::{DIRENT_LEN, DirBlock};
use kiln_format::inode::FileType;
use std::cmp::Ordering;
use std::ops::ControlFlow;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The inode.
    pub nid: Nid,
    /// 1 to 255 bytes, without zero and slash.
    pub name: Vec<u8>,
    /// Type number, as in the stored entry; only a hint. See [`FileType::dirent_number`].
    pub file_type: u8,
}

impl DirEntry {
    /// Returns true if this is "." or "..".
    pub fn is_dot(&self) -> bool {
        is_dot(&self.name)
    }
}

/// Reads the blocks of one directory.
pub(crate) struct DirReader<'a> {
    reader: Reader<'a>,
    map: FileMap<'a>,
    meta: MetadataReader<'a>,
    size: u64,
}

/// A directory block: in place in a window of metadata, or a copy.
pub(crate) enum BlockBytes {
    Window(SharedBytes, usize, usize),
    Copy(Vec<u8>),
}

impl BlockBytes {
    fn bytes(&self) -> &[u8] {
        match self {
            BlockBytes::Window(window, start, len) => &window[*start..start + len],
            BlockBytes::Copy(bytes) => bytes,
        }
    }

    /// Returns the entries; `at` is the block's offset in the directory, for messages.
    pub(crate) fn parse(&self, at: u64) -> Result<DirBlock<'_>, ReadError> {
        Ok(DirBlock::new(self.bytes(), at)?)
    }
}

impl<'a> DirReader<'a> {
    pub(crate) fn open(reader: Reader<'a>, dir: &Inode) -> Result<Self, ReadError> {
        if !dir.is_dir() {
            return Err(ReadError::NotADirectory { path: Vec::new() });
        }
        let meta = MetadataReader::new(reader, MetadataSpace::Primary);
        Ok(Self { reader, map: FileMap::open(reader, dir)?, meta, size: dir.meta.size })
    }

    pub(super) fn block_len(&self) -> u64 {
        self.reader.superblock().block_bits.len()
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.reader.superblock().block_bits.blocks_for(self.size)
    }

    /// Reads block `idx`, which must be below [`DirReader::blocks`].
    pub(crate) fn block(&mut self, idx: u64) -> Result<BlockBytes, ReadError> {
        let off = idx * self.block_len();
        let len = self.block_len().min(self.size - off);
        let part = self.map.parts(off..off + len).next().transpose()?.filter(|part| part.len() == len);
        let piece = match part {
            Some(part) => part.pieces(self.reader.superblock().block_bits)?.next(),
            None => None,
        };
        // Blocks on the primary device are read as metadata, so that looking up names again costs
        // no read.
        let place = match piece {
            Some(DataPiece::Device { device: 0, pa, len: stored, .. }) if stored == len => {
                Some((MetadataSpace::Primary, pa))
            }
            Some(DataPiece::Metadata { space, pa, .. }) => Some((space, pa)),
            _ => None,
        };
        if let Some((space, pa)) = place {
            if self.meta.space() != space {
                self.meta = MetadataReader::new(self.reader, space);
            }
            if let Some((window, start)) = self.meta.within_window(pa, len)? {
                return Ok(BlockBytes::Window(window, start, len as usize));
            }
        }
        let mut bytes = vec![0; len as usize];
        self.reader.fill_by(&mut self.map, &mut bytes, off, AccessPattern::default())?;
        Ok(BlockBytes::Copy(bytes))
    }
}

impl<'a> Reader<'a> {
    /// Implements `Image::lookup`.
    pub(crate) fn lookup(self, dir: &Inode, name: &[u8]) -> Result<Option<DirEntry>, ReadError> {
        let found = self.bisect_blocks(dir, name).and_then(|found| match found {
            Some(entry) if self.hides_entry(entry.nid, entry.file_type)? => Ok(None),
            found => Ok(found),
        });
        found.map_err(|error| error.at_nid(dir.nid))
    }

    /// Implements `Image::read_dir`.
    pub(crate) fn read_dir(
        self,
        dir: &Inode,
        from: u64,
        each: &mut dyn FnMut(DirEntry, u64) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        self.list(dir, from, each).map_err(|error| error.at_nid(dir.nid))
    }

    fn bisect_blocks(self, dir: &Inode, name: &[u8]) -> Result<Option<DirEntry>, ReadError> {
        let mut reader = DirReader::open(self, dir)?;
        let block_len = reader.block_len();
        let (mut low, mut high) = (0, reader.blocks());
        let mut candidate = None;
        while low < high {
            let mid = low + (high - low) / 2;
            let block = reader.block(mid)?;
            match block.parse(mid * block_len)?.entry(0)?.name.cmp(name) {
                Ordering::Greater => high = mid,
                _ => (candidate, low) = (Some((mid, block)), mid + 1),
            }
        }
        let found =
            candidate.map(|(idx, block)| bisect_entries(block.parse(idx * block_len)?, name)).transpose()?.flatten();
        Ok(found.or_else(|| (name == b".").then(|| omitted_dot(dir)).flatten()))
    }

    /// Lists a directory. Positions are byte offsets of entries in the directory, as the kernel's
    /// are.
    fn list(
        self,
        dir: &Inode,
        from: u64,
        each: &mut dyn FnMut(DirEntry, u64) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        let mut reader = DirReader::open(self, dir)?;
        let block_len = reader.block_len();
        let mut skip = (from % block_len) as usize / DIRENT_LEN;
        for idx in from / block_len..reader.blocks() {
            let (at, bytes) = (idx * block_len, reader.block(idx)?);
            let block = bytes.parse(at)?;
            for i in skip..block.len() {
                let entry = block.entry(i)?;
                if self.hides_entry(entry.nid, entry.file_type)? {
                    continue;
                }
                let is_last = i + 1 == block.len();
                let behind =
                    if is_last { dir.meta.size.min(at + block_len) } else { at + ((i + 1) * DIRENT_LEN) as u64 };
                let entry = DirEntry { nid: entry.nid, name: entry.name.to_vec(), file_type: entry.file_type };
                if each(entry, behind).is_break() {
                    return Ok(());
                }
            }
            skip = 0;
        }
        if let Some(dot) = omitted_dot(dir).filter(|_| from <= dir.meta.size) {
            let _ = each(dot, dir.meta.size + 1);
        }
        Ok(())
    }
}

/// Returns true if a name is "." or "..".
pub(super) fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// Returns the "." of a directory that does not store it.
fn omitted_dot(dir: &Inode) -> Option<DirEntry> {
    let dot = || DirEntry { nid: dir.nid, name: b".".to_vec(), file_type: FileType::Directory.dirent_number() };
    dir.meta.omits_dot.then(dot)
}

fn bisect_entries(block: DirBlock<'_>, name: &[u8]) -> Result<Option<DirEntry>, ReadError> {
    let (mut low, mut high) = (0, block.len());
    while low < high {
        let mid = low + (high - low) / 2;
        let entry = block.entry(mid)?;
        match entry.name.cmp(name) {
            Ordering::Less => low = mid + 1,
            Ordering::Greater => high = mid,
            Ordering::Equal => {
                return Ok(Some(DirEntry { nid: entry.nid, name: name.to_vec(), file_type: entry.file_type }));
            }
        }
    }
    Ok(None)
}

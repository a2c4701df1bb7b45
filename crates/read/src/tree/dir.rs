//! Directories: lookup by bisection, listing in stored order.

use crate::cache::access_pattern::AccessPattern;
use crate::cache::byte_cache::SharedBytes;
use crate::data::pieces::{FileAccess, FragmentPolicy};
use crate::error::ReadError;
use crate::image::Image;
use crate::map::extent::ExtentKind;
use crate::map::inode_map::Map;
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
    /// Whether this is "." or "..".
    pub fn is_dot(&self) -> bool {
        is_dot(&self.name)
    }
}

/// Reads the blocks of one directory.
pub(crate) struct DirReader<'a> {
    image: &'a Image,
    map: Map<'a>,
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

    /// The entries; `at` is the block's offset in the directory, for messages.
    pub(crate) fn parse(&self, at: u64) -> Result<DirBlock<'_>, ReadError> {
        Ok(DirBlock::new(self.bytes(), at)?)
    }
}

impl<'a> DirReader<'a> {
    pub(crate) fn open(image: &'a Image, dir: &Inode) -> Result<Self, ReadError> {
        if !dir.is_dir() {
            return Err(ReadError::NotADirectory { path: Vec::new() });
        }
        let meta = MetadataReader::new(image, MetadataSpace::Primary);
        Ok(Self { image, map: Map::open(image, dir)?, meta, size: dir.meta.size })
    }

    pub(super) fn block_len(&self) -> u64 {
        self.image.superblock().block_bits.len()
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.image.superblock().block_bits.blocks_for(self.size)
    }

    /// Block `idx`, which must be below [`DirReader::blocks`].
    pub(crate) fn block(&mut self, idx: u64) -> Result<BlockBytes, ReadError> {
        let off = idx * self.block_len();
        let len = self.block_len().min(self.size - off);
        let extent = self.map.extent_at(off)?;
        // Blocks on the primary device are read as metadata, so that looking up names again costs no read.
        let place = match extent.kind {
            _ if extent.end() < off + len => None,
            ExtentKind::Raw { device: 0, pa } => Some((MetadataSpace::Primary, pa)),
            ExtentKind::Meta { pa, in_metabox: true } => Some((MetadataSpace::Metabox, pa)),
            ExtentKind::Meta { pa, in_metabox: false } => Some((MetadataSpace::Primary, pa)),
            _ => None,
        };
        if let Some((space, pa)) = place {
            if self.meta.space() != space {
                self.meta = MetadataReader::new(self.image, space);
            }
            if let Some((window, start)) = self.meta.within_window(pa.saturating_add(off - extent.la), len)? {
                return Ok(BlockBytes::Window(window, start, len as usize));
            }
        }
        let mut bytes = vec![0; len as usize];
        let access = FileAccess { fragments: FragmentPolicy::Allowed, pattern: AccessPattern::default() };
        self.image.fill_by(&mut self.map, &mut bytes, off, access)?;
        Ok(BlockBytes::Copy(bytes))
    }
}

impl Image {
    /// The entry `name` of a directory, by bisection: names out of order may not be found, as in Linux.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// let root = image.inode(image.root_nid())?;
    /// let entry = image.lookup(&root, b"big")?.expect("a directory of this name");
    /// assert!(image.inode(entry.nid)?.is_dir());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Not a directory, a damaged one, a failing source.
    pub fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Option<DirEntry>, ReadError> {
        self.bisect_blocks(dir, name).map_err(|error| error.at_nid(dir.nid))
    }

    fn bisect_blocks(&self, dir: &Inode, name: &[u8]) -> Result<Option<DirEntry>, ReadError> {
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

    /// List a directory from position `from` on: 0, or one that an earlier listing gave. Entries come in stored order,
    /// "." and ".." included (a "." that is not stored comes last). `each` gets an entry and the position behind it,
    /// and may stop.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// use std::ops::ControlFlow;
    ///
    /// let root = image.inode(image.root_nid())?;
    /// // Three entries; a later call goes on where this one stopped.
    /// let (mut names, mut next) = (Vec::new(), 0);
    /// image.read_dir(&root, 0, &mut |entry, behind| {
    ///     names.push(entry.name);
    ///     next = behind;
    ///     if names.len() < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    /// })?;
    /// # assert!(names.len() == 3 && next > 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Not a directory, a damaged one, a failing source.
    pub fn read_dir(
        &self,
        dir: &Inode,
        from: u64,
        each: &mut dyn FnMut(DirEntry, u64) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        self.list(dir, from, each).map_err(|error| error.at_nid(dir.nid))
    }

    /// Positions are byte offsets of entries in the directory, as the kernel's are.
    fn list(
        &self,
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

    /// All entries of a directory in stored order, without "." and "..".
    ///
    /// # Errors
    /// As [`Image::read_dir`].
    pub fn read_dir_all(&self, dir: &Inode) -> Result<Vec<DirEntry>, ReadError> {
        let mut list = Vec::new();
        self.read_dir(dir, 0, &mut |entry, _| {
            if !is_dot(&entry.name) {
                list.push(entry);
            }
            ControlFlow::Continue(())
        })?;
        Ok(list)
    }
}

/// Whether a name is "." or "..".
pub(super) fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// The "." of a directory that does not store it.
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

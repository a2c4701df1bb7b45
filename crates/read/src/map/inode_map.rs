//! The extent map of an inode: from an offset in the file to the extent that holds it, for every
//! layout. Lookups are pure: they change no history and no cache but that of metadata.

use super::compressed::CompressedMap;
use super::extent::{Extent, ExtentKind};
use crate::error::{ReadError, aligned, too_far};
use crate::image::reader::Reader;
use crate::metadata::inode::Inode;
use crate::metadata::reader::MetadataReader;
use crate::source::devices::PhysicalRange;
use kiln_format::chunk::{Chunk, ChunkFormat};
use kiln_format::inode::InodeData;
use kiln_format::{Blkaddr, Nid};

impl<'a> Reader<'a> {
    /// Implements `Image::extent_at`.
    pub(crate) fn extent_at(self, inode: &Inode, off: u64) -> Result<Extent, ReadError> {
        Map::open(self, inode)?.extent_at(off)
    }
}

/// The map of one inode. It holds the metadata that it read last, so lookups in ascending order are
/// cheap.
pub(crate) struct Map<'a> {
    reader: Reader<'a>,
    inode: Inode,
    kind: MapKind<'a>,
}

// A map lives on the stack of one read: its size costs nothing, a `Box` would cost an allocation.
#[allow(clippy::large_enum_variant)]
enum MapKind<'a> {
    Empty,
    Hole,
    /// Contiguous from byte `start` of the flat space.
    Flat {
        start: u64,
    },
    /// The same up to `head`; the rest is beside the inode, from byte `tail` of its metadata space.
    Inline {
        start: u64,
        head: u64,
        tail: u64,
    },
    Chunks {
        format: ChunkFormat,
        table: u64,
        meta: MetadataReader<'a>,
        /// The chunks are holes, and the contents an object elsewhere.
        is_object: bool,
    },
    Compressed(CompressedMap<'a>),
}

impl<'a> Map<'a> {
    /// Returns the map of `inode`, which must have contents.
    pub(crate) fn open(reader: Reader<'a>, inode: &Inode) -> Result<Self, ReadError> {
        if !inode.has_contents() {
            return Err(ReadError::NoContents { nid: inode.nid });
        }
        let kind = Self::kind(reader, inode).map_err(|error| error.at_nid(inode.nid))?;
        Ok(Self { reader, inode: *inode, kind })
    }

    fn kind(reader: Reader<'a>, inode: &Inode) -> Result<MapKind<'a>, ReadError> {
        let meta = &inode.meta;
        if meta.size == 0 {
            return Ok(MapKind::Empty);
        }
        match meta.data {
            InodeData::FlatPlain(Some(start)) => Ok(MapKind::Flat { start: reader.byte_off(start) }),
            InodeData::FlatPlain(None) => Ok(MapKind::Hole),
            InodeData::FlatInline(start) => inline(reader, inode, start),
            InodeData::ChunkBased(format) => {
                let body = reader.body_pos(inode)?;
                let format = format.map_err(|unknown| unknown.error(body))?;
                let table = aligned(body, format.entry.len())?;
                let is_object = reader.object_of(inode)?.is_some();
                Ok(MapKind::Chunks { format, table, meta: MetadataReader::new(reader, inode.space()), is_object })
            }
            InodeData::Compressed { index, .. } => Ok(MapKind::Compressed(CompressedMap::open(reader, inode, index)?)),
            InodeData::Device(_) | InodeData::Nothing => Err(ReadError::NoContents { nid: inode.nid }),
        }
    }

    /// Returns the length of the contents in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.inode.meta.size
    }

    pub(crate) fn nid(&self) -> Nid {
        self.inode.nid
    }

    /// Returns the extent that holds byte `off`; an empty one behind the end.
    pub(crate) fn extent_at(&mut self, off: u64) -> Result<Extent, ReadError> {
        let size = self.inode.meta.size;
        if off >= size {
            return Ok(Extent::behind(size));
        }
        self.lookup(off).map_err(|error| error.at_nid(self.inode.nid))
    }

    fn lookup(&mut self, off: u64) -> Result<Extent, ReadError> {
        let size = self.inode.meta.size;
        match &mut self.kind {
            MapKind::Empty => Ok(Extent::behind(size)),
            MapKind::Hole => Ok(Extent { la: 0, llen: size, kind: ExtentKind::Hole }),
            MapKind::Flat { start } => flat_extent(self.reader, *start, size, off),
            MapKind::Inline { start, head, .. } if off < *head => flat_extent(self.reader, *start, *head, off),
            MapKind::Inline { head, tail, .. } => {
                let kind = ExtentKind::Meta { pa: *tail, in_metabox: self.inode.nid.in_metabox() };
                Ok(Extent { la: *head, llen: size - *head, kind })
            }
            MapKind::Chunks { is_object: true, .. } => Ok(Extent { la: 0, llen: size, kind: ExtentKind::Object }),
            MapKind::Chunks { format, table, meta, .. } => {
                chunk_extent(self.reader, &ChunkTable { format: *format, start: *table, size }, meta, off)
            }
            MapKind::Compressed(compressed) => compressed.extent_at(off),
        }
    }

    /// Returns the byte offset in the metadata space behind the last record of the inode: tail,
    /// chunk table or index.
    pub(crate) fn metadata_end(&mut self) -> Result<u64, ReadError> {
        let size = self.inode.meta.size;
        match &mut self.kind {
            MapKind::Empty | MapKind::Hole | MapKind::Flat { .. } => self.reader.body_pos(&self.inode),
            MapKind::Inline { head, tail, .. } => Ok(*tail + (size - *head)),
            MapKind::Chunks { format, table, .. } => {
                // A hostile size makes the count arbitrarily large; a table beyond 64 bits is an
                // error.
                let len = format.count(size).checked_mul(format.entry.len());
                len.and_then(|len| table.checked_add(len)).ok_or_else(|| too_far("erofs_inode_chunk_info", *table))
            }
            MapKind::Compressed(compressed) => compressed.metadata_end(),
        }
    }

    /// Returns true if the file's data is compressed.
    pub(crate) fn is_compressed(&self) -> bool {
        matches!(self.kind, MapKind::Compressed(_))
    }

    /// Returns the map of a compressed file.
    pub(crate) fn compressed(&mut self) -> Option<&mut CompressedMap<'a>> {
        match &mut self.kind {
            MapKind::Compressed(compressed) => Some(compressed),
            _ => None,
        }
    }
}

impl<'a> Reader<'a> {
    /// Returns the byte address of a block; at most 48 + 16 bits.
    pub(super) fn byte_off(self, addr: Blkaddr) -> u64 {
        (addr.0 & Blkaddr::HOLE48.0) << self.superblock().block_bits.bits()
    }
}

fn inline<'a>(reader: Reader<'_>, inode: &Inode, start: Blkaddr) -> Result<MapKind<'a>, ReadError> {
    let block_bits = reader.superblock().block_bits;
    let tail = reader.body_pos(inode)?;
    let head = (block_bits.blocks_for(inode.meta.size) - 1) * block_bits.len();
    let tail_len = inode.meta.size - head;
    if block_bits.within(tail) + tail_len > block_bits.len() {
        return Err(ReadError::corrupt("erofs_inode", tail, "i_size", inode.meta.size, "inline tail crosses a block"));
    }
    Ok(MapKind::Inline { start: reader.byte_off(start), head, tail })
}

/// Returns the extent at `off` of bytes `0..end` that lie contiguous from `start` of the flat
/// space: all of them, unless a border of devices cuts them.
fn flat_extent(reader: Reader<'_>, start: u64, end: u64, off: u64) -> Result<Extent, ReadError> {
    start.checked_add(end).ok_or_else(|| too_far("erofs_inode", start))?;
    let mut la = 0;
    loop {
        let PhysicalRange { device, pa, run } = reader.volume.devices.in_flat_space(start + la);
        let llen = run.min(end - la);
        if off - la < llen {
            return Ok(Extent { la, llen, kind: ExtentKind::Raw { device, pa } });
        }
        la += llen;
    }
}

/// The chunk table of a file.
struct ChunkTable {
    format: ChunkFormat,
    /// Byte offset of its first entry in the metadata space.
    start: u64,
    /// Length of the file in bytes.
    size: u64,
}

/// Returns the extent at byte `off` of a file of chunks, whose table `meta` reads.
fn chunk_extent(
    reader: Reader<'_>,
    table: &ChunkTable,
    meta: &mut MetadataReader<'_>,
    off: u64,
) -> Result<Extent, ReadError> {
    const RECORD: &str = "erofs_inode_chunk_index";
    let &ChunkTable { format, start, size } = table;
    let idx = off >> format.chunk_bits;
    let la = idx << format.chunk_bits;
    let llen = (size - la).min(1 << format.chunk_bits);
    let entry_len = format.entry.len();
    let pos =
        idx.checked_mul(entry_len).and_then(|rel| rel.checked_add(start)).ok_or_else(|| too_far(RECORD, start))?;
    let mut bytes = [0; 8];
    let entry = &mut bytes[..entry_len as usize];
    meta.fill(RECORD, entry, pos)?;
    match format.decode_entry(entry) {
        Chunk::Hole => Ok(Extent { la, llen, kind: ExtentKind::Hole }),
        Chunk::At { device, start } => {
            // From the chunk's start to a border of devices, or from such a border on.
            let start = reader.byte_off(start);
            start.checked_add(llen).ok_or_else(|| too_far(RECORD, pos))?;
            let mut skip = 0;
            loop {
                let place = reader.volume.devices.in_chunk_space(device, start + skip)?;
                let len = place.run.min(llen - skip);
                if off - la - skip < len {
                    let kind = ExtentKind::Raw { device: place.device, pa: place.pa };
                    return Ok(Extent { la: la + skip, llen: len, kind });
                }
                skip += len;
            }
        }
    }
}

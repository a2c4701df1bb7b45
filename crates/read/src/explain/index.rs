//! Length of the part of an index that describes a run of extents.

use crate::error::{ReadError, aligned, too_far};
use crate::image::reader::Reader;
use crate::map::extent::Extent;
use crate::metadata::inode::Inode;
use crate::metadata::reader::MetadataReader;
use kiln_format::inode::{DataLayout, InodeData};
use kiln_format::zmap::{
    Advise, COMPACT_INDEX_OFF, CompactLayout, FULL_ENTRY_LEN, MAP_HEADER_LEN, MapHeader, RecordSize, ZmapHeader,
};
use std::ops::Range;

const HEADER: &str = "z_erofs_map_header";

/// Extents of a file that follow each other.
pub(super) struct DescribedExtents {
    inode: Inode,
    /// Bytes of the file, and number of extents.
    extents: Option<(Range<u64>, u64)>,
}

impl DescribedExtents {
    /// Returns no extents of `inode`.
    pub(super) fn new(inode: &Inode) -> Self {
        Self { inode: *inode, extents: None }
    }

    /// Adds an extent, unless it is the last one that was added.
    pub(super) fn extend(&mut self, next: &Extent) {
        let (la, count) = self.extents.get_or_insert((next.la..next.la, 0));
        if la.end != next.end() {
            la.end = next.end();
            *count += 1;
        }
    }

    /// Returns the bytes of metadata that describe the extents: the inode, and entries of its
    /// index.
    pub(super) fn len(&self, reader: Reader<'_>) -> Result<u64, ReadError> {
        let index = match &self.extents {
            Some((la, count)) => Index { la, count: *count }.len(reader, &self.inode)?,
            None => 0,
        };
        Ok(self.inode.meta.form.len() as u64 + index)
    }
}

/// The entries of an index that describe `count` extents with bytes `la` of a file.
struct Index<'e> {
    la: &'e Range<u64>,
    count: u64,
}

impl Index<'_> {
    /// Returns the number of bytes of the entries.
    fn len(&self, reader: Reader<'_>, inode: &Inode) -> Result<u64, ReadError> {
        let body = reader.body_pos(inode)?;
        match inode.meta.data {
            InodeData::FlatPlain(_) | InodeData::FlatInline(_) | InodeData::Device(_) | InodeData::Nothing => Ok(0),
            InodeData::ChunkBased(format) => {
                let format = format.map_err(|unknown| unknown.error(body))?;
                let chunks = ((self.la.end - 1) >> format.chunk_bits) - (self.la.start >> format.chunk_bits) + 1;
                Ok(chunks * format.entry.len())
            }
            InodeData::Compressed { index, .. } => {
                let at = aligned(body, MAP_HEADER_LEN)?;
                let bytes = MetadataReader::new(reader, inode.space()).array(HEADER, at)?;
                match ZmapHeader::decode(&bytes, at, reader.superblock().block_bits, index)? {
                    ZmapHeader::Fragment(_) => Ok(MAP_HEADER_LEN),
                    ZmapHeader::Map(header) => Ok(MAP_HEADER_LEN + self.entries_len(reader, inode, &header, at)?),
                }
            }
        }
    }

    fn entries_len(&self, reader: Reader<'_>, inode: &Inode, header: &MapHeader, at: u64) -> Result<u64, ReadError> {
        let (size, bits) = (inode.meta.size, header.lcluster_bits);
        let dense_or_records = header.advise.contains(Advise::COMPACTED_2B_OR_EXTENTS);
        // The entry behind the last extent says where that ends, unless the file does.
        let next = u64::from(self.la.end < size);
        let (first_lcn, last_lcn) = (self.la.start >> bits, (self.la.end - (1 - next)) >> bits);
        if inode.meta.layout() == DataLayout::CompressedFull {
            return Ok(match RecordSize::from_advise(header.advise) {
                _ if !dense_or_records => (last_lcn - first_lcn + 1) * FULL_ENTRY_LEN,
                size if size.has_fixed_extents() => self.count * size.len(),
                size => (self.count + next) * size.len(),
            });
        }
        let blocks = reader.superblock().block_bits.blocks_for(size);
        let table = at.checked_add(COMPACT_INDEX_OFF).ok_or_else(|| too_far(HEADER, at))?;
        let layout = CompactLayout::new(table, blocks, size.div_ceil(1 << bits), bits, header.advise)?;
        let first = layout.pack_of(first_lcn);
        let last = layout.pack_of(last_lcn);
        Ok(last.off + last.len as u64 - first.off)
    }
}

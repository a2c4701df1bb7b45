//! The counts of one thread.

use super::blocks::FileBlocks;
use super::counts::{StoredAs, entry};
use super::report::Usage;
use super::stored::{NamedRange, StoredRanges};
use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::map::data_part::{DataPart, DataPiece, PCLUSTER};
use crate::map::extent::{Extent, ExtentKind};
use crate::map::extents::extent_over;
use crate::map::inode_map::Map;
use crate::metadata::inode::Inode;
use kiln_format::Nid;
use kiln_format::inode::FileType;
use std::mem;
use std::ops::Range;

/// Ranges that are collected before they are added to those of all threads.
const NAMED_MAX: usize = 4096;

pub(super) struct Tally<'i> {
    reader: Reader<'i>,
    stored: &'i StoredRanges,
    pub usage: Usage,
    named: Vec<NamedRange>,
    /// The map of the packed inode, once a file has needed it.
    packed: Option<Map<'i>>,
}

impl<'i> Tally<'i> {
    pub(super) fn new(reader: Reader<'i>, stored: &'i StoredRanges) -> Self {
        Self { reader, stored, usage: Usage::empty(), named: Vec::new(), packed: None }
    }

    /// Counts an inode of the tree.
    pub(super) fn add(&mut self, inode: &Inode) -> Result<(), ReadError> {
        let meta = &inode.meta;
        entry(&mut self.usage.types, meta.file_type).add(meta.size);
        if meta.file_type == FileType::Regular {
            self.usage.sizes.add(meta.size);
        }
        self.add_inode(inode, meta.file_type == FileType::Regular)
    }

    /// Counts an inode that is in no directory: what it takes, but not as a file.
    pub(super) fn add_special(&mut self, inode: &Inode) -> Result<(), ReadError> {
        self.add_inode(inode, false)
    }

    fn add_inode(&mut self, inode: &Inode, is_file: bool) -> Result<(), ReadError> {
        let (reader, meta) = (self.reader, &inode.meta);
        self.usage.metadata.inodes += meta.form.len() as u64;
        self.usage.metadata.xattrs += meta.xattr_len();
        for id in reader.shared_xattr_ids(inode)? {
            let (at, len) = reader.shared_range(id)?;
            self.name(NamedRange::Xattr(at..at + len))?;
        }
        if inode.has_contents() {
            entry(&mut self.usage.layouts, meta.layout()).add(meta.size);
            self.add_contents(inode, is_file)?;
        }
        Ok(())
    }

    fn add_contents(&mut self, inode: &Inode, is_file: bool) -> Result<(), ReadError> {
        let mut map = Map::open(self.reader, inode)?;
        let behind_inode = map.metadata_end()?.saturating_sub(self.reader.body_pos(inode)?);
        let mut blocks = FileBlocks::new(mem::take(&mut self.usage.block_reads), self.reader.superblock().block_bits);
        let (mut inline, mut off) = (0, 0);
        while off < inode.meta.size {
            let extent = extent_over(&mut map, off)?;
            off = extent.end();
            inline += inline_len(&extent);
            if !inode.is_dir() {
                self.add_extent(&extent, inode.nid)?;
            }
            if is_file {
                self.add_blocks(&extent, &mut blocks)?;
            }
        }
        self.usage.block_reads = blocks.finish();
        let metadata = &mut self.usage.metadata;
        metadata.indexes = metadata.indexes.saturating_add(behind_inode.saturating_sub(inline));
        match inode.is_dir() {
            true => metadata.directories = metadata.directories.saturating_add(inode.meta.size),
            false => metadata.inline += inline,
        }
        Ok(())
    }

    /// Counts the blocks of a file by the pclusters that hold them.
    fn add_blocks(&mut self, extent: &Extent, blocks: &mut FileBlocks) -> Result<(), ReadError> {
        let ExtentKind::Fragment { off: start } = extent.kind else {
            blocks.add(extent.la..extent.end(), extent.kind.pcluster());
            return Ok(());
        };
        let packed = self.reader.packed_range(start, extent.llen)?;
        let packed = match &mut self.packed {
            Some(packed) => packed,
            none => none.insert(Map::open(self.reader, packed)?),
        };
        let (mut at, end) = (start, start + extent.llen);
        while at < end {
            let part = extent_over(packed, at)?;
            let part_end = part.end().min(end);
            blocks.add(extent.la + (at - start)..extent.la + (part_end - start), part.kind.pcluster());
            at = part_end;
        }
        Ok(())
    }

    fn add_extent(&mut self, extent: &Extent, nid: Nid) -> Result<(), ReadError> {
        let pcluster = extent.kind.pcluster();
        let stored = match extent.kind {
            ExtentKind::Hole | ExtentKind::Fragment { .. } | ExtentKind::Object => 0,
            _ => pcluster.map_or(extent.llen, |pcluster| pcluster.plen.into()),
        };
        entry(&mut self.usage.extents, StoredAs::from(&extent.kind)).add(extent.llen, stored);
        if let ExtentKind::Fragment { off } = extent.kind {
            self.reader.packed_range(off, extent.llen)?;
            return self.name(NamedRange::Fragment(off..off + extent.llen));
        }
        let part = DataPart::whole(extent, nid);
        if part.is_encoded() {
            self.usage.pcluster_lens.add(stored);
            self.usage.extent_lens.add(extent.llen);
            self.usage.in_place.add(extent, self.reader.superblock().block_bits);
        }
        let Some((device, bytes)) = part.stored() else { return Ok(()) };
        match pcluster {
            None => self.name_data("data", device, bytes, 0),
            Some(_) if part.is_encoded() => self.name_data(PCLUSTER, device, bytes, 0),
            Some(_) => self.name_plain(&part, device, bytes),
        }
    }

    /// Names the data of a plain pcluster, rotated or not. The bytes of the pcluster between its pieces are slack.
    fn name_plain(&mut self, part: &DataPart, device: u16, pcluster: Range<u64>) -> Result<(), ReadError> {
        let place = |piece| match piece {
            DataPiece::Device { pa, len, .. } => Some(pa..pa.saturating_add(len)),
            _ => None,
        };
        let mut pieces: Vec<Range<u64>> = part.pieces(self.reader.volume.sb.block_bits)?.filter_map(place).collect();
        // There may be slack in front of all data.
        pieces.push(pcluster.start..pcluster.start);
        pieces.sort_unstable_by_key(|piece| (piece.start, piece.end));
        let ends: Vec<u64> = pieces.iter().skip(1).map(|next| next.start).chain([pcluster.end]).collect();
        pieces.into_iter().zip(ends).try_for_each(|(piece, end)| {
            let slack = end.saturating_sub(piece.end);
            self.name_data(PCLUSTER, device, piece, slack)
        })
    }

    fn name_data(&mut self, record: &'static str, device: u16, bytes: Range<u64>, slack: u64) -> Result<(), ReadError> {
        let devices = &self.reader.volume.devices;
        devices.check_place(record, device, bytes.start, (bytes.end - bytes.start).saturating_add(slack))?;
        self.name(NamedRange::Data { device, bytes, slack })
    }

    fn name(&mut self, named: NamedRange) -> Result<(), ReadError> {
        self.named.push(named);
        if self.named.len() >= NAMED_MAX { self.flush() } else { Ok(()) }
    }

    /// Adds the collected ranges to those of all threads.
    pub(super) fn flush(&mut self) -> Result<(), ReadError> {
        self.stored.add(&mut self.named)
    }

    pub(super) fn merge(&mut self, other: &Tally<'_>) {
        self.usage.merge(&other.usage);
    }

    pub(super) fn finish(mut self) -> Result<Usage, ReadError> {
        self.flush()?;
        Ok(self.usage)
    }
}

/// Returns the bytes of an extent that lie beside its inode.
fn inline_len(extent: &Extent) -> u64 {
    match extent.kind {
        ExtentKind::Meta { .. } => extent.llen,
        kind => kind.pcluster().filter(|pcluster| pcluster.inline.is_some()).map_or(0, |pcluster| pcluster.plen.into()),
    }
}

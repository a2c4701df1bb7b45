//! The counts of one thread.

use super::counts::{StoredAs, entry};
use super::report::Usage;
use super::stored::{NamedRange, StoredRanges};
use crate::error::ReadError;
use crate::image::Image;
use crate::map::extent::{Extent, ExtentKind};
use crate::map::extents::extent_over;
use crate::map::inode_map::Map;
use crate::metadata::inode::Inode;
use kiln_format::inode::FileType;
use std::ops::Range;

/// Ranges that are collected before they are added to those of all threads.
const NAMED_MAX: usize = 4096;

pub(super) struct Tally<'i> {
    image: &'i Image,
    stored: &'i StoredRanges,
    pub usage: Usage,
    named: Vec<NamedRange>,
}

impl<'i> Tally<'i> {
    pub(super) fn new(image: &'i Image, stored: &'i StoredRanges) -> Self {
        Self { image, stored, usage: Usage::empty(), named: Vec::new() }
    }

    /// Count an inode of the tree.
    pub(super) fn add(&mut self, inode: &Inode) -> Result<(), ReadError> {
        let meta = &inode.meta;
        entry(&mut self.usage.types, meta.file_type).add(meta.size);
        if meta.file_type == FileType::Regular {
            self.usage.sizes.add(meta.size);
        }
        self.add_special(inode)
    }

    /// Count an inode that is in no directory: what it takes, but not as a file.
    pub(super) fn add_special(&mut self, inode: &Inode) -> Result<(), ReadError> {
        let (image, meta) = (self.image, &inode.meta);
        self.usage.metadata.inodes += meta.form.len() as u64;
        self.usage.metadata.xattrs += meta.xattr_len();
        for id in image.shared_xattr_ids(inode)? {
            let (at, len) = image.shared_range(id)?;
            self.name(NamedRange::Xattr(at..at + len))?;
        }
        if inode.has_contents() {
            entry(&mut self.usage.layouts, meta.layout()).add(meta.size);
            self.add_contents(inode)?;
        }
        Ok(())
    }

    fn add_contents(&mut self, inode: &Inode) -> Result<(), ReadError> {
        let mut map = Map::open(self.image, inode)?;
        let behind_inode = map.metadata_end()?.saturating_sub(self.image.body_pos(inode)?);
        let (mut inline, mut off) = (0, 0);
        while off < inode.meta.size {
            let extent = extent_over(&mut map, inode, off)?;
            off = extent.end();
            inline += inline_len(&extent);
            if !inode.is_dir() {
                self.add_extent(&extent)?;
            }
        }
        let metadata = &mut self.usage.metadata;
        metadata.indexes = metadata.indexes.saturating_add(behind_inode.saturating_sub(inline));
        match inode.is_dir() {
            true => metadata.directories = metadata.directories.saturating_add(inode.meta.size),
            false => metadata.inline += inline,
        }
        Ok(())
    }

    fn add_extent(&mut self, extent: &Extent) -> Result<(), ReadError> {
        let stored = match extent.kind {
            ExtentKind::Hole | ExtentKind::Fragment { .. } => 0,
            ExtentKind::Raw { .. } | ExtentKind::Meta { .. } => extent.llen,
            ExtentKind::Plain { plen, .. } | ExtentKind::Encoded { plen, .. } => plen.into(),
        };
        entry(&mut self.usage.extents, StoredAs::from(&extent.kind)).add(extent.llen, stored);
        match extent.kind {
            ExtentKind::Raw { device, pa } => {
                self.name_data("data", device, pa..pa.saturating_add(extent.llen), 0)?;
            }
            ExtentKind::Plain { device, pa, plen, interlaced, inline: None } => {
                for (bytes, slack) in plain_bytes(self.image, extent, pa, plen.into(), interlaced) {
                    self.name_data("pcluster", device, bytes, slack)?;
                }
            }
            ExtentKind::Encoded { device, pa, plen, inline, .. } => {
                self.usage.pcluster_lens.add(plen.into());
                self.usage.extent_lens.add(extent.llen);
                if inline.is_none() {
                    self.name_data("pcluster", device, pa..pa.saturating_add(plen.into()), 0)?;
                }
            }
            ExtentKind::Fragment { off } => {
                self.image.packed_range(off, extent.llen)?;
                self.name(NamedRange::Fragment(off..off + extent.llen))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn name_data(&mut self, record: &'static str, device: u16, bytes: Range<u64>, slack: u64) -> Result<(), ReadError> {
        let devices = &self.image.core.devices;
        devices.check_place(record, device, bytes.start, (bytes.end - bytes.start).saturating_add(slack))?;
        self.name(NamedRange::Data { device, bytes, slack })
    }

    fn name(&mut self, named: NamedRange) -> Result<(), ReadError> {
        self.named.push(named);
        if self.named.len() >= NAMED_MAX { self.flush() } else { Ok(()) }
    }

    /// Add the collected ranges to those of all threads.
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

/// Bytes of an extent that lie beside its inode.
fn inline_len(extent: &Extent) -> u64 {
    match extent.kind {
        ExtentKind::Meta { .. } => extent.llen,
        ExtentKind::Plain { plen, inline: Some(_), .. } | ExtentKind::Encoded { plen, inline: Some(_), .. } => {
            plen.into()
        }
        _ => 0,
    }
}

/// The bytes of a plain pcluster of `plen` bytes at `pa` that are data, and how many behind them are not.
fn plain_bytes(image: &Image, extent: &Extent, pa: u64, plen: u64, interlaced: bool) -> [(Range<u64>, u64); 2] {
    let at = |skip: u64| pa.saturating_add(skip);
    if !interlaced {
        return [(pa..at(extent.llen), plen.saturating_sub(extent.llen)), (pa..pa, 0)];
    }
    // Rotated: the first bytes are at the end of the pcluster.
    let block_bits = image.superblock().block_bits;
    let rotated = block_bits.len() - block_bits.within(extent.la);
    let first = rotated.min(extent.llen);
    let start = plen.saturating_sub(rotated);
    let rest = extent.llen - first;
    [(at(start)..at(start + first), rotated - first), (pa..at(rest), start.saturating_sub(rest))]
}

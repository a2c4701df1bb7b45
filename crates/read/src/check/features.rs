//! Features that are used, compared with those that are announced.
//!
//! Linux 6.18 tests few of the bits: it maps chunks, inline pclusters, long prefixes of attributes,
//! 48-bit inodes and encoded extents whether they are announced or not. So a missing bit is no
//! error; where the kernel does need it (a packed inode, a device table, pclusters of several
//! blocks), the image cannot be read without it, and that is the error.

use super::report::Note;
use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::map::extent::{Extent, ExtentKind};
use crate::map::inode_map::Map;
use crate::metadata::inode::Inode;
use kiln_format::Incompat;
use kiln_format::inode::{DataLayout, InodeData};

/// Notes each missing bit once.
pub(super) struct Features {
    known: Incompat,
    notes: Vec<Note>,
}

impl Features {
    pub(super) fn new(reader: Reader<'_>) -> Self {
        // composefs never sets this bit: its images are reproducible, so their bytes are fixed.
        let unset = if reader.volume.is_composefs { Incompat::CHUNKED_FILE } else { Incompat::empty() };
        Self { known: reader.superblock().incompat | unset, notes: Vec::new() }
    }

    pub(super) fn into_notes(self) -> Vec<Note> {
        self.notes
    }

    fn needs(&mut self, bit: Incompat, because: &'static str, path: &[u8], inode: &Inode) {
        if !self.known.contains(bit) {
            self.known |= bit;
            self.notes.push(Note::Unannounced { missing: bit, because, path: path.to_vec(), nid: inode.nid });
        }
    }

    /// Notes the features that the inode itself needs.
    pub(super) fn of_inode(&mut self, path: &[u8], inode: &Inode) {
        let meta = &inode.meta;
        let mut needs = |bit, because| self.needs(bit, because, path, inode);
        if meta.layout() == DataLayout::ChunkBased {
            needs(Incompat::CHUNKED_FILE, "chunk-based inode");
        }
        if meta.omits_dot {
            needs(Incompat::ADDR_48BIT, "directory without a stored \".\"");
        } else if meta.implies_nlink {
            needs(Incompat::ADDR_48BIT, "compact inode with NLINK_1");
        }
        if let InodeData::FlatPlain(Some(start)) | InodeData::FlatInline(start) = meta.data
            && meta.size > 0
            && start.hi() != 0
        {
            needs(Incompat::ADDR_48BIT, "start block over 32 bits");
        }
    }

    /// Notes the features that one of its extents needs.
    pub(super) fn of_extent(
        &mut self,
        path: &[u8],
        inode: &Inode,
        map: &mut Map<'_>,
        extent: &Extent,
    ) -> Result<(), ReadError> {
        let mut needs = |bit, because| self.needs(bit, because, path, inode);
        match extent.kind {
            ExtentKind::Hole if inode.meta.layout() == DataLayout::FlatPlain => {
                needs(Incompat::ADDR_48BIT, "hole without chunks");
            }
            ExtentKind::Plain { interlaced: true, .. } => needs(Incompat::FRAGMENTS, "interlaced plain data"),
            ExtentKind::Encoded { partial: true, .. } => needs(Incompat::FRAGMENTS, "partially used pcluster"),
            ExtentKind::Fragment { .. } => needs(Incompat::FRAGMENTS, "fragment"),
            _ => {}
        }
        if let ExtentKind::Plain { inline: Some(_), .. } | ExtentKind::Encoded { inline: Some(_), .. } = extent.kind {
            needs(Incompat::ZTAILPACKING, "inline pcluster");
        }
        if let Some(compressed) = map.compressed() {
            if compressed.has_records() {
                needs(Incompat::ADDR_48BIT, "encoded extents");
            }
            if matches!(extent.kind, ExtentKind::Encoded { .. }) && compressed.uses_head2(extent.la)? {
                needs(Incompat::DEVICE_TABLE, "lcluster of type HEAD2");
            }
        }
        Ok(())
    }

    /// Notes the features that an attribute with a long prefix needs.
    pub(super) fn of_long_prefix(&mut self, path: &[u8], inode: &Inode) {
        self.needs(Incompat::XATTR_PREFIXES, "long xattr name prefix", path, inode);
    }
}

//! Features that are used, compared with those that are announced.

use super::{Finding, Problems};
use crate::map::{Extent, ExtentKind, Map};
use crate::{Inode, ReadError};
use kiln_format::Incompat;
use kiln_format::inode::{DataLayout, FileType, Form};
use kiln_format::superblock::Superblock;

/// Reports each missing bit once.
pub(super) struct Features {
    known: Incompat,
}

impl Features {
    pub fn new(sb: &Superblock) -> Self {
        Self { known: sb.incompat }
    }

    fn needs(&mut self, bit: Incompat, because: &'static str, path: &[u8], inode: &Inode, problems: &Problems) {
        if !self.known.contains(bit) {
            self.known |= bit;
            problems.add(path, Some(inode.nid), Finding::Feature { missing: bit, because });
        }
    }

    /// What the inode itself needs.
    pub fn of_inode(&mut self, path: &[u8], inode: &Inode, problems: &Problems) {
        let meta = &inode.meta;
        let mut needs = |bit, because| self.needs(bit, because, path, inode, problems);
        if meta.layout == DataLayout::ChunkBased {
            needs(Incompat::CHUNKED_FILE, "chunk-based inode");
        }
        if meta.bit4 && meta.file_type == FileType::Directory {
            needs(Incompat::ADDR_48BIT, "directory without a stored \".\"");
        } else if meta.bit4 && meta.form == Form::Compact {
            needs(Incompat::ADDR_48BIT, "compact inode with NLINK_1");
        }
        let is_flat = matches!(meta.layout, DataLayout::FlatPlain | DataLayout::FlatInline);
        if is_flat && inode.has_contents() && meta.size > 0 && meta.startblk_hi != 0 {
            needs(Incompat::ADDR_48BIT, "start block over 32 bits");
        }
    }

    /// What one of its extents needs.
    pub fn of_extent(
        &mut self,
        path: &[u8],
        inode: &Inode,
        map: &mut Map<'_>,
        extent: &Extent,
        problems: &Problems,
    ) -> Result<(), ReadError> {
        let mut needs = |bit, because| self.needs(bit, because, path, inode, problems);
        match extent.kind {
            ExtentKind::Hole if inode.meta.layout == DataLayout::FlatPlain => {
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
        if let Some(zmap) = map.zmap() {
            if zmap.has_records() {
                needs(Incompat::ADDR_48BIT, "encoded extents");
            }
            if matches!(extent.kind, ExtentKind::Encoded { .. }) && zmap.uses_head2(extent.la)? {
                needs(Incompat::DEVICE_TABLE, "lcluster of type HEAD2");
            }
        }
        Ok(())
    }

    /// What an attribute with a long prefix needs.
    pub fn of_long_prefix(&mut self, path: &[u8], inode: &Inode, problems: &Problems) {
        self.needs(Incompat::XATTR_PREFIXES, "long xattr name prefix", path, inode, problems);
    }
}

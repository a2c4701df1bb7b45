//! Writing of a layout: the metadata zone front to back, then the blocks before the data.

pub(crate) mod directory;
pub(crate) mod inode_writer;
pub(crate) mod kept;
pub(crate) mod special_inodes;
pub(crate) mod superblock;

use kiln_format::addr::SLOT_LEN;
use kiln_format::device::DeviceSlot;
use kiln_format::feature::Feature;
use kiln_format::superblock::Superblock;
use kiln_format::{Blkaddr, FormatError, Nid};

use crate::context::Context;
use crate::error::BuildError;
use crate::layout::special::SpecialInode;
use crate::layout::view::View;
use crate::layout::{Layout, Region};
use crate::out::{Behind, Out};
use crate::pack::append::Appender;
use crate::write::inode_writer::InodeWriter;
use crate::write::special_inodes::{SpecialInodes, WRITE_LEN};
use crate::write::superblock::{Head, Header, HeaderRecords, RootInode, SpecialNids};
use kiln_tree::NodeId;

/// Result of writing.
pub(crate) struct Written {
    /// Size of the image in blocks.
    pub blocks: u64,
    /// Blocks before the first data block.
    pub header_blocks: u64,
    /// Byte behind the metadata.
    pub metadata_end: u64,
    /// Number of inodes that no name leads to.
    pub special_inodes: u64,
    /// Number of inodes of the previous image that stay in use.
    pub kept_inodes: u64,
    /// Features of the image.
    pub features: Vec<Feature>,
    /// Its superblock.
    pub head: Head,
}

/// Parts of an image other than the data, which is written already.
pub(crate) struct ImageParts<'a> {
    /// The tree and all decisions about it.
    pub view: &'a View<'a>,
    /// Places of inodes and directories.
    pub layout: &'a Layout,
    /// Inodes that no name leads to.
    pub special_inodes: &'a SpecialInodes,
    /// Records before the data.
    pub header: &'a Header,
}

/// Writes the metadata zone behind `data`, and the header.
///
/// # Errors
/// An output that cannot be written.
pub(crate) fn write(
    parts: ImageParts<'_>,
    data: Appender<'_>,
    out: Out<'_>,
    context: Context<'_>,
) -> Result<Written, BuildError> {
    let Context { format, control, .. } = context;
    let ImageParts { view, layout, special_inodes, header } = parts;
    let start = data.next_block();
    let mut zone = ZoneWriter { out, start: start.0 * view.block_bits.len(), len: 0, digest: data.digest };
    let inodes = special_inodes.metabox.as_ref().map_or(0, |metabox| metabox.inodes);
    let before = u64::from(layout.last_serial);
    let mut writer = InodeWriter::new(view, layout, layout.blocks_start(start), before + inodes);
    let mut root = None;
    if let Some(previous) = view.previous {
        let mut bytes = Vec::new();
        writer.region(&Region::Inode(NodeId::ROOT), &mut bytes)?;
        zone.digest.update(&bytes);
        root = Some(RootInode { place: previous.root, bytes });
    }
    if special_inodes.metabox.is_none() {
        for piece in special_inodes::pieces(special_inodes::bytes(&layout.inodes, layout, &mut writer), WRITE_LEN) {
            control.check()?;
            zone.put(&piece?)?;
        }
    }
    let mut special = |contents: &SpecialInode| {
        let mut bytes = Vec::new();
        writer.special(contents, &mut bytes)?;
        zone.put_at_slot(&bytes, layout.zone_nid(view.block_bits))
    };
    // No walk reads these inodes.
    let packed = special_inodes.packed.as_ref().map(&mut special).transpose()?;
    let metabox = special_inodes.metabox.as_ref().map(|metabox| special(&metabox.contents)).transpose()?;
    let special = SpecialNids { packed, metabox };
    let inos = writer.serial - before + layout.kept_inodes;
    if let Some(behind) = out.behind {
        zone.end_with(behind, view.block_bits.len())?;
    }
    zone.fill_to(view.block_bits.len())?;
    let metadata_end = zone.start + zone.len;
    // Behind an older image, readers look for the end of the last block.
    let image_align = if out.behind.is_some() { 1 } else { format.layout.image_align };
    let blocks = view.block_bits.blocks_for(metadata_end.next_multiple_of(image_align));
    if blocks >= Blkaddr::HOLE32.0 {
        return Err(FormatError::does_not_fit("erofs_super_block", "blocks_lo", blocks).into());
    }
    let compression = superblock::records(view, special);
    let superblock = Superblock {
        inos,
        blocks,
        meta_blkaddr: match view.previous {
            Some(_) => Blkaddr(0),
            // See `zone_first_nid`; the header lies before.
            None => Blkaddr(start.0 - 1),
        },
        xattr_blkaddr: match view.previous {
            Some(previous) => previous.xattr_blkaddr,
            None if special.metabox.is_some() => Blkaddr(0),
            None => start,
        },
        ..header.superblock(view, layout, special, &compression)?
    };
    let slots = slots(Blkaddr(blocks), view, out);
    let head = header.write(HeaderRecords { superblock, compression, slots }, zone.digest, out, format)?;
    let head = Head { root, ..head };
    out.set_len(blocks * view.block_bits.len())?;
    Ok(Written {
        blocks,
        header_blocks: header.blocks,
        metadata_end,
        special_inodes: [special.packed, special.metabox].iter().flatten().count() as u64,
        kept_inodes: layout.kept_inodes,
        features: head.superblock.features(),
        head,
    })
}

/// Returns the extra devices by their numbers: those of the tree, then the one that is written. In the flat data
/// space they follow one another from block `start` on, so that they can be appended to the image.
fn slots(start: Blkaddr, view: &View<'_>, out: Out<'_>) -> Vec<DeviceSlot> {
    let devices = view.tree.stores().devices;
    let placed = devices.iter().map(|device| (device.tag, view.block_bits.blocks_for(device.len)));
    let stored = view.data.blob_blocks.zip(out.blob).map(|(blocks, blob)| (blob.tag, blocks));
    let mut next = start;
    let slot = |(tag, blocks)| {
        let uniaddr = Some(next);
        next = Blkaddr(next.0.saturating_add(blocks));
        DeviceSlot { tag, blocks, uniaddr }
    };
    placed.chain(stored).map(slot).collect()
}

/// Writes the metadata zone front to back.
struct ZoneWriter<'a> {
    out: Out<'a>,
    /// Byte offset of the zone in the image.
    start: u64,
    /// Bytes written so far.
    len: u64,
    digest: blake3::Hasher,
}

impl ZoneWriter<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), BuildError> {
        self.digest.update(bytes);
        self.out.write(bytes, self.start + self.len)?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Writes zeros up to a multiple of `unit`.
    fn fill_to(&mut self, unit: u64) -> Result<(), BuildError> {
        self.put(&vec![0; (self.len.next_multiple_of(unit) - self.len) as usize])
    }

    /// Writes the end of the last block of an image behind an older one.
    fn end_with(&mut self, behind: Behind<'_>, block_len: u64) -> Result<(), BuildError> {
        let end = (self.len + behind.end_len as u64).next_multiple_of(block_len);
        let bytes = (behind.end)(self.start + end);
        self.put(&vec![0; (end - self.len) as usize - bytes.len()])?;
        self.put(&bytes)
    }

    /// Writes an inode at the next slot. Returns its nid, given that of the first byte of the zone, `first`.
    fn put_at_slot(&mut self, inode: &[u8], first: Nid) -> Result<Nid, BuildError> {
        self.fill_to(SLOT_LEN)?;
        let nid = Nid(first.0 + self.len / SLOT_LEN);
        self.put(inode)?;
        Ok(nid)
    }
}

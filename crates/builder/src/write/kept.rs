//! Inodes and directories of the previous image that stay in use: those that would be written as they are there.
//!
//! An inode is kept if the writer, given its serial number and places, makes the bytes that the previous image has: so
//! nothing else needs to be compared. A directory names the inodes of its entries and of its parent. So it is kept only
//! with all of these. The root stays where it is, but its parts do not depend on each other: below each entry of the
//! root, either all directories are kept, or none.

use kiln_format::Blkaddr;
use kiln_format::inode::{Inode, InodeData};

use crate::error::BuildError;
use crate::inodes::previous::{PreviousMetadata, PreviousReader};
use crate::layout::view::View;
use crate::layout::{Kept, Layout, NOWHERE, Region};
use crate::write::inode_writer::InodeWriter;
use kiln_tree::{Kind, NodeId};

/// Byte of an inode at which its serial number lies, in both forms.
const SERIAL_OFF: usize = 20;

/// Finds what can be kept.
///
/// # Errors
/// Values that do not fit: a bug.
pub(crate) fn find(previous: &PreviousMetadata, view: &View<'_>) -> Result<Kept, BuildError> {
    let mut alike = Alike::find(previous, view)?;
    alike.drop_directories(view);
    let Alike { serials, layout } = alike;
    let is_kept = |node: &NodeId| serials[node.idx()].is_some();
    let nodes = view.tree.nodes().map(|(node, _)| node).filter(is_kept);
    let inodes = nodes.map(|node| (node, layout.pos(Region::Inode(node)))).collect();
    let last_serial = serials.iter().flatten().copied().max().unwrap_or(0);
    let mut blocks = layout.blocks_pos;
    blocks.retain(|node, _| is_kept(node));
    Ok(Kept { inodes, blocks, last_serial })
}

/// Inodes of the previous image that are the same if all those to which they refer are kept.
struct Alike {
    /// Serial number of each inode, by node.
    serials: Vec<Option<u32>>,
    /// Their places in the previous image.
    layout: Layout,
}

impl Alike {
    fn find(previous: &PreviousMetadata, view: &View<'_>) -> Result<Self, BuildError> {
        let (mut serials, mut layout) = (vec![None; view.tree.len()], Layout::absolute(0, view));
        layout.inode_pos[NodeId::ROOT.idx()] = previous.root;
        let others = previous.places.iter().filter(|(_, node)| *node != NodeId::ROOT && !view.is_left_out(*node));
        others.clone().for_each(|(place, node)| layout.inode_pos[node.idx()] = *place);
        let (mut inodes, mut blocks) = (previous.reader(), previous.reader());
        let (mut bytes, mut last) = (Vec::new(), None);
        for &(place, node) in others {
            // Different nodes are different inodes, whatever the previous image says.
            if last == Some(place) || !refers_to_places(node, view, &layout) {
                continue;
            }
            let Some(serial) = same_inode((place, node), view, &mut layout, &mut inodes, &mut bytes)? else { continue };
            if has_same_blocks(node, view, &layout, &mut blocks, &mut bytes)? {
                (serials[node.idx()], last) = (Some(serial), Some(place));
            }
        }
        Ok(Self { serials, layout })
    }

    /// Drops the directories below each entry of the root if not all that they name is kept.
    fn drop_directories(&mut self, view: &View<'_>) {
        let is_dir = |node: &NodeId| matches!(view.tree.node(*node).kind, Kind::Directory(_));
        for top in view.entries(NodeId::ROOT).map(|entry| entry.node).filter(is_dir) {
            let (mut dirs, mut next, mut is_kept) = (vec![top], 0, self.serials[top.idx()].is_some());
            while let Some(&dir) = dirs.get(next) {
                for node in view.entries(dir).map(|entry| entry.node) {
                    is_kept &= self.serials[node.idx()].is_some();
                    dirs.extend(Some(node).filter(is_dir));
                }
                next += 1;
            }
            if !is_kept {
                dirs.into_iter().for_each(|dir| self.serials[dir.idx()] = None);
            }
        }
    }
}

/// Returns true if a node is no directory, or all inodes that it names have a place.
fn refers_to_places(node: NodeId, view: &View<'_>, layout: &Layout) -> bool {
    let has_place = |node: NodeId| layout.inode_pos[node.idx()] != NOWHERE;
    let is_dir = matches!(view.tree.node(node).kind, Kind::Directory(_));
    !is_dir || has_place(view.tree.parent(node)) && view.entries(node).all(|entry| has_place(entry.node))
}

/// Returns the serial number of the inode at `place` if it is that of `node`. The place of its blocks is added to
/// `layout`.
fn same_inode(
    (place, node): (u64, NodeId),
    view: &View<'_>,
    layout: &mut Layout,
    reader: &mut PreviousReader<'_>,
    bytes: &mut Vec<u8>,
) -> Result<Option<u32>, BuildError> {
    let (len, in_block) = view.measure(node)?;
    let whole_len = if in_block { len } else { view.inodes.forms[node.idx()].len() as u64 };
    if view.block_bits.within(place) + whole_len > view.block_bits.len() {
        return Ok(None);
    }
    let Some(found) = reader.get(place, len) else { return Ok(None) };
    let Some(serial) = found.get(SERIAL_OFF..).and_then(|bytes| bytes.first_chunk()) else { return Ok(None) };
    let serial = u32::from_le_bytes(*serial);
    if view.own_data(node).0 > 0 {
        let start = Inode::decode(found, place, view.inodes.epoch, view.block_bits).map(|inode| inode.data);
        let (Ok(InodeData::FlatInline(start)) | Ok(InodeData::FlatPlain(Some(start)))) = start else { return Ok(None) };
        let Some(pos) = start.0.checked_mul(view.block_bits.len()) else { return Ok(None) };
        layout.blocks_pos.insert(node, pos);
    }
    bytes.clear();
    InodeWriter::new(view, layout, Blkaddr(0), 0).numbered_inode(node, serial, bytes)?;
    Ok((*bytes == found).then_some(serial))
}

/// Returns true if the blocks of a directory or symbolic link are the same, if it has some.
fn has_same_blocks(
    node: NodeId,
    view: &View<'_>,
    layout: &Layout,
    reader: &mut PreviousReader<'_>,
    bytes: &mut Vec<u8>,
) -> Result<bool, BuildError> {
    let Some(pos) = layout.blocks_pos(node) else { return Ok(true) };
    bytes.clear();
    InodeWriter::new(view, layout, Blkaddr(0), 0).blocks(node, bytes)?;
    Ok(reader.get(pos, bytes.len() as u64).is_some_and(|found| found == bytes))
}

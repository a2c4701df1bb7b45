//! Directories: their names in order, and their blocks.

use kiln_format::BlockBits;
use kiln_format::dirent::{self, Dirent};

use crate::error::BuildError;
use crate::layout::{Layout, View};
use crate::tree::NodeId;

/// Fills directory blocks: entries go to a block while they fit.
struct BlockFiller {
    block_len: u64,
    /// Bytes of the current block in use.
    used: u64,
}

impl BlockFiller {
    /// Before the first entry.
    fn new(block_bits: BlockBits) -> Self {
        Self { block_len: block_bits.len(), used: 0 }
    }

    /// Take the next entry. Whether it starts a block and another one lies before it.
    fn starts_block(&mut self, name_len: usize) -> bool {
        let len = dirent::entry_len(name_len) as u64;
        let starts = self.used + len > self.block_len;
        self.used = if starts { len } else { self.used + len };
        starts
    }
}

/// Names of a directory with its dot entries, in the order of their bytes.
fn names<'a>(view: &View<'a>, dir: NodeId) -> Vec<&'a [u8]> {
    let mut names: Vec<&[u8]> = view.entries(dir).map(|entry| entry.name).collect();
    let dots = [&b"."[..], b".."];
    for dot in &dots[usize::from(view.omits_dot)..] {
        let at = names.partition_point(|name| name < dot);
        names.insert(at, dot);
    }
    names
}

/// Size of a directory in bytes.
pub fn len(view: &View<'_>, dir: NodeId) -> u64 {
    let mut filler = BlockFiller::new(view.block_bits);
    let mut full = 0;
    for name in names(view, dir) {
        if filler.starts_block(name.len()) {
            full += view.block_bits.len();
        }
    }
    full + filler.used
}

/// All bytes of a directory.
///
/// # Errors
/// A node without a place, more names than entries: our own mistakes.
pub fn data(view: &View<'_>, layout: &Layout, dir: NodeId) -> Result<Vec<u8>, BuildError> {
    let mut children = view.entries(dir);
    let mut filler = BlockFiller::new(view.block_bits);
    let (mut data, mut block) = (Vec::new(), Vec::new());
    for name in names(view, dir) {
        let node = match name {
            b"." => dir,
            b".." => view.tree.parent(dir),
            _ => {
                let entry = children.next();
                let more = || BuildError::Internal(format!("node {} has more names than entries", dir.0));
                entry.ok_or_else(more)?.node
            }
        };
        let used = filler.used;
        if filler.starts_block(name.len()) {
            push_block(&block, used, view.block_bits.len(), &mut data)?;
            block.clear();
        }
        let file_type = view.tree.node(node).kind.file_type().dirent_number();
        block.push(Dirent { nid: layout.nid(node)?, file_type, name });
    }
    push_block(&block, filler.used, filler.used, &mut data)?;
    Ok(data)
}

fn push_block(entries: &[Dirent<'_>], used: u64, len: u64, data: &mut Vec<u8>) -> Result<(), BuildError> {
    let start = data.len();
    data.resize(start + len as usize, 0);
    Ok(dirent::encode_block(entries, &mut data[start..][..used as usize])?)
}

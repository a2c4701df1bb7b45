//! Blocks of directories.

use kiln_format::dirent::{self, Dirent};

use crate::error::BuildError;
use crate::layout::Layout;
use crate::layout::measure::BlockFiller;
use crate::layout::view::View;
use kiln_tree::NodeId;

/// Returns all bytes of a directory.
///
/// # Errors
/// A node without a place, more names than entries: both are bugs.
pub(crate) fn data(view: &View<'_>, layout: &Layout, dir: NodeId) -> Result<Vec<u8>, BuildError> {
    let mut children = view.entries(dir);
    let mut filler = BlockFiller::new(view.block_bits);
    let (mut data, mut block) = (Vec::new(), Vec::new());
    for name in view.names(dir) {
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

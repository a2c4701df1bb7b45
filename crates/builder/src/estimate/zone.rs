//! The length of the metadata. The layout is real; only the ratio of its compression is guessed.

use kiln_format::Nid;
use kiln_format::addr::SLOT_LEN;

use super::Interval;
use crate::error::BuildError;
use crate::format::Format;
use crate::layout::Layout;
use crate::layout::special::SpecialInode;
use crate::layout::view::View;
use crate::pack::Extents;
use crate::write::superblock::SpecialNids;

/// Ratio of compressed metadata, and its error. Trees of sources and of programs have 0.2 to 0.45.
const LEFT: f64 = 0.33;
const LEFT_ERROR: f64 = 0.2;

/// Returns the bytes of all metadata in whole blocks, `random_len` of them beside inodes and incompressible, and
/// whether there are special inodes, at places that mean nothing.
///
/// # Errors
/// Block sizes that the compact index cannot have.
pub(super) fn measure(
    view: &View<'_>,
    layout: &Layout,
    random_len: u64,
    format: &Format,
) -> Result<(Interval, SpecialNids), BuildError> {
    let directories: u64 = layout.packed_directories.iter().filter_map(|dir| view.packed_directory_len(*dir)).sum();
    let mut zone = if view.has_metabox { SLOT_LEN } else { layout.inodes.len };
    let packed_len = view.data.fragments_len + directories;
    if let Some(spec) = format.packing.spec.filter(|_| packed_len > 0) {
        let extents = view.data.fragments.clone();
        zone = inode_end(zone, view, &SpecialInode { len: packed_len, extents, algorithm: spec.method.algorithm() })?;
    }
    let mut compressed = directories;
    if let Some(spec) = format.metadata.metabox {
        let (len, algorithm) = (layout.inodes.len, spec.method.algorithm());
        zone = inode_end(zone, view, &SpecialInode { len, extents: Extents::default(), algorithm })?;
        let random_len = random_len.min(len);
        zone += random_len;
        compressed += len - random_len;
    }
    let block_bits = view.block_bits;
    let plain = (block_bits.blocks_for(zone) << block_bits.bits()) + layout.blocks.len;
    let compressed = Interval { value: LEFT, error: LEFT_ERROR }.times(compressed as f64);
    let is_packed = packed_len > 0 && format.packing.spec.is_some();
    let special = SpecialNids { packed: is_packed.then_some(Nid(0)), metabox: format.metadata.metabox.map(|_| Nid(0)) };
    Ok((Interval::exact(plain as f64) + compressed, special))
}

/// Returns the end of a special inode behind `zone`.
fn inode_end(zone: u64, view: &View<'_>, contents: &SpecialInode) -> Result<u64, BuildError> {
    let inode_len = contents.form().len() as u64;
    Ok(zone.next_multiple_of(SLOT_LEN) + inode_len + contents.shape(view)?.len_behind(inode_len)?)
}

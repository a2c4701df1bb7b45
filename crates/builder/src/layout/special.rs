//! Inodes that no name leads to: the packed inode and the metabox.

use kiln_format::Algorithm;
use kiln_format::inode::Form;

use crate::error::BuildError;
use crate::layout::lcluster_index::{self, IndexShape};
use crate::layout::map_shape::MapShape;
use crate::layout::view::View;
use crate::pack::Extents;

/// The contents of a special inode.
pub(crate) struct SpecialInode {
    /// Length in bytes.
    pub len: u64,
    /// Where they lie.
    pub extents: Extents,
    /// What compressed them.
    pub algorithm: Algorithm,
}

impl SpecialInode {
    /// Form of the inode.
    pub(crate) fn form(&self) -> Form {
        if self.len <= u64::from(u32::MAX) { Form::Compact } else { Form::Extended }
    }

    /// What its map looks like.
    ///
    /// # Errors
    /// Block sizes that the compact index cannot have.
    pub(crate) fn shape(&self, view: &View<'_>) -> Result<MapShape, BuildError> {
        Ok(match view.map_shape(self.len, &self.extents) {
            MapShape::Index(shape) => {
                let fit = lcluster_index::lie_in_packs(&self.extents.list, shape, self.form().len() as u64)?;
                MapShape::Index(IndexShape { scattered: !fit, ..shape })
            }
            records => records,
        })
    }
}

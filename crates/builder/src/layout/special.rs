//! Special inodes, which no name leads to: the packed inode and the metabox.

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
    /// Places of the contents.
    pub extents: Extents,
    /// Algorithm that compressed them.
    pub algorithm: Algorithm,
}

impl SpecialInode {
    /// Returns the form of the inode.
    pub(crate) fn form(&self) -> Form {
        if self.len <= u64::from(u32::MAX) { Form::Compact } else { Form::Extended }
    }

    /// Returns the shape of its map.
    ///
    /// # Errors
    /// Block sizes that the compact index cannot have.
    pub(crate) fn shape(&self, view: &View<'_>) -> Result<MapShape, BuildError> {
        Ok(match view.map_shape(self.len, &self.extents) {
            MapShape::Index(shape) => {
                let compact = IndexShape { scattered: false, ..shape };
                let fit = lcluster_index::lie_in_packs(&self.extents.list, compact, self.form().len() as u64)?;
                MapShape::Index(IndexShape { scattered: !fit, ..shape })
            }
            records => records,
        })
    }
}

//! Holes and data, as `lseek` tells them.

use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::map::extent::ExtentKind;
use crate::map::inode_map::Map;
use crate::metadata::inode::Inode;

/// Target of a seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekWhat {
    /// Bytes that are stored.
    Data,
    /// Zeros that are not stored, or the end of the file.
    Hole,
}

impl<'a> Reader<'a> {
    /// Implements `Image::seek`.
    pub(crate) fn seek(self, inode: &Inode, off: u64, what: SeekWhat) -> Result<Option<u64>, ReadError> {
        let size = inode.meta.size;
        let mut map = Map::open(self, inode)?;
        let mut off = off;
        while off < size {
            let extent = map.extent_at(off)?;
            if (extent.kind == ExtentKind::Hole) == (what == SeekWhat::Hole) {
                return Ok(Some(off));
            }
            if extent.end() <= off {
                return Err(ReadError::Internal { what: "an extent without progress".into() });
            }
            off = extent.end();
            if off >= size {
                return Ok((what == SeekWhat::Hole).then_some(size));
            }
        }
        Ok(None)
    }
}

//! Holes and data, as `lseek` tells them.

use crate::error::ReadError;
use crate::image::Image;
use crate::map::extent::ExtentKind;
use crate::map::inode_map::Map;
use crate::metadata::inode::Inode;

/// What to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekWhat {
    /// Bytes that are stored.
    Data,
    /// Zeros that are not stored, or the end of the file.
    Hole,
}

impl Image {
    /// The first byte at or behind `off` that is data, or a hole; the end of the file counts as a hole. `None`: there
    /// is none, or `off` is not in the file (ENXIO). Holes are those of the layout, not runs of stored zeros.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// use kiln_read::SeekWhat;
    ///
    /// let file = image.open_file("/big/text")?;
    /// assert_eq!(image.seek(file.inode(), 0, SeekWhat::Data)?, Some(0));
    /// assert_eq!(image.seek(file.inode(), 0, SeekWhat::Hole)?, Some(file.size()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Something without contents, a damaged map, a failing source.
    pub fn seek(&self, inode: &Inode, off: u64, what: SeekWhat) -> Result<Option<u64>, ReadError> {
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

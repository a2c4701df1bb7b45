//! All extents of a file, one behind the other.

use super::extent::Extent;
use super::inode_map::Map;
use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::metadata::inode::Inode;
use kiln_format::Nid;
use std::iter::FusedIterator;

/// The extents of a file, see [`Image::extents`].
pub struct Extents<'a> {
    inode: Inode,
    /// `None` behind the last extent and behind an error.
    map: Option<Result<Map<'a>, ReadError>>,
    off: u64,
}

impl<'a> Extents<'a> {
    pub(crate) fn new(reader: Reader<'a>, inode: &Inode) -> Self {
        Self { inode: *inode, map: Some(Map::open(reader, inode)), off: 0 }
    }
}

impl Iterator for Extents<'_> {
    type Item = Result<Extent, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = match self.map.as_mut()? {
            Ok(_) if self.off >= self.inode.meta.size => None,
            Ok(map) => Some(extent_over(map, self.off).and_then(|extent| self.follows(extent))),
            Err(error) => Some(Err(error.clone())),
        };
        match &next {
            Some(Ok(extent)) => self.off = extent.end(),
            _ => self.map = None,
        }
        next
    }
}

impl FusedIterator for Extents<'_> {}

impl Extents<'_> {
    fn follows(&self, extent: Extent) -> Result<Extent, ReadError> {
        match extent.la == self.off {
            true => Ok(extent),
            false => Err(out_of_order(self.inode.nid, extent.la)),
        }
    }
}

/// Returns the extent with byte `off` of the file, which must be in it. One that ends before is an
/// error: a loop that goes on behind it would never end.
pub(crate) fn extent_over(map: &mut Map<'_>, off: u64) -> Result<Extent, ReadError> {
    let extent = map.extent_at(off)?;
    match extent.la <= off && off < extent.end() {
        true => Ok(extent),
        false => Err(out_of_order(map.nid(), extent.la)),
    }
}

fn out_of_order(nid: Nid, la: u64) -> ReadError {
    ReadError::corrupt("erofs_inode", 0, "extent", la, "extents overlap or leave gaps").at_nid(nid)
}

//! Images of composefs: their large files are objects elsewhere, which overlayfs puts in their
//! place.
//!
//! Such an image is plain EROFS. Each file that is an object has its length, holes for contents,
//! and two attributes of overlayfs: one that says that there are only metadata here, and one that
//! names the object. Elsewhere the same attributes are those of a backup of an overlay's upper
//! directory, and mean nothing: only composefs's header decides.

use super::inode::Inode;
use crate::error::ReadError;
use crate::image::reader::Reader;
use kiln_format::Escaped;
use kiln_format::inode::FileType;
use std::fmt;

/// Name of the attribute of a file that has only metadata here.
const METACOPY: &[u8] = b"trusted.overlay.metacopy";
/// Name of the attribute with the place of the contents: a path in the store of objects.
const REDIRECT: &[u8] = b"trusted.overlay.redirect";

/// Object that has the contents of a file of a composefs image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComposefsObject {
    /// The object's path in the store, from its root; `None` where the image does not name it: it
    /// has the file's own path then.
    pub path: Option<Vec<u8>>,
}

impl fmt::Display for ComposefsObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "the composefs object {}", Escaped(path.strip_prefix(b"/").unwrap_or(path))),
            None => f.write_str("a composefs object of the same path"),
        }
    }
}

impl<'a> Reader<'a> {
    /// Implements `Image::composefs_object`.
    pub(crate) fn composefs_object(self, inode: &Inode) -> Result<Option<ComposefsObject>, ReadError> {
        if !self.volume.is_composefs || inode.meta.file_type != FileType::Regular || inode.meta.size == 0 {
            return Ok(None);
        }
        match self.get_xattr(inode, METACOPY)? {
            None => Ok(None),
            Some(_) => Ok(Some(ComposefsObject { path: self.get_xattr(inode, REDIRECT)? })),
        }
    }
}

//! Images of composefs: their large files are objects elsewhere, which overlayfs puts in their
//! place.
//!
//! Such an image is plain EROFS. Each file that is an object has its length, holes for contents,
//! and two attributes of overlayfs: one that says that there are only metadata here, and one that
//! names the object. Elsewhere the same attributes are those of a backup of an overlay's upper
//! directory, and mean nothing: only composefs's header decides.
//!
//! An image whose objects are at hand is read as overlayfs shows it, the *merged view*. The
//! attributes of overlayfs are hidden, but for those that composefs has escaped, because they are
//! the tree's own. So are the character devices with the number 0 that hide directories of objects;
//! whiteouts of the tree itself are escaped, too: they are empty files with attributes that say so.

use super::inode::Inode;
use crate::error::ReadError;
use crate::error::object::ComposefsObject;
use crate::image::reader::Reader;
use kiln_format::Nid;
use kiln_format::inode::FileType;
use std::borrow::Cow;

/// Name of the attribute of a file that has only metadata here.
const METACOPY: &[u8] = b"trusted.overlay.metacopy";
/// Name of the attribute with the place of the contents: a path in the store of objects.
const REDIRECT: &[u8] = b"trusted.overlay.redirect";
/// Start of the names of overlayfs's attributes.
const OVERLAY: &[u8] = b"trusted.overlay.";
/// Start of the names of the tree's own attributes that overlayfs would take for its own.
const ESCAPED: &[u8] = b"trusted.overlay.overlay.";

impl<'a> Reader<'a> {
    /// Implements `Image::composefs_object`.
    pub(crate) fn composefs_object(self, inode: &Inode) -> Result<Option<ComposefsObject>, ReadError> {
        match self.is_merged() {
            true => Ok(None),
            false => self.object_of(inode),
        }
    }

    /// Returns the object that has the contents of a file, be it at hand or not.
    pub(crate) fn object_of(self, inode: &Inode) -> Result<Option<ComposefsObject>, ReadError> {
        if !self.volume.is_composefs || inode.meta.file_type != FileType::Regular || inode.meta.size == 0 {
            return Ok(None);
        }
        match self.get_stored_xattr(inode, METACOPY)? {
            None => Ok(None),
            Some(metacopy) => Ok(Some(ComposefsObject::new(self.get_stored_xattr(inode, REDIRECT)?, metacopy))),
        }
    }

    /// Returns true if the image is read as overlayfs shows it over its objects.
    pub(crate) fn is_merged(self) -> bool {
        self.volume.objects.is_some()
    }

    /// Returns true if the merged view does not have this entry of a directory.
    pub(crate) fn hides_entry(self, nid: Nid, file_type: u8) -> Result<bool, ReadError> {
        if !self.is_merged() || file_type != FileType::CharDevice.dirent_number() {
            return Ok(false);
        }
        let inode = self.inode(nid)?;
        Ok(inode.file_type() == FileType::CharDevice && inode.rdev().encode().ok() == Some(0))
    }

    /// Returns the name under which an attribute is shown, or `None` if it is not.
    pub(crate) fn shown_xattr(self, name: Vec<u8>) -> Option<Vec<u8>> {
        if !self.is_merged() {
            return Some(name);
        }
        match name.strip_prefix(ESCAPED) {
            Some(rest) => Some([OVERLAY, rest].concat()),
            None => (!name.starts_with(OVERLAY)).then_some(name),
        }
    }

    /// Returns the name under which an attribute is stored.
    pub(crate) fn stored_xattr<'n>(self, name: &'n [u8]) -> Cow<'n, [u8]> {
        match name.strip_prefix(OVERLAY).filter(|_| self.is_merged()) {
            Some(rest) => Cow::Owned([ESCAPED, rest].concat()),
            None => Cow::Borrowed(name),
        }
    }
}

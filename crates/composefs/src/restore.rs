//! The way back: what a file of an image was before composefs prepared it.
//!
//! The caller reads the image, and asks for each file in turn. A tree of the answers gives the same
//! image again if hard links are canonical, as in [`dump::write`](crate::dump::write).

use crate::xattr_names::{self as names, METACOPY, OVERLAY, OVERLAY_ESCAPED, REDIRECT};
use kiln_digest::{Digest, metacopy};
use kiln_format::inode::FileType;

/// A file of an image, as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct ImageFile<'a> {
    /// Path with a leading slash.
    pub path: &'a [u8],
    /// Type.
    pub file_type: FileType,
    /// Size in bytes.
    pub size: u64,
    /// Device number of a device.
    pub rdev: u32,
    /// Attributes.
    pub xattrs: &'a [(&'a [u8], &'a [u8])],
}

/// Part that a file has in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role<'a> {
    /// A stub that hides a directory of objects: no file of the tree.
    Stub,
    /// A whiteout: a character device with the number 0.
    Whiteout,
    /// A regular file whose contents are an object.
    External {
        /// fs-verity digest of the contents, if the image has it.
        digest: Option<Digest>,
        /// Path of the object in a store, if the image has it.
        object: Option<&'a [u8]>,
    },
    /// The file that it seems to be.
    Plain,
}

/// Error of an attribute that leads to no object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// A digest of an unknown form.
    #[error("trusted.overlay.metacopy is no fs-verity digest")]
    Metacopy,
    /// A relative path.
    #[error("trusted.overlay.redirect has no leading slash")]
    Redirect,
}

impl<'a> ImageFile<'a> {
    fn xattr(&self, key: &[u8]) -> Option<&'a [u8]> {
        self.xattrs.iter().find(|(other, _)| *other == key).map(|(_, value)| *value)
    }

    /// Returns the part of the file.
    ///
    /// # Errors
    /// Attributes that composefs does not write.
    pub fn role(&self) -> Result<Role<'a>, RestoreError> {
        match self.file_type {
            FileType::CharDevice if self.rdev == 0 => Ok(match self.path {
                [b'/', high, low] if is_digit(*high) && is_digit(*low) => Role::Stub,
                _ => Role::Whiteout,
            }),
            FileType::Regular if self.size == 0 && names::WHITEOUT.iter().all(|key| self.xattr(key) == Some(b"")) => {
                Ok(Role::Whiteout)
            }
            FileType::Regular => match self.xattr(METACOPY) {
                None => Ok(Role::Plain),
                Some(value) => {
                    let object = self.xattr(REDIRECT).map(|path| path.strip_prefix(b"/").ok_or(RestoreError::Redirect));
                    let digest = metacopy::parse(value).map_err(|_| RestoreError::Metacopy)?;
                    Ok(Role::External { digest, object: object.transpose()? })
                }
            },
            _ => Ok(Role::Plain),
        }
    }

    /// Returns the attributes that the file had, keys and values. A directory with a whiteout loses the
    /// marks that say so: composefs sets them again.
    pub fn original_xattrs(&self, holds_whiteout: bool) -> impl Iterator<Item = (Vec<u8>, &'a [u8])> {
        let is_empty_file = self.file_type == FileType::Regular && self.size == 0;
        let is_whiteout = is_empty_file && names::WHITEOUT.iter().all(|key| self.xattr(key) == Some(b""));
        let is_mark = move |key: &[u8], value: &[u8]| {
            (is_whiteout && names::WHITEOUT.contains(&key))
                || (holds_whiteout && value.is_empty() && names::WHITEOUTS.contains(&key))
                || (holds_whiteout && value == b"x" && names::OPAQUE.contains(&key))
        };
        self.xattrs.iter().filter_map(move |&(key, value)| {
            if is_mark(key, value) {
                return None;
            }
            match key.strip_prefix(OVERLAY_ESCAPED) {
                Some(rest) => Some(([OVERLAY, rest].concat(), value)),
                // All others of overlayfs are composefs's.
                None => (!key.starts_with(OVERLAY)).then(|| (key.to_vec(), value)),
            }
        })
    }
}

fn is_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

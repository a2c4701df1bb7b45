//! Where an image goes.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::error::BuildError;

/// Where an image goes.
#[derive(Clone, Copy, Debug)]
pub struct Out<'a> {
    /// Open for reading and writing; from `offset` on there must be nothing.
    pub image: &'a File,
    /// The byte of the file where the image begins.
    pub offset: u64,
    /// Where the data of files in chunks goes, if not into the image.
    pub blob: Option<Blob<'a>>,
}

/// A file that holds chunks of an image: its extra device.
#[derive(Clone, Copy, Debug)]
pub struct Blob<'a> {
    /// Open for reading and writing; empty.
    pub file: &'a File,
    /// What the image's device table calls it.
    pub tag: [u8; 64],
}

impl<'a> From<&'a File> for Out<'a> {
    /// An image that begins where the file does.
    fn from(image: &'a File) -> Self {
        Self { image, offset: 0, blob: None }
    }
}

impl Out<'_> {
    /// Be as before the first write.
    ///
    /// # Errors
    /// Those of the files.
    pub(crate) fn clear(&self) -> Result<(), BuildError> {
        self.set_len(0)?;
        let cleared = self.blob.map_or(Ok(()), |blob| blob.file.set_len(0));
        cleared.map_err(|source| BuildError::Write { action: "empty the extra device", source })
    }

    /// Write at a byte address of the image.
    ///
    /// # Errors
    /// Those of the file.
    pub(crate) fn write(&self, bytes: &[u8], pa: u64) -> Result<(), BuildError> {
        let written = self.image.write_all_at(bytes, self.offset.saturating_add(pa));
        written.map_err(|source| BuildError::Write { action: "write the image", source })
    }

    /// End the image behind its byte `len`.
    ///
    /// # Errors
    /// Those of the file.
    pub(crate) fn set_len(&self, len: u64) -> Result<(), BuildError> {
        let set = self.image.set_len(self.offset.saturating_add(len));
        set.map_err(|source| BuildError::Write { action: "set the size of the image", source })
    }
}

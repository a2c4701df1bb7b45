//! Outputs of a build: the image, and its extra device.

use kiln_output::{Output, write_all_at};

use crate::error::BuildError;

/// Output of an image.
#[derive(Clone, Copy)]
pub struct Out<'a> {
    /// The image; nothing may exist from `offset` on.
    pub image: &'a dyn Output,
    /// The byte of the output where the image begins.
    pub offset: u64,
    /// Extra device for the data of files in chunks; `None` if that data goes to the image.
    pub blob: Option<Blob<'a>>,
    /// The previous image, if the new one is appended to it, see [`build_behind`](crate::build_behind).
    pub behind: Option<Behind<'a>>,
}

/// Output of an image that is appended to a previous one, whose stored data it shares.
#[derive(Clone, Copy)]
pub struct Behind<'a> {
    /// Byte of the image at which new data begins: a block boundary behind all existing data.
    pub start: u64,
    /// Returns the last bytes of the last block, given the byte of the image at which that block ends.
    pub end: &'a dyn Fn(u64) -> Vec<u8>,
    /// Length of the result of `end`, which does not vary: less than a block.
    pub end_len: usize,
    /// Most bytes that configuration records may take behind the superblock's record.
    pub records_max_len: u64,
    /// Returns the byte of the image for a root inode beside the superblock, given the lengths of its record and the
    /// bytes of its attributes; `None` if there is no room. Such an inode is returned in the head, and the image may
    /// keep inodes of the previous one.
    pub root: &'a dyn Fn(u64, &[u8]) -> Option<u64>,
}

/// An output that holds chunks of an image: its extra device.
#[derive(Clone, Copy)]
pub struct Blob<'a> {
    /// The output, which is empty.
    pub file: &'a dyn Output,
    /// The name of the device in the image's device table.
    pub tag: [u8; 64],
}

impl<'a, O: Output> From<&'a O> for Out<'a> {
    /// Makes an output of an image that begins at its byte 0.
    fn from(image: &'a O) -> Self {
        Self { image, offset: 0, blob: None, behind: None }
    }
}

impl Out<'_> {
    /// Writes at a byte address of the image.
    ///
    /// # Errors
    /// Those of the output.
    pub(crate) fn write(&self, bytes: &[u8], pa: u64) -> Result<(), BuildError> {
        let written = write_all_at(self.image, bytes, self.offset.saturating_add(pa));
        written.map_err(|source| BuildError::Write { action: "write the image", source })
    }

    /// Ends the image behind its byte `len`.
    ///
    /// # Errors
    /// Those of the output.
    pub(crate) fn set_len(&self, len: u64) -> Result<(), BuildError> {
        let set = self.image.set_len(self.offset.saturating_add(len));
        set.map_err(|source| BuildError::Write { action: "set the size of the image", source })
    }
}

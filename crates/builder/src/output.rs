//! Where an image goes.
//!
//! A builder writes anywhere in its output, and reads some of it back. Files and memory can do this ([`Output`]); an
//! [`AtomicFile`](atomic_file::AtomicFile) appears under its name only once it is complete. For what cannot, such as a pipe or a
//! block device in use as a whole, an image waits in a [`Spool`](spool::Spool).

pub(crate) mod atomic_file;
pub(crate) mod commit;
pub(crate) mod error;
mod kept_file;
pub(crate) mod memory;
pub(crate) mod place;
pub(crate) mod spool;
pub(crate) mod unfinished;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::error::BuildError;

/// Bytes that can be written and read anywhere. Only one thread of a build does.
pub trait Output {
    /// Write the first of `bytes` at `offset`, and say how many: as `pwrite(2)`, it may be less than all. What lies between the
    /// end and `offset` becomes zeros.
    ///
    /// # Errors
    /// Those of the system.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Read from `offset` on, and say how many bytes: as `pread(2)`, it may be less than `buf` holds, and 0 only at the end.
    ///
    /// # Errors
    /// Those of the system.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Be so many bytes long. What is new is zeros.
    ///
    /// # Errors
    /// Those of the system.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// See that everything written survives a crash. A build does not call it, but [`commit`](commit::commit) does.
    ///
    /// # Errors
    /// Those of the system.
    fn sync(&self) -> io::Result<()>;

    /// The file that it is, with the same offsets, if the system can copy into it.
    fn file(&self) -> Option<&File> {
        None
    }
}

impl Output for File {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buf, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        File::set_len(self, len)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }

    fn file(&self) -> Option<&File> {
        Some(self)
    }
}

/// Write all of `bytes` at `offset`.
///
/// # Errors
/// Those of the output, and one that takes nothing more.
pub fn write_all_at(output: &dyn Output, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match output.write_at(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(len) => (bytes, offset) = (&bytes[len..], offset + len as u64),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Fill `buf` from `offset` on.
///
/// # Errors
/// Those of the output, and its end.
pub fn read_exact_at(output: &dyn Output, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buf.is_empty() {
        match output.read_at(buf, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => (buf, offset) = (&mut buf[len..], offset + len as u64),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Where an image goes.
#[derive(Clone, Copy)]
pub struct Out<'a> {
    /// The image; from `offset` on there must be nothing.
    pub image: &'a dyn Output,
    /// The byte of the output where the image begins.
    pub offset: u64,
    /// Where the data of files in chunks goes, if not into the image.
    pub blob: Option<Blob<'a>>,
    /// The older image that is there, if the new one goes behind it, see [`build_behind`](crate::build_behind).
    pub behind: Option<Behind<'a>>,
}

/// Where an image goes that is appended to an older one, whose stored data it shares.
#[derive(Clone, Copy)]
pub struct Behind<'a> {
    /// Byte of the image where what is new begins: whole blocks behind all that is there.
    pub start: u64,
    /// What the last bytes of the last block become.
    pub end: &'a dyn Fn(u64) -> Vec<u8>,
    /// Bytes of `end`, whatever it is given: less than a block.
    pub end_len: usize,
    /// Bytes behind the superblock's record that configuration records may take, at most.
    pub records_max_len: u64,
}

/// An output that holds chunks of an image: its extra device.
#[derive(Clone, Copy)]
pub struct Blob<'a> {
    /// Empty.
    pub file: &'a dyn Output,
    /// The name that the image's device table has for it.
    pub tag: [u8; 64],
}

impl<'a, O: Output> From<&'a O> for Out<'a> {
    /// An image that begins where the output does.
    fn from(image: &'a O) -> Self {
        Self { image, offset: 0, blob: None, behind: None }
    }
}

impl Out<'_> {
    /// Be as before the first write.
    ///
    /// # Errors
    /// Those of the outputs.
    pub(crate) fn clear(&self) -> Result<(), BuildError> {
        self.set_len(self.behind.map_or(0, |behind| behind.start))?;
        let cleared = self.blob.map_or(Ok(()), |blob| blob.file.set_len(0));
        cleared.map_err(|source| BuildError::Write { action: "empty the extra device", source })
    }

    /// Write at a byte address of the image.
    ///
    /// # Errors
    /// Those of the output.
    pub(crate) fn write(&self, bytes: &[u8], pa: u64) -> Result<(), BuildError> {
        let written = write_all_at(self.image, bytes, self.offset.saturating_add(pa));
        written.map_err(|source| BuildError::Write { action: "write the image", source })
    }

    /// End the image behind its byte `len`.
    ///
    /// # Errors
    /// Those of the output.
    pub(crate) fn set_len(&self, len: u64) -> Result<(), BuildError> {
        let set = self.image.set_len(self.offset.saturating_add(len));
        set.map_err(|source| BuildError::Write { action: "set the size of the image", source })
    }
}

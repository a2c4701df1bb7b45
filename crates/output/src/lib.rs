//! Files that appear under their names only when they are complete.
//!
//! A program writes anywhere in its output, and reads some of it back. Files and memory can do this
//! ([`Output`]). An [`AtomicFile`] appears under its name once it is complete, or not at all. For a
//! destination that cannot do this, such as a pipe or a whole block device ([`Place`]), the bytes
//! wait in a [`Spool`].

#![warn(unreachable_pub)]
#![forbid(unsafe_code)]

mod atomic_file;
mod commit;
mod error;
mod kept_file;
mod memory;
mod place;
mod spool;
mod unfinished;

pub use atomic_file::{AtomicFile, Existing};
pub use commit::{CommitError, Durability, Unpublished, commit};
pub use error::OutputError;
pub use memory::MemoryOutput;
pub use place::Place;
pub use spool::{CopyError, Spool};
pub use unfinished::remove_unfinished;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that can be written and read anywhere. Only one thread of a build does.
pub trait Output {
    /// Write the first of `bytes` at `offset`, and say how many: as `pwrite(2)`, it may be less
    /// than all. What lies between the end and `offset` becomes zeros.
    ///
    /// # Errors
    /// Those of the system.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Read from `offset` on, and say how many bytes: as `pread(2)`, it may be less than `buf`
    /// holds, and 0 only at the end.
    ///
    /// # Errors
    /// Those of the system.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Be so many bytes long. What is new is zeros.
    ///
    /// # Errors
    /// Those of the system.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// See that everything written survives a crash. A build does not call it, but [`commit`] does.
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

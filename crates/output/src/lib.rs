//! Files that appear under their names only when they are complete.
//!
//! A program writes anywhere in its output, and reads some of it back. Files and memory support this ([`Output`]).
//! An [`AtomicFile`] appears under its name once it is complete, or not at all. Some destinations do not support it,
//! such as a pipe or a whole block device ([`Place`]); for these, the bytes wait in a [`Spool`].

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

/// Storage that can be written and read at any offset. Only one thread of a build does so.
pub trait Output {
    /// Writes the first of `bytes` at `offset`, and returns their number: like `pwrite(2)`, it may write fewer than
    /// all. A gap between the end and `offset` becomes zeros.
    ///
    /// # Errors
    /// Those of the system.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Reads from `offset` on, and returns the number of bytes: like `pread(2)`, it may read fewer than `buf` holds,
    /// and 0 only at the end.
    ///
    /// # Errors
    /// Those of the system.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Sets the length in bytes. New bytes are zeros.
    ///
    /// # Errors
    /// Those of the system.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes all written bytes durable. A build does not call it, but [`commit`] does.
    ///
    /// # Errors
    /// Those of the system.
    fn sync(&self) -> io::Result<()>;

    /// Returns the file behind the output, with the same offsets, if the system can copy into it.
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

/// Writes all of `bytes` at `offset`.
///
/// # Errors
/// Those of the output, including one that accepts no more bytes.
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

/// Fills `buf` from `offset` on.
///
/// # Errors
/// Those of the output, and an end before `buf` is full.
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

//! Inline tails between reading (in plan order) and writing (in the order of inodes).
//!
//! They stay in memory up to a limit and go to a nameless scratch file behind it: a million small files are gigabytes.

use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::error::BuildError;

/// Place of a tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TailRef {
    /// Byte offset among all tails.
    pub off: u64,
    /// Its length in bytes, less than a block.
    pub len: u16,
}

/// All tails of a build.
pub(crate) struct Tails {
    memory: Vec<u8>,
    memory_limit: usize,
    scratch: Option<File>,
    scratch_dir: PathBuf,
    end: u64,
}

impl Tails {
    /// Creates an empty store that keeps at most `memory_limit` bytes in memory.
    pub(crate) fn new(scratch_dir: PathBuf, memory_limit: usize) -> Self {
        Self { memory: Vec::new(), memory_limit, scratch: None, scratch_dir, end: 0 }
    }

    /// Stores `tail`, shorter than 64 KiB.
    ///
    /// # Errors
    /// A scratch file that cannot be made or written.
    pub(crate) fn push(&mut self, tail: &[u8]) -> Result<TailRef, BuildError> {
        Ok(TailRef { len: tail.len() as u16, off: self.push_text(tail)? })
    }

    /// Stores text of any length, and returns its offset.
    ///
    /// # Errors
    /// A scratch file that cannot be made or written.
    pub(crate) fn push_text(&mut self, tail: &[u8]) -> Result<u64, BuildError> {
        let off = self.end;
        if self.memory.len() + tail.len() > self.memory_limit {
            self.spill()?;
        }
        self.memory.extend_from_slice(tail);
        self.end += tail.len() as u64;
        Ok(off)
    }

    /// Appends a tail to `out`.
    ///
    /// # Errors
    /// A scratch file that cannot be read.
    pub(crate) fn get(&self, tail: TailRef, out: &mut Vec<u8>) -> Result<(), BuildError> {
        self.get_text(tail.off, tail.len.into(), out)
    }

    /// Appends `len` bytes of a stored text at offset `at` to `out`.
    ///
    /// # Errors
    /// A scratch file that cannot be read.
    pub(crate) fn get_text(&self, at: u64, len: usize, out: &mut Vec<u8>) -> Result<(), BuildError> {
        let start = out.len();
        let spilled = self.end - self.memory.len() as u64;
        if let Some(off) = at.checked_sub(spilled) {
            out.extend_from_slice(&self.memory[off as usize..][..len]);
            return Ok(());
        }
        let Some(scratch) = &self.scratch else {
            return Err(BuildError::Internal(format!("no scratch file holds the tail at {at}")));
        };
        out.resize(start + len, 0);
        scratch
            .read_exact_at(&mut out[start..], at)
            .map_err(|source| BuildError::Write { action: "read back the scratch file", source })
    }

    /// Moves the tails in memory to the scratch file.
    fn spill(&mut self) -> Result<(), BuildError> {
        let failed = |source| BuildError::Write { action: "write the scratch file", source };
        let scratch = match self.scratch.take() {
            Some(scratch) => scratch,
            None => nameless_file(&self.scratch_dir).map_err(failed)?,
        };
        scratch.write_all_at(&self.memory, self.end - self.memory.len() as u64).map_err(failed)?;
        self.scratch = Some(scratch);
        self.memory.clear();
        Ok(())
    }
}

/// Creates a file without a name in `dir`: nothing is left of it, however the program ends.
fn nameless_file(dir: &PathBuf) -> io::Result<File> {
    let dir = openat(rustix::fs::CWD, dir, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let (rw, mode) = (OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    match openat(&dir, ".", rw | OFlags::TMPFILE, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let name = format!(".kiln-tails-{}", std::process::id());
            let file = openat(&dir, &name, rw | OFlags::CREATE | OFlags::EXCL, mode)?;
            unlinkat(&dir, &name, AtFlags::empty())?;
            Ok(file.into())
        }
        other => Ok(other?.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_come_back_from_memory_and_from_the_scratch_file() {
        let mut tails = Tails::new(std::env::temp_dir(), 1000);
        let content = |n: u16| vec![n as u8; usize::from(n)];
        let refs: Vec<_> = (1..200u16).map(|n| tails.push(&content(n)).unwrap()).collect();
        assert!(tails.scratch.is_some() && !tails.memory.is_empty());
        for (n, tail) in (1..200u16).zip(refs) {
            let mut out = vec![9];
            tails.get(tail, &mut out).unwrap();
            assert_eq!(out[1..], content(n));
        }
    }
}

//! Additions to a store.

use crate::error::StoreError;
use crate::store::Store;
use kiln_composefs::from_tree::contents::{self, TreeContents};
use kiln_composefs::tree::object_path;
use kiln_composefs::verity::{self, Algorithm, Digest, Hasher};
use kiln_output::{AtomicFile, Durability, Existing, OutputError};
use kiln_parallel::Threads;
use kiln_tree::{Content, ContentError, NodeId, Tree, UnreadableFile};
use rustix::fs::{Mode, copy_file_range, fchmod, ioctl_ficlone};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Longest contents in bytes that are kept in memory until their digest is known.
const IN_MEMORY_LEN: u64 = 1 << 20;
/// Bytes that are read at once.
const PIECE_LEN: usize = 256 << 10;
/// Bytes that the system copies at once, between two looks at the flag that stops it.
const COPY_LEN: u64 = 64 << 20;
/// Mode of objects, whatever the umask, as that of `mkcomposefs`.
const MODE: u32 = 0o644;

impl Store {
    /// Reads all regular files of a tree, and adds those to the store that are not stored in images.
    /// `stop` ends it early. Call [`Store::sync`] afterwards.
    ///
    /// # Errors
    /// The first file, in the order of nodes, that cannot be read or stored; [`StoreError::Stopped`].
    pub fn read_tree(
        &self,
        tree: &Tree,
        algorithm: Algorithm,
        threads: Threads,
        stop: &AtomicBool,
    ) -> Result<TreeContents, StoreError> {
        contents::read_with(tree, threads, || {
            let mut buf = Vec::new();
            move |id: NodeId, len, content: Box<dyn Content>| {
                let mut source = Contents { content, len, stop };
                self.put(&mut source, algorithm, &mut buf).map_err(|error| match error {
                    PutError::Content(source) => UnreadableFile { path: tree.path(id), source }.into(),
                    PutError::Store(error) => error,
                })
            }
        })
    }

    /// Adds an object with these contents, and returns its digest. Call [`Store::sync`] afterwards.
    ///
    /// # Errors
    /// Errors of the system; something else of the object's name.
    pub fn put_bytes(&self, bytes: &[u8], algorithm: Algorithm) -> Result<Digest, StoreError> {
        let digest = verity::digest(algorithm, bytes);
        if !self.has_whole(&digest, bytes.len() as u64)? {
            let object = self.begin(&digest)?;
            if let Some(object) = object {
                let path = self.path().join(object_path(&digest));
                object.file().write_all(bytes).map_err(StoreError::file(path, "write"))?;
                self.finish(object, &digest)?;
            }
        }
        Ok(digest)
    }

    fn put(&self, source: &mut Contents<'_>, algorithm: Algorithm, buf: &mut Vec<u8>) -> Result<Digest, PutError> {
        if source.len <= IN_MEMORY_LEN {
            buf.resize(source.len as usize, 0);
            source.read(buf, 0)?;
            source.content.verify_unchanged()?;
            return Ok(self.put_bytes(buf, algorithm)?);
        }
        let digest = source.pass(algorithm, buf, |_| Ok(()))?;
        if self.has_whole(&digest, source.len)? {
            return Ok(digest);
        }
        let Some(object) = self.begin(&digest)? else { return Ok(digest) };
        let path = self.path().join(object_path(&digest));
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::Interrupted => PutError::Store(StoreError::Stopped),
            _ => PutError::Store(StoreError::file(&path, "write")(error)),
        };
        let copied = match source.content.file() {
            Some(file) => match copy(file, object.file(), source.len, source.stop).map_err(failed)? {
                true => Some(digest_of(object.file(), algorithm, buf, source.stop).map_err(failed)?),
                false => None,
            },
            None => None,
        };
        let stored = match copied {
            Some(stored) => {
                source.content.verify_unchanged()?;
                stored
            }
            None => source.pass(algorithm, buf, |piece| object.file().write_all(piece).map_err(failed))?,
        };
        if stored != digest {
            return Err(ContentError::Changed("its contents are others than before").into());
        }
        self.finish(object, &digest)?;
        Ok(digest)
    }

    /// Returns true if the object is there, with this length.
    fn has_whole(&self, digest: &Digest, expected: u64) -> Result<bool, StoreError> {
        let object = object_path(digest);
        match self.len_of(Path::new(&object))? {
            None => Ok(false),
            Some(len) if len == expected => Ok(true),
            Some(len) => Err(StoreError::Damaged { path: self.path().join(object), len, expected }),
        }
    }

    /// Starts an object; `None` if another process was faster.
    fn begin(&self, digest: &Digest) -> Result<Option<AtomicFile>, StoreError> {
        self.make_dir(digest)?;
        let path = self.path().join(object_path(digest));
        match AtomicFile::create(&path, Existing::Keep) {
            Ok(file) => Ok(Some(file)),
            Err(OutputError::Exists { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives an object its name, once its contents survive a crash. If another process was faster, its
    /// object stays.
    fn finish(&self, object: AtomicFile, digest: &Digest) -> Result<(), StoreError> {
        let path = self.path().join(object_path(digest));
        fchmod(object.file(), Mode::from_raw_mode(MODE)).map_err(StoreError::file(&path, "set the mode"))?;
        object.file().sync_all().map_err(StoreError::file(&path, "write"))?;
        match object.commit_as(Durability::LeftToCaller) {
            Ok(()) | Err(OutputError::Exists { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

enum PutError {
    Content(ContentError),
    Store(StoreError),
}

impl From<ContentError> for PutError {
    fn from(error: ContentError) -> Self {
        PutError::Content(error)
    }
}

impl From<StoreError> for PutError {
    fn from(error: StoreError) -> Self {
        PutError::Store(error)
    }
}

/// Contents that are to be stored.
struct Contents<'a> {
    content: Box<dyn Content>,
    /// Length in bytes.
    len: u64,
    stop: &'a AtomicBool,
}

impl Contents<'_> {
    fn read(&mut self, buf: &mut [u8], off: u64) -> Result<(), PutError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(StoreError::Stopped.into());
        }
        Ok(self.content.read_exact_at(buf, off)?)
    }

    /// Passes all pieces to `each`, and returns the digest of them.
    fn pass(
        &mut self,
        algorithm: Algorithm,
        buf: &mut Vec<u8>,
        mut each: impl FnMut(&[u8]) -> Result<(), PutError>,
    ) -> Result<Digest, PutError> {
        let mut hasher = Hasher::new(algorithm);
        buf.resize(PIECE_LEN, 0);
        let mut off = 0;
        while off < self.len {
            let piece = &mut buf[..(self.len - off).min(PIECE_LEN as u64) as usize];
            self.read(piece, off)?;
            hasher.update(piece);
            each(piece)?;
            off += piece.len() as u64;
        }
        self.content.verify_unchanged()?;
        Ok(hasher.finish())
    }
}

/// Lets the system copy the first `len` bytes, sharing them where it can. Returns false if it cannot,
/// and nothing was copied.
fn copy(from: &File, to: &File, len: u64, stop: &AtomicBool) -> io::Result<bool> {
    if ioctl_ficlone(to, from).is_ok() {
        // The source may have grown since.
        to.set_len(len)?;
        return Ok(true);
    }
    let mut off = 0;
    while off < len {
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let (mut read_off, mut write_off) = (off, off);
        let piece = (len - off).min(COPY_LEN) as usize;
        match copy_file_range(from, Some(&mut read_off), to, Some(&mut write_off), piece) {
            Err(_) if off == 0 => return Ok(false),
            // The source has become shorter: the digest will say so.
            Ok(0) => break,
            Ok(count) => off += count as u64,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(true)
}

/// Returns the digest of a file's contents.
pub(crate) fn digest_of(file: &File, algorithm: Algorithm, buf: &mut Vec<u8>, stop: &AtomicBool) -> io::Result<Digest> {
    let mut hasher = Hasher::new(algorithm);
    buf.resize(PIECE_LEN, 0);
    let mut off = 0;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match file.read_at(buf, off) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(count) => {
                hasher.update(&buf[..count]);
                off += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

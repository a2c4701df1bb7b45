//! Additions to a store.

use crate::error::StoreError;
use crate::protect;
use crate::store::Store;
use kiln_composefs::from_tree::contents::{self, TreeContents};
use kiln_composefs::tree::object_path;
use kiln_digest::fsverity::{self, FsVerity};
use kiln_digest::{Algorithm, Digest};
use kiln_output::{AtomicFile, Durability, Existing, OutputError};
use kiln_parallel::Threads;
use kiln_tree::{Content, ContentError, NodeId, Tree, UnreadableFile};
use rustix::fs::{Mode, fchmod, ioctl_ficlone};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Longest contents in bytes that are kept in memory until their digest is known.
const IN_MEMORY_LEN: u64 = 1 << 20;
/// Bytes that are read at once.
const PIECE_LEN: usize = 256 << 10;
/// Name of which objects are made that have none yet; no object gets it.
const UNNAMED: &str = ".object";
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
        let digest = fsverity::digest(algorithm, bytes);
        if !self.has_whole(&digest, bytes.len() as u64)? {
            let object = self.begin()?;
            let path = self.path().join(object_path(&digest));
            object.file().write_all(bytes).map_err(StoreError::file(path, "write"))?;
            self.finish(object, &digest)?;
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
        // Hashing alone is cheaper, but of an object that is then stored it must be repeated for what was written.
        if self.finds_objects.load(Ordering::Relaxed) {
            let digest = source.pass(algorithm, buf, |_| Ok(()))?;
            if self.has_whole(&digest, source.len)? {
                return Ok(digest);
            }
            self.finds_objects.store(false, Ordering::Relaxed);
        }
        self.put_unknown(source, algorithm, buf)
    }

    /// Adds an object whose digest is not known: it is hashed as it is written.
    fn put_unknown(
        &self,
        source: &mut Contents<'_>,
        algorithm: Algorithm,
        buf: &mut Vec<u8>,
    ) -> Result<Digest, PutError> {
        let object = self.begin()?;
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::Interrupted => PutError::Store(StoreError::Stopped),
            _ => PutError::Store(StoreError::file(self.path(), "write an object of")(error)),
        };
        let is_clone = source.content.file().is_some_and(|file| ioctl_ficlone(object.file(), file).is_ok());
        let digest = match is_clone {
            true => {
                // The source may have grown since.
                object.file().set_len(source.len).map_err(failed)?;
                let digest = digest_of(object.file(), algorithm, buf, source.stop).map_err(failed)?;
                source.content.verify_unchanged()?;
                digest
            }
            false => source.pass(algorithm, buf, |piece| object.file().write_all(piece).map_err(failed))?,
        };
        match self.has_whole(&digest, source.len)? {
            true => self.finds_objects.store(true, Ordering::Relaxed),
            false => self.finish(object, &digest)?,
        }
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

    /// Starts an object, which has no name yet.
    fn begin(&self) -> Result<AtomicFile, StoreError> {
        Ok(AtomicFile::create(&self.path().join(UNNAMED), Existing::Keep)?)
    }

    /// Gives an object its name, once its contents survive a crash. If another process was faster, its
    /// object stays.
    fn finish(&self, object: AtomicFile, digest: &Digest) -> Result<(), StoreError> {
        self.make_dir(digest)?;
        let name = object_path(digest);
        let path = self.path().join(&name);
        fchmod(object.file(), Mode::from_raw_mode(MODE)).map_err(StoreError::file(&path, "set the mode"))?;
        object.file().sync_all().map_err(StoreError::file(&path, "write"))?;
        match object.with_name(name.as_ref()).commit_as(Durability::LeftToCaller) {
            Ok(()) => self.protect(name.as_ref(), digest),
            Err(OutputError::Exists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Enables fs-verity for a new object, if kernel and filesystem have it. After a failure, which changes nothing, no
    /// other object is tried.
    fn protect(&self, name: &Path, digest: &Digest) {
        if self.has_verity.load(Ordering::Relaxed) && protect::enable(&self.dir, name, digest.algorithm()).is_err() {
            self.has_verity.store(false, Ordering::Relaxed);
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
        let mut hasher = FsVerity::new(algorithm);
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

/// Returns the digest of a file's contents.
pub(crate) fn digest_of(file: &File, algorithm: Algorithm, buf: &mut Vec<u8>, stop: &AtomicBool) -> io::Result<Digest> {
    let mut hasher = FsVerity::new(algorithm);
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

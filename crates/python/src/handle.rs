//! Handle of an open image: what its methods, its indexes and its batches read through.

use crate::arguments::FileRef;
use crate::errors::{self, About, Subject};
use crate::index::behind::Origin;
use crate::memory::Pool;
use kiln_read::{FollowLast, Image as ReadImage, Inode, ReadError};
use pyo3::prelude::*;
use std::sync::{Arc, PoisonError, RwLock};

/// An open image, the base of `kilnfs.Image`, which `kilnfs.open` makes.
#[pyclass(frozen, subclass, weakref, module = "kilnfs._native")]
pub(crate) struct Image {
    /// Name of the image in errors.
    pub(crate) name: Vec<u8>,
    /// The reader; `None` once the image is closed.
    reader: RwLock<Option<ReadImage>>,
    pub(crate) pool: Arc<Pool>,
    /// True if the contents of files that are read whole are compared with their digests.
    verify: bool,
    /// Place that is searched for an index behind the image.
    pub(crate) origin: Origin,
    /// Offset in bytes of the image in that place.
    pub(crate) offset: u64,
}

/// Properties of an image that do not change while it is open.
pub(crate) struct Opened {
    pub name: Vec<u8>,
    pub verify: bool,
    pub origin: Origin,
    pub offset: u64,
}

impl Image {
    pub(crate) fn new(reader: ReadImage, opened: Opened) -> Self {
        let Opened { name, verify, origin, offset } = opened;
        Image { name, reader: RwLock::new(Some(reader)), pool: Arc::default(), verify, origin, offset }
    }

    /// Returns the reader. It is a clone, so that no lock is held while it reads.
    ///
    /// # Errors
    /// `ValueError` if the image is closed.
    pub(crate) fn get(&self) -> PyResult<ReadImage> {
        self.reader.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(errors::closed)
    }

    /// Drops the reader, so that [`Image::get`] fails from now on.
    pub(crate) fn close(&self) {
        let reader = self.reader.write().unwrap_or_else(PoisonError::into_inner).take();
        drop(reader);
    }

    /// Returns the exception for an error of this image.
    pub(crate) fn exception(&self, py: Python<'_>, error: &ReadError, subject: &Subject) -> PyErr {
        let about = match subject {
            Subject::Image => About::image(&self.name),
            Subject::Path(path) => About { path: Some(path), ..About::image(&self.name) },
            Subject::Nid(nid) => About { nid: Some(*nid), ..About::image(&self.name) },
        };
        errors::exception(py, error, about)
    }

    /// Refuses `what`, which belongs to the image with this UUID, if this is another image.
    pub(crate) fn refuse_another(&self, py: Python<'_>, what: &str, uuid: [u8; 16]) -> PyResult<()> {
        let found = self.get()?.superblock().uuid;
        if uuid == found { Ok(()) } else { Err(errors::of_another(py, what, uuid, found, &self.name)) }
    }

    /// Refuses a path of another image.
    pub(crate) fn refuse_foreign(&self, py: Python<'_>, file: &FileRef) -> PyResult<()> {
        match file {
            FileRef::PathOf(path, uuid) => {
                self.refuse_another(py, &format!("the path {:?}", String::from_utf8_lossy(path)), *uuid)
            }
            FileRef::Path(_) | FileRef::Nid(_) => Ok(()),
        }
    }

    /// Runs `work` on the reader while other threads of Python run. Errors name `file`, or the
    /// image if it is `None`.
    pub(crate) fn detached<T: Send>(
        &self,
        py: Python<'_>,
        file: Option<&FileRef>,
        work: impl FnOnce(&ReadImage) -> Result<T, ReadError> + Send,
    ) -> PyResult<T> {
        file.map_or(Ok(()), |file| self.refuse_foreign(py, file))?;
        let reader = self.get()?;
        let subject = || file.map_or(Subject::Image, FileRef::subject);
        py.detach(|| work(&reader)).map_err(|error| self.exception(py, &error, &subject()))
    }

    /// Returns the inode of `file`.
    pub(crate) fn inode(&self, py: Python<'_>, file: &FileRef, last: FollowLast) -> PyResult<Inode> {
        self.detached(py, Some(file), |reader| file.inode(reader, last))
    }

    /// Compares `bytes`, which were read from byte `start` of a file, with the digest of the file,
    /// if they are all of it and the image was opened with `verify=True`.
    pub(crate) fn verified(
        &self,
        reader: &ReadImage,
        inode: &Inode,
        start: u64,
        bytes: &[u8],
    ) -> Result<(), ReadError> {
        match self.verify && start == 0 && bytes.len() as u64 == inode.size() {
            true => reader.digest_verifier(inode)?.map_or(Ok(()), |mut verifier| {
                verifier.update(bytes);
                verifier.finish()
            }),
            false => Ok(()),
        }
    }
}

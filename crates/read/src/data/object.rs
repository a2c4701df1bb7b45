//! Contents of composefs images that are objects elsewhere.
//!
//! An object is opened at the first read, verified, and kept open; after each read its state says if the bytes are
//! those that were verified.

use crate::error::ReadError;
use crate::error::object::ObjectProblem;
use crate::image::reader::Reader;
use crate::source::objects::{ObjectVerification, Objects, OpenObject};
use kiln_format::Nid;
use std::sync::Arc;

impl<'a> Reader<'a> {
    /// Fills `buf` from byte `off` on of the object that has the contents of a file. An object that has changed since
    /// it was verified is opened and verified again.
    pub(crate) fn read_object(self, nid: Nid, buf: &mut [u8], off: u64) -> Result<(), ReadError> {
        let failed = |problem| self.object_error(nid, problem);
        for _ in 0..2 {
            let object = self.open_object(nid)?;
            let filled = object.read_exact_at(buf, off);
            // Asked afterwards: what changes between an answer and the read would not be seen.
            if self.is_current(nid, &object) {
                self.volume.counters.fetched(buf.len());
                return filled.map_err(failed);
            }
            buf.fill(0);
        }
        Err(failed(ObjectProblem::Changed))
    }

    /// Verifies the object of a file, unless it was verified and has not changed since.
    pub(crate) fn verify_object(self, nid: Nid) -> Result<(), ReadError> {
        let object = self.open_object(nid)?;
        if self.is_current(nid, &object) {
            return Ok(());
        }
        self.open_object(nid).map(drop)
    }

    /// Opens and verifies the object of a file, or finds it open.
    fn open_object(self, nid: Nid) -> Result<Arc<OpenObject>, ReadError> {
        let objects = self.volume.objects.as_ref().ok_or_else(|| self.object_error(nid, ObjectProblem::NotGiven))?;
        self.volume.state().objects.get_or_open(nid, || self.open_verified(objects, nid))
    }

    /// Returns true if an open object has not changed since it was verified, or need not be the same. Another one is
    /// closed.
    fn is_current(self, nid: Nid, object: &OpenObject) -> bool {
        let never = |objects: &Objects| objects.verification() == ObjectVerification::Never;
        let is_current = self.volume.objects.as_ref().is_some_and(never) || object.is_unchanged();
        if !is_current {
            self.volume.state().objects.close(nid);
        }
        is_current
    }

    fn open_verified(self, objects: &Objects, nid: Nid) -> Result<OpenObject, ReadError> {
        let inode = self.inode(nid)?;
        let object = self.object_of(&inode)?.unwrap_or_default();
        let verified = objects.open_object(&object, inode.size()).and_then(|open| {
            if objects.verification() == ObjectVerification::Never {
                return Ok(open);
            }
            let open_objects = &self.volume.state().objects;
            if let Some(digest) = object.digest()?
                && !open_objects.is_verified(open.state(), &digest)
            {
                open.verify(&digest)?;
                open_objects.set_verified(open.state(), digest);
            }
            Ok(open)
        });
        verified.map_err(|problem| ReadError::object(nid, object, problem))
    }

    fn object_error(self, nid: Nid, problem: ObjectProblem) -> ReadError {
        match self.inode(nid).and_then(|inode| self.object_of(&inode)) {
            Ok(object) => ReadError::object(nid, object.unwrap_or_default(), problem),
            Err(error) => error,
        }
    }
}

//! Contents of composefs images that are objects elsewhere.
//!
//! An object is opened at the first read, verified, and kept open; at each later read its state says
//! if it is still the one that was verified.

use crate::error::ReadError;
use crate::error::object::ObjectProblem;
use crate::image::reader::Reader;
use crate::source::objects::{ObjectVerification, Objects, OpenObject};
use kiln_format::Nid;
use std::sync::Arc;

impl<'a> Reader<'a> {
    /// Fills `buf` from byte `off` on of the object that has the contents of a file.
    pub(crate) fn read_object(self, nid: Nid, buf: &mut [u8], off: u64) -> Result<(), ReadError> {
        let object = self.open_object(nid)?;
        self.volume.counters.fetched(buf.len());
        object.read_exact_at(buf, off).map_err(|problem| self.object_error(nid, problem))
    }

    /// Opens and verifies the object of a file, or finds it open, and unchanged since.
    pub(crate) fn open_object(self, nid: Nid) -> Result<Arc<OpenObject>, ReadError> {
        let objects = self.volume.objects.as_ref().ok_or_else(|| self.object_error(nid, ObjectProblem::NotGiven))?;
        let open_objects = &self.volume.state().objects;
        let found = open_objects.get_or_open(nid, || self.open_verified(objects, nid))?;
        if objects.verification() == ObjectVerification::Never || found.is_unchanged() {
            return Ok(found);
        }
        open_objects.close(nid);
        open_objects.get_or_open(nid, || self.open_verified(objects, nid))
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

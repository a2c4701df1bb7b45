//! Contents of the files of an image.

use kiln_read::{Image, Inode, Nid, ObjectProblem, ReadError, SeekWhat};
use kiln_tree::{
    Base, Content, ContentError, ContentId, Contents, DigestOf, DigestStyle, Stored, StoredDigest, Stores, Version,
};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::device::ImageDevices;
use super::problem::failed;
use super::reuse::reusable_data;

/// Contents of the files of an image, by nid.
pub(super) struct ImageContents {
    pub image: Image,
    /// Path of the image in error messages.
    pub path: Arc<Path>,
    /// Name and function of the content digests, if the image has any.
    pub digests: Option<DigestStyle>,
    /// Nids of files, by content id.
    pub nids: Arc<[Nid]>,
    /// Devices to which other images can refer.
    pub devices: Option<ImageDevices>,
    /// The image itself, if others reuse its data.
    pub base: Option<Arc<dyn Base>>,
}

impl ImageContents {
    /// Returns a file.
    ///
    /// # Errors
    /// A file that cannot be read; one whose contents are an object of composefs that is not at hand.
    fn file(&self, id: ContentId) -> Result<Inode, ContentError> {
        let inode = self.image.inode(self.nids[id.0 as usize]).map_err(failed)?;
        match self.image.composefs_object(&inode).map_err(failed)? {
            None => Ok(inode),
            Some(object) => Err(failed(ReadError::object(inode.nid, object, ObjectProblem::NotGiven))),
        }
    }
}

impl Contents for ImageContents {
    fn open(&self, id: ContentId, _: &[u8], _: Version) -> Result<Box<dyn Content>, ContentError> {
        let inode = self.file(id)?;
        Ok(Box::new(ImageContent { image: self.image.clone(), inode }))
    }

    fn stored(&self, id: ContentId, _: u64) -> Result<Stored, ContentError> {
        if self.devices.is_none() && self.base.is_none() {
            return Ok(Stored::ToRead);
        }
        let inode = self.file(id)?;
        if let Some(devices) = &self.devices {
            return devices.place(&self.image, &inode).map(Stored::Elsewhere);
        }
        Ok(reusable_data(&self.image, &inode).map_err(failed)?.map_or(Stored::ToRead, Stored::Reused))
    }

    fn stores(&self) -> Stores {
        let devices = self.devices.as_ref().map_or(Vec::new(), |devices| devices.devices.clone());
        let (base, digests) = (self.base.clone(), self.digests.clone());
        Stores { devices, base, digests, ..Stores::default() }
    }

    fn stored_digest(&self, id: ContentId) -> Result<Option<StoredDigest>, ContentError> {
        if self.digests.is_none() {
            return Ok(None);
        }
        let inode = self.image.inode(self.nids[id.0 as usize]).map_err(failed)?;
        let digest = self.image.content_digest(&inode).map_err(failed)?;
        Ok(digest.map(|digest| StoredDigest { digest, image: self.path.clone(), of: DigestOf::Contents }))
    }
}

struct ImageContent {
    image: Image,
    inode: Inode,
}

impl Content for ImageContent {
    fn read_exact_at(&mut self, buf: &mut [u8], off: u64) -> Result<(), ContentError> {
        match self.image.read_at(&self.inode, buf, off).map_err(failed)? {
            len if len == buf.len() => Ok(()),
            _ => Err(ContentError::Resized("it has become shorter")),
        }
    }

    fn next_data(&mut self, off: u64) -> Result<Option<Range<u64>>, ContentError> {
        let Some(start) = self.image.seek(&self.inode, off, SeekWhat::Data).map_err(failed)? else { return Ok(None) };
        // A run may be returned in pieces. Looking for its end on every call would take quadratic
        // time.
        let extent = self.image.extent_at(&self.inode, start).map_err(failed)?;
        Ok(Some(start..extent.end()))
    }

    fn verify_unchanged(&mut self) -> Result<(), ContentError> {
        Ok(())
    }
}

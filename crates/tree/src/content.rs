//! Contents of regular files, as sources give them.

use kiln_digest::contents::ContentDigest;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::digest_name::DigestStyle;
use super::error::ContentError;
use super::placed::{Device, PlacedRun};
use super::reuse::{Base, PreviousVersion, ReusedData};

/// Names a file's contents to the tree's [`Contents`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentId(pub u32);

/// A digest that an image stores for contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDigest {
    /// The digest.
    pub digest: ContentDigest,
    /// Name of the image in errors.
    pub image: Arc<Path>,
    /// Which contents it tells of.
    pub of: DigestOf,
}

/// Which contents a stored digest tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestOf {
    /// Those of the source, [`Version::Scanned`].
    Contents,
    /// Those that the base stores, [`Version::Reused`]. They are believed to be those of the source.
    Reused,
}

/// Version of contents to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The contents that were scanned. A file that has changed since then is an error.
    Scanned,
    /// The contents of a file that has changed since the scan, as they are now: zeros where the
    /// file has become shorter, which [`Content::verify_unchanged`] tells then, and no error for
    /// further changes. A source that cannot change opens the scanned ones.
    Changed,
    /// The contents as the base stores them, where [`Contents::stored`] answers [`Stored::Reused`].
    Reused,
}

/// Place where contents are stored already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// On devices, to which an image refers instead of storing the contents: runs between holes,
    /// sorted, without overlaps.
    Elsewhere(Vec<PlacedRun>),
    /// In the base, which stores the same contents.
    Reused(ReusedData),
    /// In the base, which stores a previous version, most of which may be the same.
    Previous(PreviousVersion),
    /// Nowhere: the contents are to be read and stored.
    ToRead,
}

/// Stores of the contents of a tree beside its source.
#[derive(Clone, Default)]
pub struct Stores {
    /// Devices of [`Stored::Elsewhere`], in the order of an image's device table.
    pub devices: Vec<Device>,
    /// True if files are [`Stored::Elsewhere`] without any device: an image has only their names and metadata.
    pub headers_only: bool,
    /// The previous image, of [`Stored::Reused`] and [`Stored::Previous`].
    pub base: Option<Arc<dyn Base>>,
    /// Name and function of the digests that are stored for contents, if there are any, see
    /// [`Contents::stored_digest`]. Single files may have digests of another function.
    pub digests: Option<DigestStyle>,
}

/// Contents of a tree's regular files. Any number of threads opens them, any file more than once.
///
/// All methods are required, so that an implementation that wraps another one cannot forget to forward one;
/// [`conformance`](super::conformance) tests that it forwards what it is asked.
pub trait Contents: Send + Sync {
    /// Opens a version of the contents `id` of the file at `path` (relative, without leading slash).
    ///
    /// # Errors
    /// Files that cannot be opened or are no longer what was scanned; of [`Version::Changed`],
    /// files that must not take the place of what was scanned.
    fn open(&self, id: ContentId, path: &[u8], version: Version) -> Result<Box<dyn Content>, ContentError>;

    /// Tells where the contents `id`, of `len` bytes, are stored already. [`Contents::open`] gives them in any case.
    /// [`Stored::Reused`] and [`Stored::Previous`] refer to the base of [`Contents::stores`]: contents without one do
    /// not answer them.
    ///
    /// # Errors
    /// Contents to which images were to refer, and cannot; a damaged base.
    fn stored(&self, id: ContentId, len: u64) -> Result<Stored, ContentError>;

    /// Returns the digest that an image stores for the contents `id`, whatever can be read of them
    /// now. `None`: there is none, or the source itself decides.
    ///
    /// # Errors
    /// Attributes that cannot be read.
    fn stored_digest(&self, id: ContentId) -> Result<Option<StoredDigest>, ContentError>;

    /// Returns the stores to which [`Contents::stored`] and [`Contents::stored_digest`] refer.
    fn stores(&self) -> Stores;
}

/// Contents that several trees share.
impl Contents for Arc<dyn Contents> {
    fn open(&self, id: ContentId, path: &[u8], version: Version) -> Result<Box<dyn Content>, ContentError> {
        (**self).open(id, path, version)
    }

    fn stored(&self, id: ContentId, len: u64) -> Result<Stored, ContentError> {
        (**self).stored(id, len)
    }

    fn stored_digest(&self, id: ContentId) -> Result<Option<StoredDigest>, ContentError> {
        (**self).stored_digest(id)
    }

    fn stores(&self) -> Stores {
        (**self).stores()
    }
}

/// Contents that are stored nowhere but in their source. Contents that wrap others are not plain: they implement
/// [`Contents`], which asks for all answers.
pub trait PlainContents: Send + Sync {
    /// Opens contents, as [`Contents::open`] does.
    ///
    /// # Errors
    /// As [`Contents::open`].
    fn open_plain(&self, id: ContentId, path: &[u8], version: Version) -> Result<Box<dyn Content>, ContentError>;
}

impl<T: PlainContents> Contents for T {
    fn open(&self, id: ContentId, path: &[u8], version: Version) -> Result<Box<dyn Content>, ContentError> {
        self.open_plain(id, path, version)
    }

    fn stored(&self, _: ContentId, _: u64) -> Result<Stored, ContentError> {
        Ok(Stored::ToRead)
    }

    fn stored_digest(&self, _: ContentId) -> Result<Option<StoredDigest>, ContentError> {
        Ok(None)
    }

    fn stores(&self) -> Stores {
        Stores::default()
    }
}

/// Contents of a tree whose regular files are never opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoContents;

impl PlainContents for NoContents {
    fn open_plain(&self, _: ContentId, _: &[u8], _: Version) -> Result<Box<dyn Content>, ContentError> {
        Err(io::Error::from(io::ErrorKind::NotFound).into())
    }
}

/// The contents of one file, for one thread at a time.
pub trait Content: Send {
    /// Fill `buf` from byte `off`.
    ///
    /// # Errors
    /// Read errors; a file that has become shorter is [`ContentError::Resized`].
    fn read_exact_at(&mut self, buf: &mut [u8], off: u64) -> Result<(), ContentError>;

    /// The first run of data at or behind `off`; `None`: a hole up to the end.
    ///
    /// # Errors
    /// Errors of the system.
    fn next_data(&mut self, off: u64) -> Result<Option<Range<u64>>, ContentError>;

    /// Called after the last read.
    ///
    /// # Errors
    /// [`ContentError::Changed`] or [`ContentError::Resized`] if the file may have changed since the scan.
    fn verify_unchanged(&mut self) -> Result<(), ContentError>;

    /// Returns the open file that has these contents from its first byte on, if there is one: the system can copy it.
    fn file(&self) -> Option<&File> {
        None
    }
}

//! Contents of regular files, as sources give them.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::error::ContentError;
use super::kept::{Base, Former, Kept};
use super::placed::{Device, PlacedRun};
use crate::digest_name::DigestName;

/// Names a file's contents to the tree's [`Contents`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentId(pub u32);

/// A digest that an image stores for contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDigest {
    /// SHA-256.
    pub sha256: [u8; 32],
    /// Name of the image in errors.
    pub image: Arc<Path>,
    /// Which contents it tells of.
    pub of: DigestOf,
}

/// Which contents a stored digest tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestOf {
    /// Those that [`Contents::open`] gives.
    Contents,
    /// Those that the base stores, which [`Contents::open_kept`] gives. They are believed to be those of the source.
    Kept,
}

/// Gives contents to any number of threads, any file more than once. [`conformance`](super::conformance) tests
/// implementations that stand before others: a method that one of these does not forward is lost without a word.
pub trait Contents: Send + Sync {
    /// Open the contents `id` of the file at `path` (relative, without leading slash).
    ///
    /// # Errors
    /// Files that cannot be opened or are no longer what was scanned.
    fn open(&self, id: ContentId, path: &[u8]) -> Result<Box<dyn Content>, ContentError>;

    /// Open contents that are no longer what was scanned: what they are now, zeros for what they have no more, and no
    /// complaint about further changes. A source that cannot change has no such contents.
    ///
    /// # Errors
    /// Files that cannot be opened, or that must not take the place of what was scanned.
    fn open_changed(&self, id: ContentId, path: &[u8]) -> Result<Box<dyn Content>, ContentError> {
        self.open(id, path)
    }

    /// The devices on which contents lie to which images refer, see [`Contents::placed`].
    fn devices(&self) -> Vec<Device> {
        Vec::new()
    }

    /// Where the contents `id`, of `len` bytes, lie to which images refer instead of storing them: runs between holes, sorted, without
    /// overlaps. `None`: they are to be stored.
    ///
    /// # Errors
    /// Contents that images were to refer to, and cannot.
    fn placed(&self, id: ContentId, len: u64) -> Result<Option<Vec<PlacedRun>>, ContentError> {
        let _ = (id, len);
        Ok(None)
    }

    /// The older image from which images take over stored data, see [`Contents::kept`].
    fn base(&self) -> Option<Arc<dyn Base>> {
        None
    }

    /// How the base stores the contents `id`, of `len` bytes. `None`: they are to be read as all others, which
    /// [`Contents::open`] gives in any case.
    ///
    /// # Errors
    /// A base that is damaged.
    fn kept(&self, id: ContentId, len: u64) -> Result<Option<Kept>, ContentError> {
        let _ = (id, len);
        Ok(None)
    }

    /// Open the contents `id` as the base stores them, of which [`Contents::kept`] tells.
    ///
    /// # Errors
    /// As [`Contents::open`].
    fn open_kept(&self, id: ContentId, path: &[u8]) -> Result<Box<dyn Content>, ContentError> {
        self.open(id, path)
    }

    /// Returns the name of the digests that are stored for contents, if there are any, see [`Contents::stored_digest`].
    fn digest_name(&self) -> Option<DigestName> {
        None
    }

    /// The digest that an image stores for the contents `id`, whatever can be read of them now. `None`: there is none, or the source itself
    /// is what counts.
    ///
    /// # Errors
    /// Attributes that cannot be read.
    fn stored_digest(&self, id: ContentId) -> Result<Option<StoredDigest>, ContentError> {
        let _ = id;
        Ok(None)
    }

    /// What the base has of an older version of the contents `id`, most of which may be the same. `None`: nothing is known of one.
    ///
    /// # Errors
    /// A base that is damaged.
    fn former(&self, id: ContentId) -> Result<Option<Former>, ContentError> {
        let _ = id;
        Ok(None)
    }

    /// Open that older version, of which [`Contents::former`] tells.
    ///
    /// # Errors
    /// As [`Contents::open`].
    fn open_former(&self, id: ContentId, path: &[u8]) -> Result<Box<dyn Content>, ContentError> {
        self.open(id, path)
    }
}

/// The contents of one file, for one thread at a time.
pub trait Content: Send {
    /// Fill `buf` from byte `off`.
    ///
    /// # Errors
    /// Read errors; a file that has become shorter is [`ContentError::Changed`].
    fn read_exact_at(&mut self, buf: &mut [u8], off: u64) -> Result<(), ContentError>;

    /// The first run of data at or behind `off`; `None`: a hole up to the end.
    ///
    /// # Errors
    /// Errors of the system.
    fn next_data(&mut self, off: u64) -> Result<Option<Range<u64>>, ContentError>;

    /// Called after the last read.
    ///
    /// # Errors
    /// [`ContentError::Changed`] if the file may have changed since the scan.
    fn verify_unchanged(&mut self) -> Result<(), ContentError>;
}

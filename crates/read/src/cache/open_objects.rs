//! Objects of a composefs image that are open, and those that were verified.

use crate::error::ReadError;
use crate::source::objects::{FileState, OpenObject};
use kiln_digest::Digest;
use kiln_format::Nid;
use kiln_parallel::locks::lock;
use quick_cache::sync::{Cache, GuardResult};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Most objects that are open: a process may usually have 1024 files.
const OPEN_MAX: usize = 256;
/// Most objects of which it is remembered that they were verified, 160 bytes each. Others are hashed
/// again when they are opened again.
const VERIFIED_MAX: usize = 1 << 18;

/// Result of opening an object. An error stays only until the threads that wait for it have taken it.
type Opened = Result<Arc<OpenObject>, Arc<ReadError>>;

/// Open and verified objects.
pub(crate) struct OpenObjects {
    open: Cache<u64, Opened>,
    verified: Mutex<HashMap<FileState, Digest>>,
}

impl OpenObjects {
    pub(super) fn new() -> Self {
        Self { open: Cache::new(OPEN_MAX), verified: Mutex::default() }
    }

    /// Returns the object of a file, which `open` opens unless it is open, or another thread is
    /// opening it.
    pub(crate) fn get_or_open(
        &self,
        nid: Nid,
        open: impl FnOnce() -> Result<OpenObject, ReadError>,
    ) -> Result<Arc<OpenObject>, ReadError> {
        let guard = match self.open.get_value_or_guard(&nid.0, None) {
            GuardResult::Value(opened) => return opened.map_err(|error| (*error).clone()),
            GuardResult::Guard(guard) => guard,
            GuardResult::Timeout => {
                return Err(ReadError::Internal { what: "a cache without a timeout timed out".into() });
            }
        };
        match open().map(Arc::new) {
            Ok(object) => {
                // The answer is an error if the object was closed meanwhile: it is returned anyhow.
                let _ = guard.insert(Ok(object.clone()));
                Ok(object)
            }
            Err(error) => {
                let _ = guard.insert(Err(Arc::new(error.clone())));
                self.close(nid);
                Err(error)
            }
        }
    }

    /// Closes the object of a file once no thread reads it.
    pub(crate) fn close(&self, nid: Nid) {
        self.open.remove(&nid.0);
    }

    /// Returns true if a file in this state had this digest.
    pub(crate) fn is_verified(&self, state: FileState, digest: &Digest) -> bool {
        lock(&self.verified).get(&state) == Some(digest)
    }

    /// Notes that it has.
    pub(crate) fn set_verified(&self, state: FileState, digest: Digest) {
        let mut verified = lock(&self.verified);
        if verified.len() >= VERIFIED_MAX {
            verified.clear();
        }
        verified.insert(state, digest);
    }
}

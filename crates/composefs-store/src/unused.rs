//! Removal of objects that no image needs.

use crate::error::StoreError;
use crate::list::Listing;
use crate::store::Store;
use kiln_composefs::tree::object_path;
use rustix::fs::{AtFlags, FlockOperation, flock, statat, unlinkat};
use rustix::io::Errno;
use std::collections::HashSet;

/// Treatment of unused objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// They are only listed.
    DryRun,
    /// They are removed.
    Remove,
}

/// Objects that were found unused.
#[derive(Debug, Default)]
pub struct Unused {
    /// Their paths in the store, sorted.
    pub objects: Vec<String>,
    /// Sum of their lengths in bytes.
    pub bytes: u64,
    /// Number of objects that stay.
    pub kept: u64,
}

impl Store {
    /// Removes all objects but those whose paths are in `used`.
    ///
    /// # Errors
    /// A repository of composefs-rs; a process that adds objects, of those that lock the store;
    /// errors of the system.
    pub fn remove_unused(&self, used: &HashSet<Vec<u8>>, removal: Removal) -> Result<Unused, StoreError> {
        self.refuse_repository()?;
        match flock(&self.dir, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(StoreError::Busy { path: self.path().to_owned() }),
            locked => locked.map_err(StoreError::file(self.path(), "lock the store"))?,
        }
        let removed = self.remove(used, removal);
        let unlocked = flock(&self.dir, FlockOperation::Unlock);
        unlocked.map_err(StoreError::file(self.path(), "unlock the store"))?;
        removed
    }

    fn remove(&self, used: &HashSet<Vec<u8>>, removal: Removal) -> Result<Unused, StoreError> {
        let Listing { objects, .. } = self.list()?;
        let mut unused = Unused::default();
        for object in objects.iter().map(object_path) {
            if used.contains(object.as_bytes()) {
                unused.kept += 1;
                continue;
            }
            let path = self.path().join(&object);
            let found = statat(&self.dir, &*object, AtFlags::SYMLINK_NOFOLLOW);
            unused.bytes += found.map_err(StoreError::file(&path, "look at"))?.st_size as u64;
            if removal == Removal::Remove {
                unlinkat(&self.dir, &*object, AtFlags::empty()).map_err(StoreError::file(&path, "remove"))?;
            }
            unused.objects.push(object);
        }
        Ok(unused)
    }
}

//! Comparison of objects with their names.

use crate::error::StoreError;
use crate::list::Listing;
use crate::put::digest_of;
use crate::store::Store;
use kiln_composefs::tree::object_path;
use kiln_digest::Digest;
use kiln_parallel::Threads;
use kiln_parallel::ordered::{self, Costed};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// Objects that may wait for the result of an earlier one.
const BACKLOG: u64 = 4096;

/// Result of a comparison.
#[derive(Debug, Default)]
pub struct Verified {
    /// Number of objects that are what their names say.
    pub sound: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Digests of the others, sorted, with their problems.
    pub problems: Vec<(Digest, ObjectProblem)>,
    /// Paths of what is no object, sorted.
    pub others: Vec<PathBuf>,
}

/// Problem of an object.
#[derive(Debug, thiserror::Error)]
pub enum ObjectProblem {
    /// Contents that have another digest.
    #[error("its contents have the digest {0}")]
    Contents(Digest),
    /// An object that cannot be opened or read, or is no regular file.
    #[error("{0}")]
    Unreadable(StoreError),
}

impl Store {
    /// Reads all objects, and compares their digests with their names. `stop` ends it early.
    ///
    /// # Errors
    /// Directories that cannot be read; [`StoreError::Stopped`].
    pub fn verify(&self, threads: Threads, stop: &AtomicBool) -> Result<Verified, StoreError> {
        let Listing { objects, others } = self.list()?;
        let mut verified = Verified { others, ..Verified::default() };
        let jobs = objects.into_iter().map(|digest| Costed { job: digest, cost: 1 });
        let make_worker = || {
            let mut buf = Vec::new();
            Ok(move |digest: Digest| Ok((digest, self.check(&digest, &mut buf, stop)?)))
        };
        ordered::run(threads, BACKLOG, jobs, make_worker, |(digest, checked): (Digest, Checked)| {
            match checked {
                Checked::Sound(len) => (verified.sound, verified.bytes) = (verified.sound + 1, verified.bytes + len),
                Checked::Removed => {}
                Checked::Problem(problem) => verified.problems.push((digest, problem)),
            }
            Ok::<(), StoreError>(())
        })?;
        Ok(verified)
    }

    fn check(&self, digest: &Digest, buf: &mut Vec<u8>, stop: &AtomicBool) -> Result<Checked, StoreError> {
        let object = object_path(digest);
        let file = match self.open_path(&object) {
            Err(StoreError::File { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Ok(Checked::Removed);
            }
            Err(error) => return Ok(Checked::Problem(ObjectProblem::Unreadable(error))),
            Ok(file) => file,
        };
        match digest_of(&file, digest.algorithm(), buf, stop) {
            Err(error) if error.kind() == ErrorKind::Interrupted => Err(StoreError::Stopped),
            Err(error) => {
                let error = StoreError::file(self.path().join(object), "read")(error);
                Ok(Checked::Problem(ObjectProblem::Unreadable(error)))
            }
            Ok(found) if found == *digest => Ok(Checked::Sound(file.metadata().map_or(0, |found| found.len()))),
            Ok(found) => Ok(Checked::Problem(ObjectProblem::Contents(found))),
        }
    }
}

enum Checked {
    /// With its length.
    Sound(u64),
    /// Removed since the list was made.
    Removed,
    Problem(ObjectProblem),
}

//! Problems of an image, collected by all threads of a check.

use super::report::{CheckProblem, Finding};
use crate::error::ReadError;
use kiln_format::Nid;
use kiln_parallel::locks::{into_inner, lock};
use std::sync::{Mutex, MutexGuard};

/// Problems that are reported; all of them are counted.
const PROBLEMS_MAX: usize = 1000;

/// Problems found so far, by any thread.
#[derive(Default)]
pub(super) struct Problems(Mutex<ProblemList>);

#[derive(Default)]
struct ProblemList {
    list: Vec<CheckProblem>,
    count: u64,
}

impl Problems {
    fn lock(&self) -> MutexGuard<'_, ProblemList> {
        lock(&self.0)
    }

    /// Returns the problems that are reported, and the number of all problems.
    pub(super) fn into_list(self) -> (Vec<CheckProblem>, u64) {
        let found = into_inner(self.0);
        (found.list, found.count)
    }

    /// Returns the number of problems.
    #[cfg(test)]
    pub(super) fn count(&self) -> u64 {
        self.lock().count
    }

    pub(super) fn add(&self, path: &[u8], nid: Option<Nid>, error: Finding) {
        let mut found = self.lock();
        found.count += 1;
        if found.list.len() < PROBLEMS_MAX {
            found.list.push(CheckProblem { path: path.to_vec(), nid, error });
        }
    }

    /// Returns the value of a result, if it has one. An error of the image becomes a problem of the
    /// file at `path`, any other ends the check.
    pub(super) fn take<T>(&self, path: &[u8], result: Result<T, ReadError>) -> Result<Option<T>, ReadError> {
        let error = match result {
            Ok(value) => return Ok(Some(value)),
            Err(error) if path.is_empty() => error,
            Err(error) => error.at_path(path),
        };
        match &error {
            ReadError::Corrupt { path, nid, .. }
            | ReadError::Unsupported { path, nid, .. }
            | ReadError::Object { path, nid, .. } => {
                self.add(&path.clone().unwrap_or_default(), *nid, Finding::Unreadable(error.clone()));
                Ok(None)
            }
            _ => Err(error),
        }
    }
}

//! Files whose READs are answered by threads that push other files first.
//!
//! A push of pages of a file blocks while a READ of them is unanswered. A thread registers the file
//! of the READ that it answers before it checks whether the file to push is registered: rule 2 of
//! [`super`], against circles of threads that push.

use parking_lot::Mutex;

/// Files by node id. There are never more than threads.
#[derive(Default)]
pub(super) struct InFlight(Mutex<Vec<u64>>);

/// Registration of a file, until this is dropped.
pub(in crate::fuse) struct InFlightGuard<'a> {
    files: &'a InFlight,
    file: u64,
}

impl InFlight {
    /// Registers a file, before others are pushed and until its READ is answered.
    pub(super) fn register(&self, file: u64) -> InFlightGuard<'_> {
        self.0.lock().push(file);
        InFlightGuard { files: self, file }
    }

    /// Returns true if a push of this file might wait for a thread that pushes.
    pub(super) fn contains(&self, file: u64) -> bool {
        self.0.lock().contains(&file)
    }
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        let mut files = self.files.0.lock();
        if let Some(idx) = files.iter().position(|&file| file == self.file) {
            files.swap_remove(idx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_registered_as_often_as_it_is_answered_for() {
        let in_flight = InFlight::default();
        let (once, twice, other) = (in_flight.register(1), in_flight.register(1), in_flight.register(2));
        drop((once, other));
        assert!(in_flight.contains(1) && !in_flight.contains(2));
        drop(twice);
        assert!(!in_flight.contains(1));
    }
}

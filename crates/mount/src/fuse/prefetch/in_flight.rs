//! Who gives files before he has answered, and for which file he will.
//!
//! The kernel holds the pages of a file locked until it is answered for, and whoever gives it that file waits for them. So nobody gives a
//! file that is noted here. Each giver notes his own before he looks for those of others: he waits for another one only if he looked
//! before that one was noted. A circle of givers who wait for each other would have looked before they were noted themselves.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Files that are answered for by givers.
#[derive(Default)]
pub struct Answering(Mutex<Vec<u64>>);

/// One of them, until this is dropped.
pub struct Noted<'a> {
    files: &'a Answering,
    file: u64,
}

impl Answering {
    /// Note a file, before others are given and until it is answered for.
    pub fn note(&self, file: u64) -> Noted<'_> {
        self.files().push(file);
        Noted { files: self, file }
    }

    /// Whether somebody might wait for himself who gives this file now.
    pub fn has(&self, file: u64) -> bool {
        self.files().contains(&file)
    }

    /// Nothing panics while it is locked.
    fn files(&self) -> MutexGuard<'_, Vec<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        let mut files = self.files.files();
        if let Some(idx) = files.iter().position(|&file| file == self.file) {
            files.swap_remove(idx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_noted_as_often_as_they_are_answered_for() {
        let answering = Answering::default();
        let (once, twice, other) = (answering.note(1), answering.note(1), answering.note(2));
        drop((once, other));
        assert!(answering.has(1) && !answering.has(2));
        drop(twice);
        assert!(!answering.has(1));
    }
}

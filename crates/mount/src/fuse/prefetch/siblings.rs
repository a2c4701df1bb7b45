//! Prefetch of cached siblings: small files share extents, so decoding one yields others of its
//! directory.
//!
//! A process that reads files of a directory in random order returns to that directory, or not. So
//! siblings are pushed at the second request: when the page cache has a file near the requested
//! one, or the requested one was itself decoded for another file. No request shows if such a push
//! was useful, as a pushed file is not requested. So every fourth push leaves out one file as a
//! *holdout* (the term of statistics for data that is withheld to measure an effect): a process
//! that reads the whole directory requests it some time. Such a request earns credit; each holdout
//! costs some.

use super::directory_order::{DirectoryOrder, Request};

/// Number of files before and after the requested one that are considered.
const REACH: usize = 32;
/// Number of pushes of more than one file, per holdout.
const HOLDOUT_PERIOD: u32 = 4;
/// Credit earned by a request for a holdout, which costs 1: one in that many holdouts must be
/// requested.
const GAIN: i32 = 8;
/// Credit at the beginning, and largest credit. Without credit, one push in `RETRY_PERIOD` is still
/// tried.
const CREDIT_MAX: i32 = 256;
const RETRY_PERIOD: u32 = 32;

/// Usefulness of pushes of siblings.
pub(super) struct Siblings {
    credit: i32,
    /// Number of times that there were candidates.
    times: u32,
}

impl Siblings {
    pub(super) fn new() -> Self {
        Self { credit: CREDIT_MAX, times: 0 }
    }

    /// Records the meaning of a request.
    pub(super) fn note_request(&mut self, request: Request) {
        if request == Request::HeldOut {
            self.credit = CREDIT_MAX.min(self.credit + GAIN);
        }
    }

    /// Returns files near `file` in its listing that the page cache does not have, the following
    /// ones first. `is_hit` means that the bytes of `file` had been decoded for another file.
    pub(super) fn candidates(&mut self, order: &mut DirectoryOrder, file: u64, is_hit: bool) -> Vec<u64> {
        let mut files = Vec::new();
        let mut comes_back = is_hit;
        for step in [DirectoryOrder::next, DirectoryOrder::prev] {
            let mut node = step(order, file);
            for _ in 0..REACH {
                // A file with several names may follow itself.
                if node == 0 || node == file {
                    break;
                }
                match order.is_cached(node) {
                    true => comes_back = true,
                    false => files.push(node),
                }
                node = step(order, node);
            }
        }
        if files.is_empty() || !comes_back {
            return Vec::new();
        }
        self.times = self.times.wrapping_add(1);
        if self.credit <= 0 && !self.times.is_multiple_of(RETRY_PERIOD) {
            files.clear();
        }
        files
    }

    /// Records that `files` are pushed, except the last one if it is a holdout. Returns the number
    /// of files to push.
    pub(super) fn note_pushed(&mut self, order: &mut DirectoryOrder, files: &[u64]) -> usize {
        let mut count = files.len();
        if count > 1 && self.times.is_multiple_of(HOLDOUT_PERIOD) {
            count -= 1;
            self.credit -= 1;
            order.hold_out(files[count]);
        }
        files[..count].iter().for_each(|&file| order.note_pushed(file));
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: u64 = 1 << 32;

    /// Listings, and requests for their files, all of which are in the cache of decoded extents.
    struct Scene {
        order: DirectoryOrder,
        siblings: Siblings,
    }

    impl Scene {
        /// Lists files 1 to `count`.
        fn new(count: u64) -> Self {
            let mut order = DirectoryOrder::new(1 << 20);
            order.note_listing(DIR, true, &(1..=count).collect::<Vec<_>>());
            Self { order, siblings: Siblings::new() }
        }

        /// Requests `file`. Returns the files that are pushed.
        fn read(&mut self, file: u64, is_hit: bool) -> Vec<u64> {
            let request = self.order.note_request(file);
            self.siblings.note_request(request);
            let mut candidates = self.siblings.candidates(&mut self.order, file, is_hit);
            candidates.truncate(self.siblings.note_pushed(&mut self.order, &candidates));
            candidates
        }
    }

    #[test]
    fn the_second_file_of_a_directory_brings_those_near_it() {
        let mut scene = Scene::new(200);
        assert!(scene.read(100, false).is_empty());
        assert_eq!(scene.read(90, false), (91..100).chain(101..123).chain((58..90).rev()).collect::<Vec<_>>());
        // The page cache has those, except the ones that were out of reach.
        assert_eq!(scene.read(95, false), (123..128).collect::<Vec<_>>());
        // A file that was decoded for another one counts as a second request, too.
        assert_eq!(scene.read(200, true), (168..200).rev().collect::<Vec<_>>());
        // This one is far from the others.
        assert!(scene.read(1, false).is_empty());
    }

    #[test]
    fn holdouts_tell_whether_pushes_are_useful() {
        let mut scene = Scene::new(1000 * 100);
        let mut held_out = Vec::new();
        for dir in 0..1000 {
            let files: Vec<_> = (dir * 100 + 1..dir * 100 + 6).collect();
            scene.order.note_listing(DIR + dir, true, &files);
            let given = scene.read(files[0], true);
            held_out.extend(files[1..].iter().filter(|file| !given.contains(file)));
        }
        assert!(scene.siblings.credit > 0);
        assert_eq!(held_out.len(), 1000 / HOLDOUT_PERIOD as usize);
        // Requests for them earn credit.
        let credit = scene.siblings.credit;
        held_out.iter().take(20).for_each(|&file| drop(scene.read(file, true)));
        assert_eq!(scene.siblings.credit, CREDIT_MAX.min(credit + 20 * GAIN));
    }

    #[test]
    fn without_requests_for_holdouts_little_is_pushed_in_the_end() {
        let mut scene = Scene::new(1);
        let mut given = 0;
        for dir in 0..10_000 {
            let files: Vec<_> = (dir * 10 + 1..dir * 10 + 9).collect();
            scene.order.note_listing(DIR + dir, true, &files);
            given += usize::from(!scene.read(files[0], true).is_empty());
        }
        let at_first = (CREDIT_MAX as u32 * HOLDOUT_PERIOD) as usize;
        assert!(given < at_first + (10_000 / RETRY_PERIOD as usize) + 1, "{given}");
    }

    #[test]
    fn a_file_of_several_names_is_not_its_own_sibling() {
        let mut scene = Scene::new(1);
        scene.order.note_listing(DIR, true, &[7, 8, 7, 9, 7, 7]);
        for file in [7, 8, 9].repeat(10) {
            assert!(!scene.read(file, true).contains(&file));
        }
    }
}

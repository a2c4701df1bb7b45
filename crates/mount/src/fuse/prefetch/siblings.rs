//! Which files are worth having because they are at hand: small files lie together, and who decodes one has others.
//!
//! Who reads files of a directory in no order comes back to it, or not. So its files are worth giving at the second read: when one of
//! them is there already, or the extent of the one that is read was decoded for another. What comes of that nobody tells, for what
//! was given is not asked for. So of every fourth directory one file is left out: who reads all of them asks for it, some time.
//! That earns credit; leaving it out cost some.

use super::directory_order::{Asked, Listed};

/// Files before and behind the one that is read, as far as they are considered.
const REACH: usize = 32;
/// Once in so many times a file is left out, if there is more than one.
const PROBES: u32 = 4;
/// What it earns if that is asked for: one in so many of them must be.
const EARNED: i32 = 8;
/// Credit to begin with, and at most. Without it, one in so many times is tried all the same.
const CREDIT: i32 = 256;
const TRIES: u32 = 32;

/// What others made of files that were at hand.
pub struct Beside {
    credit: i32,
    times: u32,
}

impl Beside {
    pub fn new() -> Self {
        Self { credit: CREDIT, times: 0 }
    }

    /// Remember that somebody asked for a file.
    pub fn asked(&mut self, asked: Asked) {
        if asked == Asked::LeftOut {
            self.credit = CREDIT.min(self.credit + EARNED);
        }
    }

    /// Files that are listed near `file` and that the kernel does not have, those behind it first. `is_hit`: it was decoded for others.
    pub fn near(&mut self, listed: &mut Listed, file: u64, is_hit: bool) -> Vec<u64> {
        let mut files = Vec::new();
        let mut comes_back = is_hit;
        for step in [Listed::next, Listed::prev] {
            let mut node = step(listed, file);
            for _ in 0..REACH {
                // A file of several names may follow itself.
                if node == 0 || node == file {
                    break;
                }
                match listed.is_there(node) {
                    true => comes_back = true,
                    false => files.push(node),
                }
                node = step(listed, node);
            }
        }
        if files.is_empty() || !comes_back {
            return Vec::new();
        }
        self.times = self.times.wrapping_add(1);
        if self.credit <= 0 && !self.times.is_multiple_of(TRIES) {
            files.clear();
        }
        files
    }

    /// Remember that `files` are given; the last one may be left out instead. Returns how many are left.
    pub fn given(&mut self, listed: &mut Listed, files: &[u64]) -> usize {
        let mut count = files.len();
        if count > 1 && self.times.is_multiple_of(PROBES) {
            count -= 1;
            self.credit -= 1;
            listed.leave_out(files[count]);
        }
        files[..count].iter().for_each(|&file| listed.give(file));
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: u64 = 1 << 32;

    /// What was listed, and what comes of it if all files are at hand.
    struct Scene {
        listed: Listed,
        beside: Beside,
    }

    impl Scene {
        /// A listing of files 1 to `count`.
        fn new(count: u64) -> Self {
            let mut listed = Listed::new(1 << 20);
            listed.list(DIR, true, &(1..=count).collect::<Vec<_>>());
            Self { listed, beside: Beside::new() }
        }

        /// The files that are given to who reads `file`.
        fn read(&mut self, file: u64, is_hit: bool) -> Vec<u64> {
            let asked = self.listed.ask(file);
            self.beside.asked(asked);
            let mut near = self.beside.near(&mut self.listed, file, is_hit);
            near.truncate(self.beside.given(&mut self.listed, &near));
            near
        }
    }

    #[test]
    fn the_second_file_of_a_directory_brings_those_around_it() {
        let mut scene = Scene::new(200);
        assert_eq!(scene.read(100, false), []);
        assert_eq!(scene.read(90, false), (91..100).chain(101..123).chain((58..90).rev()).collect::<Vec<_>>());
        // Those are there, but for what was out of reach.
        assert_eq!(scene.read(95, false), (123..128).collect::<Vec<_>>());
        // One that was decoded for others is a second one, too.
        assert_eq!(scene.read(200, true), (168..200).rev().collect::<Vec<_>>());
        // Far from the others.
        assert_eq!(scene.read(1, false), []);
    }

    #[test]
    fn one_is_left_out_now_and_then_and_tells_whether_it_was_worth_it() {
        let mut scene = Scene::new(1000 * 100);
        let mut left_out = Vec::new();
        for dir in 0..1000 {
            let files: Vec<_> = (dir * 100 + 1..dir * 100 + 6).collect();
            scene.listed.list(DIR + dir, true, &files);
            let given = scene.read(files[0], true);
            left_out.extend(files[1..].iter().filter(|file| !given.contains(file)));
        }
        assert!(scene.beside.credit > 0);
        assert_eq!(left_out.len(), 1000 / PROBES as usize);
        // Somebody asks for them.
        let credit = scene.beside.credit;
        left_out.iter().take(20).for_each(|&file| drop(scene.read(file, true)));
        assert_eq!(scene.beside.credit, CREDIT.min(credit + 20 * EARNED));
    }

    #[test]
    fn who_asks_for_nothing_more_is_given_little_in_the_end() {
        let mut scene = Scene::new(1);
        let mut given = 0;
        for dir in 0..10_000 {
            let files: Vec<_> = (dir * 10 + 1..dir * 10 + 9).collect();
            scene.listed.list(DIR + dir, true, &files);
            given += usize::from(!scene.read(files[0], true).is_empty());
        }
        let at_first = (CREDIT as u32 * PROBES) as usize;
        assert!(given < at_first + (10_000 / TRIES as usize) + 1, "{given}");
    }

    #[test]
    fn a_file_of_several_names_is_not_near_itself() {
        let mut scene = Scene::new(1);
        scene.listed.list(DIR, true, &[7, 8, 7, 9, 7, 7]);
        for file in [7, 8, 9].repeat(10) {
            assert!(!scene.read(file, true).contains(&file));
        }
    }
}

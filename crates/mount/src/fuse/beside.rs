//! Which files are worth having because they are at hand: small files lie together, and who decodes one has others.
//!
//! Who reads files of a directory in no order comes back to it, or not. So its files are worth giving at the second read: when one of
//! them is there already, or the extent of the one that is read was decoded for another. What comes of that nobody tells, for what
//! was given is not asked for. So of every fourth directory one file is left out: who reads all of them asks for it, some time.
//! That earns credit; leaving it out cost some.

use super::listed::{Asked, Listed};

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

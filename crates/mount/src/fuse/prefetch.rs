//! What the kernel gets without asking: each request that is spared saves two switches between processes, which cost more than most
//! files take to decode.
//!
//! * Small files that will be read next ([`Ahead`]), or that are at hand ([`Beside`]). They are given before the answer: who waits for
//!   that cannot ask meanwhile for what he is about to get.
//! * Names of a directory in which some were looked up ([`Names`]), before an answer as well: who waits for it has a file open, so nobody
//!   finds the mount in use because of the directory that is open meanwhile.
//! * The rest of an extent that was decoded for a page of a file that is read here and there; the server's own cache does not keep it
//!   then. It is given after the answer: pages of one file may be locked together, until all that was asked of them is there.

mod dentries;
pub mod dentry_thread;
mod directory_order;
mod in_flight;
mod notify_store;
mod sequential;
mod siblings;

use crate::fuse::metrics::{Given, Meters};
use crate::fuse::protocol::image_fs::Server;
use crate::fuse::protocol::node;
use crate::fuse::threads::leader_followers::Team;
use dentries::Names;
use dentry_thread::Lister;
use directory_order::Listed;
use fuser::INodeNo;
use in_flight::{Answering, Noted};
use kiln_read::View;
use notify_store::PageCache;
use rustix::fd::OwnedFd;
use rustix::param::page_size;
use sequential::{Ahead, Foretold};
use siblings::Beside;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Longer files are not given ahead: the kernel reads ahead in them.
const FILE_MAX: u64 = 128 << 10;
/// Bytes of files that are given ahead at a time.
const AHEAD_MAX: u64 = 256 << 10;
/// Files that may not be at hand among those that are looked at.
const MISSES_MAX: u32 = 16;

/// Gives, and knows what is worth it.
pub struct Giver {
    cache: PageCache,
    names: Option<Names>,
    foresight: Mutex<Foresight>,
    answering: Answering,
    meters: Arc<Meters>,
}

/// What is known of files and readers.
struct Foresight {
    listed: Listed,
    ahead: Ahead,
    beside: Beside,
}

/// Files that may be worth giving.
enum Guess {
    Nothing,
    Ahead(Foretold),
    Near(Vec<u64>),
}

impl Foresight {
    /// Remember that somebody reads `file`, and guess what comes of it.
    fn guess(&mut self, file: u64, is_hit: bool) -> Guess {
        let asked = self.listed.ask(file);
        self.beside.asked(asked);
        let foretold = self.ahead.read(&mut self.listed, file, asked);
        if !foretold.files.is_empty() {
            return Guess::Ahead(foretold);
        }
        let near = self.beside.near(&mut self.listed, file, is_hit);
        if near.is_empty() { Guess::Nothing } else { Guess::Near(near) }
    }

    /// Files that are at hand will be given, but for those that are left out.
    fn choose(&mut self, files: &mut Vec<u64>) {
        files.truncate(self.beside.given(&mut self.listed, files));
        self.ahead.pass_over_given(&mut self.listed);
    }
}

impl Giver {
    /// For the kernel at the other end of `connection`, which learns names of `lister`, and an image with so many inodes.
    pub fn new(connection: OwnedFd, lister: Option<Lister>, inodes: u64, meters: Arc<Meters>) -> Self {
        let foresight = Foresight { listed: Listed::new(inodes), ahead: Ahead::default(), beside: Beside::new() };
        let (cache, names) = (PageCache::new(connection), lister.map(|lister| Names::new(lister, inodes)));
        Self { cache, names, foresight: Mutex::new(foresight), answering: Answering::default(), meters }
    }

    /// Remember files that are listed in `dir`: `from_start`, or behind those listed before.
    pub fn listed(&self, dir: INodeNo, from_start: bool, files: &[u64]) {
        if !files.is_empty() {
            self.foresight().listed.list(dir.0, from_start, files);
        }
    }

    /// Remember that a file in `dir`, which has `size` bytes, was looked up.
    pub fn looked_up(&self, dir: INodeNo, size: u64) {
        if let Some(names) = &self.names {
            names.looked_up(dir, size);
        }
    }

    /// Before `file` is answered for, which is read from its start on: give names, and files that will be read next, or else those that
    /// are at hand. `is_hit`: its own bytes were, for they were decoded for others. What is returned is to be dropped after the answer.
    pub fn files(&self, server: &Server, team: &Team, file: INodeNo, is_hit: bool) -> Noted<'_> {
        let noted = self.answering.note(file.0);
        if let Some(names) = self.names.as_ref().filter(|names| names.is_due() && !server.image.is_cold()) {
            self.unless_slow(server, team, || self.meters.names(names.list(server)));
        }
        let guess = self.foresight().guess(file.0, is_hit);
        match guess {
            Guess::Ahead(foretold) => self.ahead(server, team, &foretold),
            Guess::Near(files) => self.unless_slow(server, team, || self.beside(server, &files)),
            Guess::Nothing => {}
        }
        noted
    }

    fn ahead(&self, server: &Server, team: &Team, foretold: &Foretold) {
        let mut given = 0;
        self.unless_slow(server, team, || {
            let mut bytes = 0;
            // The source may turn out to be slow meanwhile.
            while given < foretold.files.len() && bytes < AHEAD_MAX && !server.image.is_slow() {
                let Some(len) = self.whole_file(server, foretold.files[given]) else { break };
                given += 1;
                bytes += len;
            }
        });
        if given < foretold.files.len() {
            let Foresight { listed, ahead, .. } = &mut *self.foresight();
            ahead.left_out(listed, foretold, given);
        }
    }

    /// Give those of `near` that are at hand.
    fn beside(&self, server: &Server, near: &[u64]) {
        let (mut files, mut views) = (Vec::new(), Vec::new());
        let mut misses = 0;
        for &file in near {
            // Who asks for a damaged file is told.
            match server.image.get_if_cached(node::nid(&server.image, INodeNo(file)), FILE_MAX).ok().flatten() {
                Some(view) => {
                    files.push(file);
                    views.push(view);
                }
                None if misses == MISSES_MAX => break,
                None => misses += 1,
            }
        }
        self.foresight().choose(&mut files);
        let mut given = 0;
        for (&file, view) in files.iter().zip(views) {
            if !self.give_file(Given::Beside, file, &view) {
                break;
            }
            server.image.mark_consumed(view);
            given += 1;
        }
        if given < files.len() {
            let listed = &mut self.foresight().listed;
            files[given..].iter().for_each(|&file| listed.expect(file));
        }
    }

    /// Run `work` before an answer, unless that may have to wait for a slow source: nobody has asked for it.
    fn unless_slow(&self, server: &Server, team: &Team, work: impl FnOnce()) {
        if !server.image.is_slow() {
            team.covered(work);
        }
    }

    /// Nothing panics while it is locked.
    fn foresight(&self) -> MutexGuard<'_, Foresight> {
        self.foresight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Give a file, if it is a small one. Returns its length.
    fn whole_file(&self, server: &Server, file: u64) -> Option<u64> {
        let inode = server.inode(INodeNo(file)).ok().filter(|inode| inode.meta.size <= FILE_MAX)?;
        let size = inode.meta.size;
        server.buffers.with(|buf| {
            // Who asks for a damaged file is told.
            let bytes = server.image.view(&inode, 0, size as usize, buf).ok()?;
            self.give_file(Given::Ahead, file, &bytes).then_some(size)
        })
    }

    /// After bytes `answered` of `file` were, which has `size`: give what was decoded around them.
    pub fn around(&self, server: &Server, team: &Team, file: INodeNo, size: u64, answered: Range<u64>, view: View<'_>) {
        let Some((la, bytes)) = view.containing_extent().filter(|_| !server.image.is_slow()) else { return };
        let mut is_given = false;
        team.covered(|| {
            let parts = whole_pages(la..la + bytes.len() as u64, &answered, size);
            let mut parts = parts.into_iter().filter(|part| !part.is_empty());
            is_given = parts.all(|part| {
                let bytes = &bytes[(part.start - la) as usize..(part.end - la) as usize];
                self.give(Given::Around, file.0, part.start, bytes)
            });
        });
        if is_given {
            server.image.mark_consumed(view);
        }
    }

    /// Before an answer.
    fn give_file(&self, why: Given, file: u64, bytes: &[u8]) -> bool {
        !self.answering.has(file) && self.give(why, file, 0, bytes)
    }

    fn give(&self, why: Given, file: u64, off: u64, bytes: &[u8]) -> bool {
        let is_given = self.cache.store(file, off, bytes);
        if is_given {
            self.meters.given(why, bytes.len());
        }
        is_given
    }
}

/// The pages of a file of `size` bytes that are wholly in `extent` (the last one as far as it goes) before those of `answered`, and
/// behind them.
fn whole_pages(extent: Range<u64>, answered: &Range<u64>, size: u64) -> [Range<u64>; 2] {
    let page = page_size() as u64;
    let up = |off: u64| off.next_multiple_of(page);
    let down = |off: u64| off - off % page;
    let end = if extent.end == size { size } else { down(extent.end) };
    [up(extent.start)..down(answered.start), up(answered.end)..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_beside_those_that_are_answered() {
        let page = page_size() as u64;
        let parts = |start, end, from, to, size| whole_pages(start..end, &(from..to), size);
        let [before, behind] = parts(100, 9 * page + 100, 2 * page, 4 * page, 20 * page);
        assert_eq!((before, behind), (page..2 * page, 4 * page..9 * page));
        // The last page is not whole, and never will be.
        let [before, behind] = parts(0, 9 * page + 100, 0, page, 9 * page + 100);
        assert_eq!((before, behind), (0..0, page..9 * page + 100));
        for [before, behind] in [
            parts(100, 200, 100, 200, 20 * page),
            parts(100, page + 200, 100, page, 20 * page),
            parts(0, page + 7, page, page + 7, page + 7),
            parts(5 * page + 1, 6 * page + 1, 5 * page + 1, 6 * page, 20 * page),
        ] {
            assert!(before.is_empty() || before == (0..page), "{before:?}");
            assert!(behind.is_empty(), "{behind:?}");
        }
    }
}

//! Symbolic links to directories that an upper tree replaces by directories, which hides the files
//! reached through them.
//!
//! An example is a layer with only `lib/foo` over one whose `lib` is a link to `usr/lib`: most
//! programs no longer find their libraries in the result.

use crate::{Builder, Kind};
use std::collections::VecDeque;

/// Maximum number of links reported per tree.
const TOLD_MAX: usize = 10;
/// Maximum number of links that are followed, as in Linux.
const LINKS_MAX: u32 = 40;

/// Symbolic links that one upper tree replaces by directories.
#[derive(Default)]
pub struct LostLinks {
    told: Vec<String>,
    has_more: bool,
}

impl LostLinks {
    /// Checks `path`, which becomes a directory, for a symbolic link in `builder`.
    pub(super) fn look(&mut self, builder: &mut Builder, path: &[u8]) {
        let Some(target) = link(builder, path).filter(|_| !self.has_more) else { return };
        if leads_to_directory(builder, path, &target) {
            self.has_more = self.told.len() == TOLD_MAX;
            if !self.has_more {
                self.told.push(format!(
                    "{} was a symbolic link to the directory {} and becomes a directory, \
                     which hides the files of the other one",
                    path.escape_ascii(),
                    target.escape_ascii()
                ));
            }
        }
    }

    /// Returns a sentence about each link, and one about the rest if there are more than 10.
    pub fn into_texts(self) -> impl Iterator<Item = String> {
        let more = self.has_more.then(|| "more symbolic links to directories become directories".to_owned());
        self.told.into_iter().chain(more)
    }
}

/// Returns the target of the symbolic link at `path`.
fn link(builder: &mut Builder, path: &[u8]) -> Option<Vec<u8>> {
    let id = builder.find(path).ok()??;
    match &builder.nodes()[id.idx()].kind {
        Kind::Symlink(target) => Some(target.to_vec()),
        _ => None,
    }
}

/// Returns true if a symbolic link at `path` to `target` leads to a directory.
fn leads_to_directory(builder: &mut Builder, path: &[u8], target: &[u8]) -> bool {
    let mut at: Vec<Vec<u8>> = path.split(|&byte| byte == b'/').map(<[u8]>::to_vec).collect();
    let mut pending = VecDeque::new();
    let mut links_left = LINKS_MAX;
    let mut follow = |at: &mut Vec<Vec<u8>>, pending: &mut VecDeque<Vec<u8>>, target: &[u8]| {
        at.pop();
        if target.starts_with(b"/") {
            at.clear();
        }
        target.split(|&byte| byte == b'/').rev().for_each(|name| pending.push_front(name.to_vec()));
        links_left = links_left.saturating_sub(1);
        links_left > 0
    };
    if !follow(&mut at, &mut pending, target) {
        return false;
    }
    while let Some(name) = pending.pop_front() {
        match &*name {
            b"" | b"." => continue,
            b".." => {
                at.pop();
                continue;
            }
            _ => at.push(name),
        }
        let path = at.join(&b'/');
        let Ok(Some(id)) = builder.find(&path) else { return false };
        let target = match &builder.nodes()[id.idx()].kind {
            Kind::Directory(_) => continue,
            Kind::Symlink(target) => target.to_vec(),
            _ => return false,
        };
        if !follow(&mut at, &mut pending, &target) {
            return false;
        }
    }
    true
}

//! Files that an image has at other paths: they have been moved or renamed.
//!
//! Only files that are missing at their paths in the new tree, or have other contents there, are
//! considered: an unchanged tree costs nothing. Equal stamps prove that two files are the same.
//! Otherwise size and time, or size and name, nominate a file, and its bytes decide.

use kiln_tree::{ContentId, Kind, NodeId, PreviousVersion, Tree, content_count};
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::pairs::Evidence;
use super::stamps::inode_of;
use crate::comparison::Doubt;
use crate::versions::{Version, Versions};

/// Maximum number of files of the image that a file is compared with.
const TRIES: usize = 4;
/// Maximum length in bytes of a file that is compared with more than one other.
const SHORT_MAX_LEN: u64 = 1 << 20;
/// Keys for nominating files, best first: number of trailing path components that must be equal,
/// and true if the time must be equal, too.
const KEYS: [(usize, bool); 4] = [(2, true), (1, true), (0, true), (1, false)];

/// A file that has no counterpart at the same path in the other tree.
#[derive(Clone, Copy)]
struct Alone {
    node: NodeId,
    content: ContentId,
    len: u64,
}

/// Files that may have been moved.
#[derive(Default)]
pub(super) struct Moved {
    /// Contents that stamps prove to be equal: id in the new tree, and id in the old one.
    pub(super) reused: Vec<(u32, ContentId)>,
    /// Previous versions of long files, found by inode.
    pub(super) previous: Versions,
    /// Pairs to compare for each file of the new tree, the most likely first.
    candidates: Vec<Vec<Doubt>>,
}

impl Moved {
    /// Finds the files of `new` that are not in `reused`, and of `old` that are not referred to by
    /// `reused`.
    pub(super) fn find([new, old]: [&Tree; 2], reused: &HashMap<u32, ContentId>, evidence: &Evidence<'_>) -> Self {
        let mut is_taken = vec![false; content_count(old) as usize];
        reused.values().for_each(|content| is_taken[content.0 as usize] = true);
        let mut lost = alone(old, |content| is_taken[content.0 as usize]);
        let mut found =
            if lost.is_empty() { Vec::new() } else { alone(new, |content| reused.contains_key(&content.0)) };
        let mut moved = Self::default();
        if found.is_empty() {
            return moved;
        }
        if let Evidence::Stamps { then, now } = evidence {
            let lost_stamps = by_stamp(&lost, |file| then.of(&old.path(file.node)));
            let found_stamps = by_stamp(&found, |file| now.of(file.content));
            moved.previous = same_inode(&found_stamps, &lost_stamps);
            let pairs = found_stamps.iter().filter_map(|(stamp, new)| Some(((*new)?, (*lost_stamps.get(stamp)?)?)));
            moved.reused = pairs.map(|(new, old)| (new.content.0, old.content)).collect();
            let known: HashSet<u32> = moved.reused.iter().map(|(content, _)| *content).collect();
            found.retain(|file| !known.contains(&file.content.0));
        }
        let lens: HashSet<u64> = found.iter().map(|file| file.len).collect();
        lost.retain(|file| lens.contains(&file.len));
        let nominees = Nominees::new(old, &lost);
        let of = |file: &Alone| nominees.of(new, file, &lost);
        moved.candidates = found.iter().map(of).filter(|doubts| !doubts.is_empty()).collect();
        moved
    }

    /// Leaves out pairs that were compared already.
    pub(super) fn leave_out(&mut self, compared: &HashSet<Doubt>) {
        self.candidates.iter_mut().for_each(|doubts| doubts.retain(|doubt| !compared.contains(doubt)));
        self.candidates.retain(|doubts| !doubts.is_empty());
    }

    /// Returns the next pair of each file that is not in `reused`; empty if there are no more.
    pub(super) fn round(&mut self, new: &Tree, reused: &HashMap<u32, ContentId>) -> Vec<Doubt> {
        let is_reused =
            |doubt: &Doubt| content(new, doubt.new).is_some_and(|(content, _)| reused.contains_key(&content.0));
        self.candidates.retain(|doubts| doubts.first().is_some_and(|doubt| !is_reused(doubt)));
        self.candidates.iter_mut().map(|doubts| doubts.remove(0)).collect()
    }
}

/// Returns the non-empty regular files whose contents are not known, in walk order.
fn alone(tree: &Tree, is_known: impl Fn(ContentId) -> bool) -> Vec<Alone> {
    let mut seen = HashSet::new();
    let files = tree.walk().filter_map(|node| content(tree, node).map(|(content, len)| Alone { node, content, len }));
    files.filter(|file| file.len > 0 && !is_known(file.content) && seen.insert(file.content.0)).collect()
}

fn content(tree: &Tree, node: NodeId) -> Option<(ContentId, u64)> {
    match tree.node(node).kind {
        Kind::File { content, len, .. } => Some((content, len)),
        _ => None,
    }
}

/// Returns the files by stamp. A value of `None` means that files on different filesystems have the
/// same stamp, which then proves nothing.
fn by_stamp(files: &[Alone], stamp: impl Fn(&Alone) -> Option<u128>) -> HashMap<u128, Option<Alone>> {
    let mut all = HashMap::new();
    for file in files {
        let Some(stamp) = stamp(file) else { continue };
        all.entry(stamp).and_modify(|one| *one = None).or_insert(Some(*file));
    }
    all
}

/// Returns pairs of long files with the same inode.
fn same_inode(found: &HashMap<u128, Option<Alone>>, lost: &HashMap<u128, Option<Alone>>) -> Versions {
    let long = |(stamp, file): (&u128, &Option<Alone>)| {
        let file = (*file).filter(|file| file.len >= PreviousVersion::MIN_LEN)?;
        Some((inode_of(*stamp), file))
    };
    let mut inodes: HashMap<u32, Option<Alone>> = HashMap::new();
    for (inode, file) in lost.iter().filter_map(long) {
        inodes.entry(inode).and_modify(|one| *one = None).or_insert(Some(file));
    }
    let old = |inode: u32| inodes.get(&inode).copied().flatten();
    let pairs = found.iter().filter_map(long).filter_map(|(inode, new)| Some((new, old(inode)?)));
    let version = |(new, old): (Alone, Alone)| {
        let doubt = Doubt { new: new.node, old: old.node };
        (new.content.0, Version { doubt, content: old.content, len: old.len })
    };
    pairs.map(version).collect()
}

/// Files of an image by their keys.
struct Nominees {
    /// Hashes and indexes of files for each of [`KEYS`], sorted.
    by_key: [Vec<(u64, u32)>; KEYS.len()],
}

impl Nominees {
    fn new(tree: &Tree, files: &[Alone]) -> Self {
        let mut by_key = [const { Vec::new() }; KEYS.len()];
        for (at, file) in (0..).zip(files) {
            let hashes = keys(tree, file);
            by_key.iter_mut().zip(hashes).for_each(|(list, hash)| list.push((hash, at)));
        }
        by_key.iter_mut().for_each(|list| list.sort_unstable());
        Self { by_key }
    }

    /// Returns the pairs of a file of `tree` with those of `files` that it may be.
    fn of(&self, tree: &Tree, file: &Alone, files: &[Alone]) -> Vec<Doubt> {
        let mut doubts: Vec<Doubt> = Vec::new();
        let most = if file.len > SHORT_MAX_LEN { 1 } else { TRIES };
        for (list, hash) in self.by_key.iter().zip(keys(tree, file)) {
            let first = list.partition_point(|(other, _)| *other < hash);
            let equal = list[first..].iter().take_while(|(other, _)| *other == hash).take(TRIES);
            for old in equal.map(|(_, at)| files[*at as usize]) {
                let is_new = doubts.iter().all(|doubt| doubt.old != old.node);
                if old.len == file.len && is_new && doubts.len() < most {
                    doubts.push(Doubt { new: file.node, old: old.node });
                }
            }
        }
        doubts
    }
}

/// Returns the hashes of a file for each of [`KEYS`].
fn keys(tree: &Tree, file: &Alone) -> [u64; KEYS.len()] {
    let (path, meta) = (tree.path(file.node), &tree.node(file.node).meta);
    KEYS.map(|(names, by_time)| {
        let mut hash = DefaultHasher::new();
        let last: Vec<&[u8]> = path.rsplit(|byte| *byte == b'/').take(names).collect();
        (file.len, last, by_time.then_some((meta.mtime, meta.mtime_nsec))).hash(&mut hash);
        hash.finish()
    })
}

//! A tree over an older image of it: files that have not changed have the contents that the image stores.

use kiln_builder::tree::{
    Base, Content, ContentError, ContentId, Contents, Device, Kept, Kind, Metadata, NodeId, PlacedRun, Tree,
};
use std::collections::HashMap;
use std::sync::Arc;

use crate::error::SourceError;
use crate::image::erofs::BaseImage;
use crate::source::{Scan, ScanOptions};

/// A file may change again without a new time of its last change, where the system's clock for these has not gone on. So what was changed within
/// so many seconds before the base was made may not be what the base has.
const CLOCK_SECS: i64 = 2;

/// The tree of `scan` with what is unchanged since `base` was made of it: regular files of the same path, size and time of last change. All
/// but their contents is as it is in `scan`.
///
/// Few images say when they were made. But each was made when the latest of the times in it had come, and files that were changed before that
/// are not what a later change with the same time has made of them.
///
/// # Errors
/// A base that cannot be read; [`SourceError::Interrupted`].
pub fn increment(scan: Scan, base: &Arc<BaseImage>, options: &ScanOptions<'_>) -> Result<Scan, SourceError> {
    let old = base.scan(options)?.tree;
    let known = base.changed_at().unwrap_or(i64::MAX);
    let times = old.nodes().map(|(_, node)| node.meta.mtime).chain(base.built_at());
    let latest = times.filter(|time| *time <= known).max();
    let settled = latest.unwrap_or(i64::MIN).saturating_sub(CLOCK_SECS);
    let kept = unchanged([&scan.tree, &old], |meta| meta.mtime <= settled);
    let (old, base) = (old.into_contents(), base.clone());
    let tree = scan.tree.with_contents(|new| Box::new(Increment { new, old, kept, base }));
    Ok(Scan { tree, ..scan })
}

/// The contents of files that two trees have at the same paths with the same size and time: of the first tree, with what they are in the
/// second one.
fn unchanged([new, old]: [&Tree; 2], is_settled: impl Fn(&Metadata) -> bool) -> HashMap<u32, ContentId> {
    let mut kept = HashMap::new();
    let mut dirs = vec![[NodeId::ROOT; 2]];
    while let Some([new_dir, old_dir]) = dirs.pop() {
        let olds = old.entries(old_dir);
        for entry in new.entries(new_dir).iter() {
            let Some(other) = olds.find(entry.name) else { continue };
            let [one, two] = [new.node(entry.node), old.node(other)];
            match (&one.kind, &two.kind) {
                (Kind::Directory(_), Kind::Directory(_)) => dirs.push([entry.node, other]),
                (Kind::File { len, content, .. }, Kind::File { len: old_len, content: old_content, .. }) => {
                    let time = |meta: &Metadata| (meta.mtime, meta.mtime_nsec);
                    if len == old_len && time(&one.meta) == time(&two.meta) && is_settled(&one.meta) {
                        kept.entry(content.0).or_insert(*old_content);
                    }
                }
                _ => {}
            }
        }
    }
    kept
}

/// Contents of a tree, some of them as an older image has them.
struct Increment {
    new: Box<dyn Contents>,
    old: Box<dyn Contents>,
    /// Contents of the image, by those of the tree.
    kept: HashMap<u32, ContentId>,
    base: Arc<BaseImage>,
}

impl Contents for Increment {
    fn open(&self, id: ContentId, path: &[u8]) -> Result<Box<dyn Content>, ContentError> {
        match self.kept.get(&id.0) {
            Some(old) => self.old.open(*old, path),
            None => self.new.open(id, path),
        }
    }

    fn open_changed(&self, id: ContentId, path: &[u8]) -> Result<Box<dyn Content>, ContentError> {
        match self.kept.get(&id.0) {
            Some(old) => self.old.open(*old, path),
            None => self.new.open_changed(id, path),
        }
    }

    fn devices(&self) -> Vec<Device> {
        self.new.devices()
    }

    fn placed(&self, id: ContentId, len: u64) -> Result<Option<Vec<PlacedRun>>, ContentError> {
        self.new.placed(id, len)
    }

    fn base(&self) -> Option<Arc<dyn Base>> {
        Some(self.base.clone())
    }

    fn kept(&self, id: ContentId, len: u64) -> Result<Option<Kept>, ContentError> {
        self.kept.get(&id.0).map_or(Ok(None), |old| self.old.kept(*old, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_builder::tree::{Entry, Node, ThinSlice};

    struct Nothing;

    impl Contents for Nothing {
        fn open(&self, _: ContentId, _: &[u8]) -> Result<Box<dyn Content>, ContentError> {
            Err(std::io::Error::other("nothing").into())
        }
    }

    /// Files by name, size, seconds and nanoseconds, in one directory below the root.
    fn tree(files: &[(&str, u64, i64, u32)]) -> Tree {
        let node = |kind, mtime, mtime_nsec| Node {
            meta: Metadata { mtime, mtime_nsec, ..Metadata::default() },
            xattrs: ThinSlice::default(),
            kind,
        };
        let names =
            (2..).zip(files).map(|(id, (name, ..))| Entry { name: name.as_bytes(), node: NodeId(id) }).collect();
        let dir = [Entry { name: b"dir", node: NodeId(1) }].into_iter().collect();
        let dirs = [dir, names].map(|entries| node(Kind::Directory(Box::new(entries)), 0, 0));
        let file = |(id, &(_, len, secs, nsec)): (u32, &(&str, u64, i64, u32))| {
            node(Kind::File { len, content: ContentId(id), sparse: false }, secs, nsec)
        };
        Tree::new(dirs.into_iter().chain((0..).zip(files).map(file)).collect(), Box::new(Nothing)).unwrap()
    }

    #[test]
    fn what_has_the_same_size_and_time_is_unchanged() {
        let old = tree(&[("a", 5, 10, 3), ("b", 5, 10, 3), ("c", 5, 10, 3), ("d", 5, 10, 3), ("late", 5, 99, 3)]);
        let new =
            [("0", 5, 10, 3), ("a", 5, 10, 3), ("b", 6, 10, 3), ("c", 5, 11, 3), ("d", 5, 10, 4), ("late", 5, 99, 3)];
        let kept = unchanged([&tree(&new), &old], |meta| meta.mtime < 50);
        assert_eq!(kept, HashMap::from([(1, ContentId(0))]));
    }
}

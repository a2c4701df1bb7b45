//! Joint walk of two trees.

use kiln_tree::{Entries, Iter, Kind, NodeId, Tree};
use std::cmp::Ordering;
use std::iter::Peekable;

/// Nodes at one path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pair {
    /// Only the first tree has the path.
    A(NodeId),
    /// Only the second tree has the path.
    B(NodeId),
    /// Both trees have the path.
    Both(NodeId, NodeId),
}

/// Treatment of directories that only one tree has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OneSided {
    /// Walk their contents.
    Enter,
    /// Skip their contents.
    Skip,
}

/// Iterator over a pair and all pairs below it, directories before their contents, names in byte
/// order.
pub(crate) struct Pairs<'a> {
    a: &'a Tree,
    b: &'a Tree,
    one_sided: OneSided,
    start: Option<Pair>,
    path: Vec<u8>,
    stack: Vec<Frame<'a>>,
}

static NONE: Entries = Entries::new();

/// Remaining entries of a directory in both trees.
struct Frame<'a> {
    a: Peekable<Iter<'a>>,
    b: Peekable<Iter<'a>>,
    path_len: usize,
}

impl<'a> Pairs<'a> {
    /// Creates an iterator that starts with `start`, which is at `path`.
    pub(crate) fn new(a: &'a Tree, b: &'a Tree, start: Pair, path: &[u8], one_sided: OneSided) -> Self {
        Self { a, b, one_sided, start: Some(start), path: path.to_vec(), stack: Vec::new() }
    }

    /// Returns the path of the latest pair.
    pub(crate) fn path(&self) -> &[u8] {
        &self.path
    }

    /// Continues the walk with the pairs inside this one.
    fn enter(&mut self, pair: Pair) {
        let is_dir = |tree: &Tree, id| matches!(tree.node(id).kind, Kind::Directory(_));
        let both_dirs = matches!(pair, Pair::Both(a, b) if is_dir(self.a, a) && is_dir(self.b, b));
        if !both_dirs && self.one_sided == OneSided::Skip {
            return;
        }
        let (a, b) = match pair {
            Pair::A(a) => (self.a.entries(a), &NONE),
            Pair::B(b) => (&NONE, self.b.entries(b)),
            Pair::Both(a, b) => (self.a.entries(a), self.b.entries(b)),
        };
        if !(a.is_empty() && b.is_empty()) {
            let [a, b] = [a, b].map(|entries| entries.iter().peekable());
            self.stack.push(Frame { a, b, path_len: self.path.len() });
        }
    }
}

impl Iterator for Pairs<'_> {
    type Item = Pair;

    fn next(&mut self) -> Option<Pair> {
        let pair = match self.start.take() {
            Some(start) => start,
            None => loop {
                let frame = self.stack.last_mut()?;
                let Some((name, pair)) = frame.next() else {
                    self.stack.pop();
                    continue;
                };
                self.path.truncate(frame.path_len);
                if frame.path_len > 0 {
                    self.path.push(b'/');
                }
                self.path.extend_from_slice(name);
                break pair;
            },
        };
        self.enter(pair);
        Some(pair)
    }
}

impl<'a> Frame<'a> {
    /// Returns the smallest remaining name and its pair.
    fn next(&mut self) -> Option<(&'a [u8], Pair)> {
        let order = match (self.a.peek(), self.b.peek()) {
            (Some(a), Some(b)) => a.name.cmp(b.name),
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        let a = if order.is_le() { self.a.next() } else { None };
        let b = if order.is_ge() { self.b.next() } else { None };
        match (a, b) {
            (Some(a), Some(b)) => Some((a.name, Pair::Both(a.node, b.node))),
            (Some(a), None) => Some((a.name, Pair::A(a.node))),
            (None, Some(b)) => Some((b.name, Pair::B(b.node))),
            (None, None) => None,
        }
    }
}

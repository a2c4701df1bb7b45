//! Differences of pairs of nodes that are known without reading contents.

use kiln_format::inode::FileType;
use kiln_tree::{Kind, NodeId, Tree};
use std::collections::HashSet;

use crate::change::differences;
use crate::change::{Aspect, Difference};
use crate::links::Links;
use crate::pairs::{Pair, Pairs};

/// A path and its differences so far.
pub(crate) struct WalkStep {
    /// Path without leading slash.
    pub path: Vec<u8>,
    /// Differences so far.
    pub visit: Visit,
}

/// Differences of a path that are known without reading contents.
pub(crate) enum Visit {
    /// The path exists only in the second tree.
    Added(FileType),
    /// The path exists only in the first tree.
    Removed(FileType),
    /// The path exists in both trees.
    Both { differences: Vec<Difference>, contents: Contents },
}

/// Comparison of contents that a path requires.
#[derive(Clone, Copy)]
pub(crate) enum Contents {
    /// No comparison: the nodes are not files, or the result is known.
    Settled,
    /// Comparison by reading. With several names in both trees, the nodes occur again.
    Compare { a: NodeId, b: NodeId, several_names: bool },
    /// The comparison of an earlier path that leads to the same nodes.
    AsBefore { a: NodeId, b: NodeId },
}

/// Rules of a comparison, see [`DiffOptions`](crate::DiffOptions).
#[derive(Clone, Copy)]
pub(crate) struct Rules<'a> {
    pub ignore: &'a [Aspect],
    pub latest_mtime: Option<i64>,
    pub is_same: Option<&'a (dyn Fn(NodeId, NodeId) -> bool + Sync)>,
}

/// Iterator with a step for each path.
pub(crate) struct Walk<'a> {
    a: &'a Tree,
    b: &'a Tree,
    rules: Rules<'a>,
    pairs: Pairs<'a>,
    links: Option<Links<'a>>,
    /// Nodes with several names in both trees whose contents are being compared.
    seen: HashSet<(NodeId, NodeId)>,
}

impl<'a> Walk<'a> {
    /// Creates an iterator with a step for each of `pairs`.
    pub(crate) fn new(a: &'a Tree, b: &'a Tree, pairs: Pairs<'a>, rules: Rules<'a>) -> Self {
        let links = (!rules.ignore.contains(&Aspect::Links)).then(|| Links::count(a, b));
        Self { a, b, rules, pairs, links, seen: HashSet::new() }
    }

    fn both(&mut self, a: NodeId, b: NodeId) -> Visit {
        let Rules { ignore, latest_mtime, .. } = self.rules;
        let mut differences = differences(self.a.node(a), self.b.node(b), ignore, latest_mtime);
        differences.extend(self.links.as_ref().and_then(|links| links.difference(a, b)));
        Visit::Both { differences, contents: self.contents(a, b) }
    }

    fn contents(&mut self, a: NodeId, b: NodeId) -> Contents {
        let (Kind::File { len, .. }, Kind::File { len: other, .. }) = (&self.a.node(a).kind, &self.b.node(b).kind)
        else {
            return Contents::Settled;
        };
        let is_one_file = std::ptr::eq(self.a, self.b) && a == b;
        if len != other || *len == 0 || is_one_file || self.rules.ignore.contains(&Aspect::Contents) {
            return Contents::Settled;
        }
        if self.rules.is_same.is_some_and(|is_same| is_same(a, b)) {
            return Contents::Settled;
        }
        let several_names = self.a.names_of(a) > 1 && self.b.names_of(b) > 1;
        match several_names && !self.seen.insert((a, b)) {
            true => Contents::AsBefore { a, b },
            false => Contents::Compare { a, b, several_names },
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = WalkStep;

    fn next(&mut self) -> Option<WalkStep> {
        let pair = self.pairs.next()?;
        let visit = match pair {
            Pair::A(a) => Visit::Removed(self.a.node(a).kind.file_type()),
            Pair::B(b) => Visit::Added(self.b.node(b).kind.file_type()),
            Pair::Both(a, b) => self.both(a, b),
        };
        Some(WalkStep { path: self.pairs.path().to_vec(), visit })
    }
}

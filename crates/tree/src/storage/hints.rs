//! Hints about files by their paths, such as their compression.

use crate::{Kind, NodeId, Tree};
use regex::bytes::{RegexBuilder, RegexSet, RegexSetBuilder};
use std::collections::BTreeSet;

use crate::filter::glob::FLAGS;
use crate::filter::rules::{COMPILED_MAX_LEN, GlobScope, anchored};
use crate::path::join;
use crate::syntax::{SyntaxError, regex_reason};

/// Hint about the files at matching paths: a value of `T`, such as their compression.
#[derive(Clone, Debug)]
pub struct Hint<T> {
    /// The pattern as the user wrote it.
    pattern: Box<[u8]>,
    regex: String,
    scope: Scope,
    value: T,
}

/// Meaning of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// The matching file, or all files below the matching directory.
    Beneath(GlobScope),
    /// Only the file at the matching path.
    File,
}

impl<T> Hint<T> {
    /// Creates a hint for a glob in the language of [`Rule`](crate::filter::Rule), without exclamation
    /// marks. A hint for a directory applies to everything below it.
    ///
    /// # Errors
    /// A glob that is empty or invalid.
    pub fn glob(glob: &[u8], value: T) -> Result<Self, SyntaxError> {
        let (regex, about) = anchored(glob).map_err(|reason| SyntaxError::new("glob", glob, reason))?;
        Ok(Self { pattern: glob.into(), regex, scope: Scope::Beneath(about), value })
    }

    /// Creates a hint for files whose paths contain a match of a regular expression, see
    /// [`Regexes`](crate::filter::Regexes).
    ///
    /// # Errors
    /// A regular expression that is invalid or too large.
    pub fn regex(regex: &str, value: T) -> Result<Self, SyntaxError> {
        let refuse = |error| SyntaxError::new("regular expression", regex.as_bytes(), regex_reason(&error));
        // Compiled on its own first, so that none of its parentheses closes one of ours.
        RegexBuilder::new(regex).unicode(false).build().map_err(refuse)?;
        let pattern = regex.as_bytes().into();
        Ok(Self { pattern, regex: format!("{FLAGS}(?:{regex})"), scope: Scope::File, value })
    }
}

/// Ordered set of hints. The last hint that applies to a file decides.
#[derive(Clone, Debug)]
pub struct HintRules<T> {
    regexes: RegexSet,
    hints: Vec<Hint<T>>,
}

impl<T> Default for HintRules<T> {
    /// Returns an empty set.
    fn default() -> Self {
        Self { regexes: RegexSet::empty(), hints: Vec::new() }
    }
}

impl<T> HintRules<T> {
    /// Compiles hints in this order.
    ///
    /// # Errors
    /// Hints that need more memory than allowed.
    pub fn new(hints: Vec<Hint<T>>) -> Result<Self, SyntaxError> {
        let regexes = RegexSetBuilder::new(hints.iter().map(|hint| &hint.regex)).size_limit(COMPILED_MAX_LEN).build();
        let regexes = regexes.map_err(|error| {
            let count = format!("{} of them", hints.len());
            SyntaxError::new("hints", count.as_bytes(), regex_reason(&error))
        })?;
        Ok(Self { regexes, hints })
    }

    /// Returns true if there are no hints.
    pub fn is_empty(&self) -> bool {
        self.hints.is_empty()
    }

    /// Returns the files of `tree` that have a hint, with its value. A file with several names uses
    /// the first.
    pub fn of(&self, tree: &Tree) -> Vec<(NodeId, &T)> {
        let mut hints = Vec::new();
        if self.hints.is_empty() {
            return hints;
        }
        let mut open = vec![(NodeId::ROOT, Vec::new(), None)];
        while let Some((dir, path, inherited)) = open.pop() {
            for entry in tree.entries(dir).iter().filter(|entry| tree.parent(entry.node) == dir) {
                let path = join(&path, entry.name);
                let kind = &tree.node(entry.node).kind;
                // `None` is less than any index.
                let decides = self.last(&path, kind).max(inherited);
                match kind {
                    Kind::Directory(_) => open.push((entry.node, path, decides)),
                    Kind::File { .. } if tree.path(entry.node) == path => {
                        hints.extend(decides.map(|idx| (entry.node, &self.hints[idx].value)));
                    }
                    _ => {}
                }
            }
        }
        hints
    }

    /// Returns the patterns that match no path of `tree`, in their order. They are probably
    /// mistakes.
    pub fn unmatched(&self, tree: &Tree) -> Vec<&[u8]> {
        let mut unmatched: BTreeSet<usize> = (0..self.hints.len()).collect();
        let mut open = vec![(NodeId::ROOT, Vec::new())];
        while let Some((dir, path)) = open.pop().filter(|_| !unmatched.is_empty()) {
            for entry in tree.entries(dir).iter() {
                let path = join(&path, entry.name);
                let kind = &tree.node(entry.node).kind;
                for idx in self.matching(&path, kind) {
                    unmatched.remove(&idx);
                }
                if matches!(kind, Kind::Directory(_)) {
                    open.push((entry.node, path));
                }
            }
        }
        unmatched.into_iter().map(|idx| &*self.hints[idx].pattern).collect()
    }

    /// Returns the index of the last hint that matches this path.
    fn last(&self, path: &[u8], kind: &Kind) -> Option<usize> {
        self.matching(path, kind).max()
    }

    /// Returns the indexes of the hints that match this path.
    fn matching(&self, path: &[u8], kind: &Kind) -> impl Iterator<Item = usize> {
        let is_dir = matches!(kind, Kind::Directory(_));
        let is_about = move |idx: &usize| match self.hints[*idx].scope {
            Scope::File => !is_dir,
            Scope::Beneath(about) => is_dir || about == GlobScope::Everything,
        };
        self.regexes.matches(path).into_iter().filter(is_about)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{ContentId, Entry, Metadata, NoContents, Node, ThinSlice};
    use std::collections::HashMap;

    /// `a.so`, `lib/a.so`, `lib/deep/a.so`, `lib/deep/b`, and `z`, which is also `lib/b`.
    pub(in super::super) fn tree() -> Tree {
        let node = |kind| Node { meta: Metadata::default(), xattrs: ThinSlice::default(), kind };
        let file = || node(Kind::File { len: 1, content: ContentId(0), sparse: false });
        let dir = |entries: &[(&'static str, u32)]| {
            let entry = |&(name, node): &(&'static str, u32)| Entry { name: name.as_bytes(), node: NodeId(node) };
            node(Kind::Directory(Box::new(entries.iter().map(entry).collect())))
        };
        let nodes = vec![
            dir(&[("a.so", 1), ("lib", 2), ("z", 4)]),
            file(),
            dir(&[("a.so", 3), ("b", 4), ("deep", 5)]),
            file(),
            file(),
            dir(&[("a.so", 6), ("b", 7)]),
            file(),
            file(),
        ];
        Tree::new(nodes, Box::new(NoContents)).unwrap()
    }

    /// Returns the values by file in walk order; blank for files without a hint.
    fn values(hints: Vec<Hint<u8>>) -> String {
        let (tree, rules) = (tree(), HintRules::new(hints).unwrap());
        let hints: HashMap<NodeId, &u8> = rules.of(&tree).into_iter().collect();
        let files = tree.walk().filter(|&node| matches!(tree.node(node).kind, Kind::File { .. }));
        files.map(|node| hints.get(&node).map_or(' ', |value| char::from(b'0' + **value))).collect()
    }

    #[test]
    fn the_last_hint_decides_and_directories_pass_theirs_on() {
        let globs = |globs: &[(&str, u8)]| {
            values(globs.iter().map(|&(glob, value)| Hint::glob(glob.as_bytes(), value).unwrap()).collect())
        };
        assert_eq!(globs(&[]), "     ");
        assert_eq!(globs(&[("*.so", 1)]), "111  ");
        assert_eq!(globs(&[("/*.so", 1)]), "1    ");
        assert_eq!(globs(&[("lib/", 1), ("*.so", 0)]), "0001 ");
        assert_eq!(globs(&[("*.so", 0), ("lib", 1)]), "0111 ");
        assert_eq!(globs(&[("lib", 1), ("deep/", 2), ("/lib/deep/b", 3)]), " 123 ");
        assert_eq!(globs(&[("z", 1)]), "    1");
        assert_eq!(globs(&[("/lib/b", 1)]), "     ", "not its first name");
        assert_eq!(globs(&[("a.so/", 1)]), "     ", "no directory");
    }

    #[test]
    fn hints_that_match_nothing_are_known() {
        let unmatched = |hints: Vec<Hint<u8>>| -> Vec<String> {
            let rules = HintRules::new(hints).unwrap();
            rules.unmatched(&tree()).into_iter().map(|pattern| String::from_utf8(pattern.to_vec()).unwrap()).collect()
        };
        let globs =
            |globs: &[&str]| unmatched(globs.iter().map(|glob| Hint::glob(glob.as_bytes(), 1).unwrap()).collect());
        assert_eq!(globs(&[]), [""; 0]);
        assert_eq!(globs(&["*.so", "lib/", "deep/", "z", "/lib/b"]), [""; 0], "overridden ones match, too");
        assert_eq!(globs(&["*.a", "lib", "a.so/", "/deep"]), ["*.a", "a.so/", "/deep"]);
        assert_eq!(unmatched(vec![Hint::regex("^lib$", 1).unwrap()]), ["^lib$"], "no directory");
    }

    #[test]
    fn expressions_match_anywhere_in_paths_of_files() {
        let regexes = |regexes: &[(&str, u8)]| {
            values(regexes.iter().map(|&(regex, value)| Hint::regex(regex, value).unwrap()).collect())
        };
        assert_eq!(regexes(&[("^lib/", 1), (r"b$", 0)]), " 110 ");
        assert_eq!(regexes(&[("^lib$|a", 1)]), "111  ");
        assert!(Hint::regex("a)(b", 1).is_err());
        assert!(Hint::glob(b"[", 1).is_err());
    }
}

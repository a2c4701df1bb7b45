//! Selection of a part of an image: sub-trees by path, and globs.

use crate::SinkError;
use kiln_format::inode::FileType;
use kiln_read::{Image, Inode, ReadError, WalkEntry};
use kiln_tree::filter::{PathGlob, PathGlobs};
use std::collections::HashSet;

/// Everything in an image, or the files that some patterns name.
///
/// A pattern is a path from the image's root; a leading slash changes nothing. It selects the file
/// of that name, and everything below it if it is a directory. A pattern that names no file of the
/// image is used as a glob in the language of [`PathGlob`]: `*`, `?` and `[...]` do not match a
/// slash, `**` does.
#[derive(Clone, Debug)]
pub struct Selection {
    patterns: Vec<Pattern>,
}

#[derive(Clone, Debug)]
struct Pattern {
    /// As the user wrote it, for messages.
    written: Vec<u8>,
    /// The path without leading, trailing and repeated slashes and without `.` components.
    path: Vec<u8>,
}

impl Selection {
    /// Returns a selection of the whole image.
    pub fn everything() -> Self {
        Self { patterns: vec![Pattern { written: b"/".to_vec(), path: Vec::new() }] }
    }

    /// Returns a selection of all files that `patterns` name; of nothing if there are none.
    ///
    /// # Errors
    /// A pattern that is empty, holds a zero byte, or has a `..` component.
    pub fn of<P: Into<Vec<u8>>>(patterns: impl IntoIterator<Item = P>) -> Result<Self, SinkError> {
        let patterns = patterns.into_iter().map(|p| Pattern::new(p.into())).collect::<Result<_, _>>()?;
        Ok(Self { patterns })
    }

    /// Returns the size in bytes of the contents of all selected regular files, each inode counted
    /// once. Files that cannot be read do not count.
    ///
    /// # Errors
    /// A pattern that matches nothing.
    pub fn contents_len(&self, image: &Image) -> Result<u64, SinkError> {
        let mut resolved = self.resolve(image, image.inode(image.root_nid())?)?;
        let mut linked = HashSet::new();
        let mut len = 0_u64;
        for start in std::mem::take(&mut resolved.starts) {
            let mut named_dir: Option<Vec<u8>> = None;
            for WalkEntry { path, inode } in image.walk(&start.inode, &start.path).flatten() {
                let is_below = named_dir.as_ref().is_some_and(|dir| is_within(&path, dir));
                if !is_below && !resolved.names(&path) {
                    continue;
                }
                if inode.meta.file_type == FileType::Regular {
                    let is_new = inode.meta.nlink < 2 || linked.insert(inode.nid);
                    len = len.saturating_add(if is_new { inode.meta.size } else { 0 });
                }
                if inode.is_dir() && !is_below {
                    named_dir = Some(path);
                }
            }
        }
        Ok(len)
    }

    /// Resolves the patterns against `image`, relative to the directory `root`.
    pub(crate) fn resolve(&self, image: &Image, root: Inode) -> Result<Resolved, SinkError> {
        let mut starts = Vec::new();
        let mut literals = HashSet::new();
        let mut globs = Vec::new();
        let mut glob_patterns = Vec::new();
        for pattern in &self.patterns {
            if let Some(inode) = find(image, root, &pattern.path)? {
                literals.insert(pattern.path.clone());
                starts.push(Start { path: pattern.path.clone(), inode });
                continue;
            }
            let no_match = || SinkError::NoMatch { pattern: pattern.written.clone() };
            let dir = pattern.literal_dir().ok_or_else(no_match)?;
            globs.push(pattern.glob()?);
            glob_patterns.push(pattern.written.clone());
            starts.push(Start { path: dir.to_vec(), inode: find(image, root, dir)?.ok_or_else(no_match)? });
        }
        let globs = PathGlobs::new(globs)
            .map_err(|error| SinkError::BadPattern { pattern: glob_patterns.join(&b' '), reason: error.reason })?;
        Ok(Resolved {
            starts: outermost(starts),
            literals,
            globs,
            unmatched: glob_patterns.into_iter().map(Some).collect(),
        })
    }
}

impl Pattern {
    fn new(written: Vec<u8>) -> Result<Self, SinkError> {
        let refuse = |reason: &str| Err(SinkError::BadPattern { pattern: written.clone(), reason: reason.into() });
        if written.is_empty() {
            return refuse("an empty path; / is the whole image");
        }
        if written.contains(&0) {
            return refuse("a path cannot hold a zero byte");
        }
        let components: Vec<&[u8]> = components(&written).filter(|&c| c != b".").collect();
        if components.contains(&&b".."[..]) {
            return refuse("`..` has no meaning here: name the path from the image's root");
        }
        let path = components.join(&b'/');
        Ok(Self { written, path })
    }

    /// Returns the deepest directory that contains all matches of this glob; `None` if the pattern
    /// is not a glob.
    fn literal_dir(&self) -> Option<&[u8]> {
        let magic = self.path.iter().position(|b| b"*?[\\".contains(b))?;
        let len = self.path[..magic].iter().rposition(|&b| b == b'/').unwrap_or(0);
        Some(&self.path[..len])
    }

    fn glob(&self) -> Result<PathGlob, SinkError> {
        let refuse = |reason| SinkError::BadPattern { pattern: self.written.clone(), reason };
        PathGlob::new(&self.path).map_err(|error| refuse(error.reason))
    }
}

/// A selection resolved against one image.
pub(crate) struct Resolved {
    /// Roots of the walks: in walk order, none inside another.
    pub(crate) starts: Vec<Start>,
    literals: HashSet<Vec<u8>>,
    globs: PathGlobs,
    /// The globs as written, in the order of `globs`; `None` once one has matched.
    unmatched: Vec<Option<Vec<u8>>>,
}

/// The root of one walk.
pub(crate) struct Start {
    pub(crate) path: Vec<u8>,
    pub(crate) inode: Inode,
}

impl Resolved {
    /// Returns true if a pattern names `path` itself. It must be called with every path of the
    /// walks, for [`Resolved::check_all_matched`].
    pub(crate) fn names(&mut self, path: &[u8]) -> bool {
        let mut is_match = self.literals.contains(path);
        if self.globs.is_empty() {
            return is_match;
        }
        for glob in self.globs.matching(path) {
            self.unmatched[glob] = None;
            is_match = true;
        }
        is_match
    }

    /// Returns an error for the first glob that has matched nothing.
    pub(crate) fn check_all_matched(&self) -> Result<(), SinkError> {
        match self.unmatched.iter().flatten().next() {
            Some(pattern) => Err(SinkError::NoMatch { pattern: pattern.clone() }),
            None => Ok(()),
        }
    }
}

/// Returns the components of a path.
pub(crate) fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&b| b == b'/').filter(|c| !c.is_empty())
}

/// Returns true if `path` is `dir` or inside it; the empty path is the root.
pub(crate) fn is_within(path: &[u8], dir: &[u8]) -> bool {
    match path.strip_prefix(dir) {
        Some(rest) => dir.is_empty() || rest.is_empty() || rest[0] == b'/',
        None => false,
    }
}

/// Returns the inode at `path`, relative to `root`. Symlinks are not followed: a selection names
/// what the image holds.
fn find(image: &Image, root: Inode, path: &[u8]) -> Result<Option<Inode>, ReadError> {
    let mut inode = root;
    for name in components(path) {
        if inode.meta.file_type != FileType::Directory {
            return Ok(None);
        }
        inode = match image.lookup(&inode, name)? {
            Some(entry) => image.inode(entry.nid)?,
            None => return Ok(None),
        };
    }
    Ok(Some(inode))
}

/// Sorts `starts` in walk order, and drops those inside another.
fn outermost(mut starts: Vec<Start>) -> Vec<Start> {
    starts.sort_by(|a, b| components(&a.path).cmp(components(&b.path)));
    let mut kept: Vec<Start> = Vec::new();
    for start in starts {
        if !kept.last().is_some_and(|last| is_within(&start.path, &last.path)) {
            kept.push(start);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Result<Pattern, SinkError> {
        Pattern::new(text.into())
    }

    #[test]
    fn paths_are_taken_from_the_root() {
        for (written, path) in [("/", ""), (".", ""), ("/a/b/", "a/b"), ("./a//./b", "a/b"), ("...", "...")] {
            assert_eq!(pattern(written).unwrap().path, path.as_bytes(), "{written}");
        }
        for bad in ["", "..", "a/../b", "/..", "../etc/passwd", "a\0b"] {
            assert!(matches!(pattern(bad), Err(SinkError::BadPattern { .. })), "{bad:?}");
        }
    }

    #[test]
    fn globs_know_where_to_start() {
        for (written, dir) in
            [("*", ""), ("usr/lib/*.so", "usr/lib"), ("/usr/[ab]/c", "usr"), ("**/x", ""), ("a/b?", "a")]
        {
            assert_eq!(pattern(written).unwrap().literal_dir(), Some(dir.as_bytes()), "{written}");
        }
        assert_eq!(pattern("usr/lib").unwrap().literal_dir(), None);
    }

    #[test]
    fn stars_stop_at_slashes() {
        let matches =
            |glob: &str, path: &[u8]| PathGlobs::new([pattern(glob).unwrap().glob().unwrap()]).unwrap().is_match(path);
        assert!(matches("a/*.txt", b"a/b.txt"));
        assert!(!matches("a/*.txt", b"a/b/c.txt"));
        assert!(matches("a/**/*.txt", b"a/b/c.txt"));
        assert!(matches("**/*.txt", b"b.txt"));
        assert!(matches("/a?c", b"a\xffc"), "any byte is a character");
        assert!(!matches("a?c", b"a/c"));
        assert!(matches("a{b,c}*", b"a{b,c}d"), "braces are for shells");
        assert!(pattern("a[").unwrap().glob().is_err());
    }

    #[test]
    fn starts_do_not_overlap() {
        let inside = |path: &str, dir: &str| is_within(path.as_bytes(), dir.as_bytes());
        assert!(inside("a/b", "a") && inside("a", "a") && inside("a", ""));
        assert!(!inside("ab", "a") && !inside("a", "a/b"));
    }
}

//! Selection of the entries of a finished tree.

use crate::{Builder, Entries, Kind, NodeId, Tree, TreeError};
use std::ffi::CStr;
use std::io;

use super::ignore::{IgnoreRules, read_in};
use super::selection::Filter;
use crate::path::join;

/// Number of the error "No such file or directory", which a scan of a directory reports for a listed
/// path that does not exist.
const ENOENT: i32 = 2;

/// Unreadable paths in a source, with their errors.
pub type PathErrors = Vec<(Vec<u8>, io::Error)>;

/// Returns the part of `tree` that `filter` selects, and its unreadable ignore files and paths,
/// with the same result as a scan of a directory.
///
/// # Errors
/// Errors of the tree.
pub fn select(tree: Tree, filter: &Filter) -> Result<(Tree, PathErrors), TreeError> {
    if filter.is_everything() {
        return Ok((tree, PathErrors::new()));
    }
    let (mut kept, mut errors) = (Vec::new(), PathErrors::new());
    let stage = Stage { tree: &tree, filter };
    let mut stack = vec![Dir { node: NodeId::ROOT, path: Vec::new(), outer: IgnoreRules::default() }];
    while let Some(dir) = stack.pop() {
        let node = dir.node;
        let (entries, subdirs) = stage.list(dir, &mut errors);
        stack.extend(subdirs);
        kept.push((node, entries));
    }
    let (mut builder, contents) = Builder::from_tree(tree);
    kept.into_iter().for_each(|(dir, entries)| builder.set_entries(dir, entries));
    Ok((builder.finish(contents)?, errors))
}

struct Stage<'a> {
    tree: &'a Tree,
    filter: &'a Filter,
}

/// A directory to process.
struct Dir {
    node: NodeId,
    path: Vec<u8>,
    /// Rules of the ignore files of its ancestors.
    outer: IgnoreRules,
}

impl<'a> Stage<'a> {
    /// Returns the selected entries of a directory, and the directories among them.
    fn list(&self, dir: Dir, errors: &mut PathErrors) -> (Entries, Vec<Dir>) {
        let (mut entries, mut subdirs) = (Entries::new(), Vec::new());
        let read = |name: &CStr| read_in(self.tree, dir.node, name);
        let ignored = match dir.outer.with_files(&self.filter.ignore_files, &dir.path, &read) {
            Ok(ignored) => ignored,
            Err(error) => {
                errors.push((dir.path, error));
                return (entries, subdirs);
            }
        };
        for name in self.names(&dir) {
            let path = join(&dir.path, name);
            match self.look(dir.node, name, &path, &ignored) {
                Ok(None) => {}
                Ok(Some(node)) => {
                    entries.push(name, node);
                    if self.is_dir(node) {
                        subdirs.push(Dir { node, path, outer: ignored.clone() });
                    }
                }
                Err(error) => errors.push((path, error)),
            }
        }
        (entries, subdirs)
    }

    /// Returns the names in a directory, restricted to the path list if there is one.
    fn names(&self, dir: &Dir) -> Vec<&'a [u8]> {
        match &self.filter.only {
            Some(list) => list.names_in(&dir.path).into_iter().flatten().map(|name| name.to_bytes()).collect(),
            None => self.tree.entries(dir.node).iter().map(|entry| entry.name).collect(),
        }
    }

    /// Returns the node of `name` in `dir`, or `None` if the filter excludes it.
    fn look(&self, dir: NodeId, name: &[u8], path: &[u8], ignored: &IgnoreRules) -> io::Result<Option<NodeId>> {
        let node = || self.tree.entries(dir).find(name).ok_or(io::Error::from_raw_os_error(ENOENT));
        if !self.filter.wants(path, ignored, &|| node().map(|node| self.is_dir(node)))? {
            return Ok(None);
        }
        let node = node()?;
        let listed_below = self.filter.only.as_ref().is_some_and(|list| list.names_in(path).is_some());
        match listed_below && !self.is_dir(node) {
            true => Err(io::ErrorKind::NotADirectory.into()),
            false => Ok(Some(node)),
        }
    }

    fn is_dir(&self, node: NodeId) -> bool {
        matches!(self.tree.node(node).kind, Kind::Directory(_))
    }
}

//! Ignore files within the tree.

use crate::{Kind, NodeId, Tree};
use std::ffi::{CStr, CString};
use std::io;
use std::sync::Arc;

use super::rules::{Rules, Verdict};

/// Maximum length in bytes of an ignore file.
pub const IGNORE_FILE_MAX_LEN: u64 = 1 << 20;

/// Reason for refusing an ignore file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IgnoreFileProblem {
    /// Another type of file.
    #[error("an ignore file must be a regular file")]
    NotRegular,
    /// More than [`IGNORE_FILE_MAX_LEN`] bytes.
    #[error("an ignore file must not be longer than 1 MiB")]
    TooLong,
}

impl From<IgnoreFileProblem> for io::Error {
    fn from(problem: IgnoreFileProblem) -> Self {
        io::Error::other(problem)
    }
}

/// Rules of one ignore file.
#[derive(Debug)]
struct Layer {
    /// Length of the path of its directory including the trailing slash; 0 at the root.
    base_len: usize,
    rules: Rules,
}

/// Rules of all ignore files from the root to a directory. A list instead of a chain of references,
/// since a tree may be deeper than the stack.
#[derive(Clone, Debug, Default)]
pub struct IgnoreRules(Arc<[Arc<Layer>]>);

impl IgnoreRules {
    /// Returns the rules with those of the ignore files `names` in the directory at `path`. `read`
    /// returns the text of a file, or `None` if there is no such file.
    ///
    /// # Errors
    /// Ignore files that cannot be read, are not regular files, or have an invalid rule. Without
    /// their rules the image might contain secrets.
    pub fn with_files(
        &self,
        names: &[CString],
        path: &[u8],
        read: &dyn Fn(&CStr) -> io::Result<Option<Vec<u8>>>,
    ) -> io::Result<Self> {
        let mut found = Vec::new();
        for name in names {
            let shown = name.to_string_lossy();
            let text = read(name).map_err(|error| io::Error::new(error.kind(), format!("{shown}: {error}")))?;
            if let Some(text) = text {
                let rules = Rules::parse(&text, &shown).map_err(io::Error::other)?;
                let base_len = if path.is_empty() { 0 } else { path.len() + 1 };
                found.push(Arc::new(Layer { base_len, rules }));
            }
        }
        if found.is_empty() {
            return Ok(self.clone());
        }
        Ok(Self(self.0.iter().cloned().chain(found).collect()))
    }

    /// Returns the verdict of [`Rules::verdict`] for the nearest file with a matching rule; `path`
    /// is relative to the root.
    pub(super) fn verdict(&self, path: &[u8], is_dir: &dyn Fn() -> io::Result<bool>) -> io::Result<Option<Verdict>> {
        for layer in self.0.iter().rev() {
            if let Some(verdict) = layer.rules.verdict(&path[layer.base_len..], is_dir)? {
                return Ok(Some(verdict));
            }
        }
        Ok(None)
    }
}

/// Reads the ignore file `name` in the directory `dir` of `tree`. Returns `None` if there is none.
pub(super) fn read_in(tree: &Tree, dir: NodeId, name: &CStr) -> io::Result<Option<Vec<u8>>> {
    let Some(node) = tree.entries(dir).find(name.to_bytes()) else { return Ok(None) };
    let Kind::File { len, .. } = tree.node(node).kind else { return Err(IgnoreFileProblem::NotRegular.into()) };
    if len > IGNORE_FILE_MAX_LEN {
        return Err(IgnoreFileProblem::TooLong.into());
    }
    let mut text = vec![0; len as usize];
    let mut content = tree.open(node).map_err(io::Error::other)?;
    content.read_exact_at(&mut text, 0).map_err(io::Error::other)?;
    Ok(Some(text))
}

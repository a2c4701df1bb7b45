//! Metadata of directories that only paths tell of.

use crate::Metadata;

/// Metadata of the root and of directories that paths imply, until they are inserted themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implied {
    /// The same for all.
    Same(Metadata),
    /// The root has these. Others belong to root, have the permissions 0755, and inherit the mtime of the directory
    /// that they are in when they are implied.
    Inherited(Metadata),
}

impl Implied {
    /// Metadata of the root.
    pub(super) fn root(self) -> Metadata {
        let (Implied::Same(meta) | Implied::Inherited(meta)) = self;
        meta
    }

    /// Metadata of a directory in one that has those of `parent`.
    pub(super) fn below(self, parent: Metadata) -> Metadata {
        match self {
            Implied::Same(meta) => meta,
            Implied::Inherited(_) => Metadata { permissions: 0o755, uid: 0, gid: 0, ..parent },
        }
    }
}

impl Default for Implied {
    /// All belong to root, have the permissions 0755, and are from the beginning of 1970.
    fn default() -> Self {
        Implied::Same(Metadata { permissions: 0o755, ..Metadata::default() })
    }
}

impl From<Metadata> for Implied {
    fn from(meta: Metadata) -> Self {
        Implied::Same(meta)
    }
}

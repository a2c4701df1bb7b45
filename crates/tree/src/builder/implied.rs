//! Metadata of directories that only paths imply.

use crate::Metadata;

/// Metadata of the root and of directories that paths imply, until they are inserted themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implied {
    /// The same for all.
    Same(Metadata),
    /// These for the root. Others belong to root, have the permissions 0755, and inherit the mtime of
    /// their directory at the time when they are implied.
    Inherited(Metadata),
}

impl Implied {
    /// Returns the metadata of the root.
    pub(super) fn root(self) -> Metadata {
        let (Implied::Same(meta) | Implied::Inherited(meta)) = self;
        meta
    }

    /// Returns the metadata of a directory in one that has the metadata `parent`.
    pub(super) fn below(self, parent: Metadata) -> Metadata {
        match self {
            Implied::Same(meta) => meta,
            Implied::Inherited(_) => Metadata { permissions: 0o755, uid: 0, gid: 0, ..parent },
        }
    }
}

impl Default for Implied {
    /// Returns the owner root, the permissions 0755, and the time 0 (the start of 1970).
    fn default() -> Self {
        Implied::Same(Metadata { permissions: 0o755, ..Metadata::default() })
    }
}

impl From<Metadata> for Implied {
    fn from(meta: Metadata) -> Self {
        Implied::Same(meta)
    }
}

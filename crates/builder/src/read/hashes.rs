//! Functions by which files are hashed while they are read.

use kiln_digest::contents::{ContentDigest, ContentHash};
use kiln_tree::{DigestOf, NodeId, Tree};

/// Functions by which a file is hashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hashes {
    /// That of the image.
    pub own: Option<ContentHash>,
    /// That of the digest which a source stores for the contents, if it is another one.
    pub stored: Option<ContentHash>,
}

impl Hashes {
    /// Returns the functions for contents with a stored digest, which is to be compared.
    pub(crate) fn comparing(own: Option<ContentHash>, stored: Option<ContentHash>) -> Self {
        Self { own, stored: stored.filter(|_| stored != own) }
    }

    /// Returns the functions for a file of `tree`. A digest that cannot be read is an error later.
    pub(crate) fn of_file(tree: &Tree, node: NodeId, own: Option<ContentHash>) -> Self {
        let stored = tree.stored_digest(node).ok().flatten().filter(|stored| stored.of == DigestOf::Contents);
        Self::comparing(own, stored.map(|stored| stored.digest.hash()))
    }

    /// Returns true if there are none.
    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Returns the digests of contents that are in memory.
    pub(crate) fn digests(self, text: &[u8]) -> Digests {
        self.own.into_iter().chain(self.stored).map(|hash| hash.digest(text)).collect()
    }
}

/// Digests of one file, of different functions.
pub(crate) type Digests = Vec<ContentDigest>;

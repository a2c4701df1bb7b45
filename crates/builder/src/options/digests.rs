//! Digests of contents, as a caller chooses them.

use kiln_tree::DigestName;

/// Choice of digests of contents: the SHA-256 of each file as an attribute, by which readers verify it. Contents that
/// are read from an image with such digests are compared with them in any case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ContentDigests {
    /// It has some if the base, or an image among the sources, has some.
    #[default]
    AsSource,
    /// It has none.
    Off,
    /// It has some, which are named so. Files are read once more, but for those whose digests an image stores already.
    Named(DigestName),
}

//! Digests of contents, as a caller chooses them.

/// Name of the attributes that are digests of contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DigestName {
    /// `erofs.fingerprint.v1`, beside each inode. Every kernel mounts the image, and hides the attribute. If the chosen kernel
    /// has long prefixes, or some are asked for, as [`DigestName::Prefix`].
    Usual,
    /// This name is a long prefix that the superblock announces, so that kernels can share what is equal. One that begins with
    /// `user.` and the like is shown. Needs Linux 6.4, beside packed files 6.18.
    Prefix(Vec<u8>),
}

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

//! Names of digests of contents.

/// Name of the attributes that are digests of contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DigestName {
    /// `erofs.fingerprint.v1`, beside each inode. Every kernel mounts the image, and hides the
    /// attribute. If the chosen kernel has long prefixes, or the options ask for some, the name is
    /// stored as a [`DigestName::Prefix`].
    Usual,
    /// This name, as a long prefix that the superblock announces, so that kernels can share equal
    /// contents. A name that begins with `user.` and the like is visible. Needs Linux 6.4; with packed
    /// files, 6.18.
    Prefix(Vec<u8>),
}

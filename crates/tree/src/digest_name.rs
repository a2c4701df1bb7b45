//! Names of digests of contents.

/// Name of the attributes that are digests of contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DigestName {
    /// `erofs.fingerprint.v1`, beside each inode. Every kernel mounts the image, and hides the
    /// attribute. If the chosen kernel has long prefixes, or some are asked for, as
    /// [`DigestName::Prefix`].
    Usual,
    /// This name is a long prefix that the superblock announces, so that kernels can share what is
    /// equal. One that begins with `user.` and the like is shown. Needs Linux 6.4, beside packed
    /// files 6.18.
    Prefix(Vec<u8>),
}

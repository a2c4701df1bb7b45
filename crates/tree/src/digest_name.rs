//! Names and functions of digests of contents.

use kiln_digest::contents::ContentHash;

/// Name of the attributes that are digests of contents. A value is the name of the function, a colon, and the digest:
/// `sha256:`, `fsverity-sha256-12:` or `fsverity-sha512-12:`, and 32 or 64 bytes.
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

/// Style of the digests that an image stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DigestStyle {
    /// Name of the attributes.
    pub name: DigestName,
    /// Function of the digests.
    pub hash: ContentHash,
}

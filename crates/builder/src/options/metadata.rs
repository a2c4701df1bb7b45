//! Options about inodes, directories and extended attributes.

use kiln_codec::Spec;
use kiln_digest::contents::ContentHash;
use kiln_tree::DigestName;

/// Digests of contents: the SHA-256 or fs-verity digest of each file as an attribute, by which readers verify it. Contents that come from
/// an image with such digests are compared with them in any case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ContentDigests {
    /// Stored if the base, or an image among the sources, has digests.
    #[default]
    AsSource,
    /// Not stored.
    Off,
    /// Stored under this name. Files are read once more, except those whose digests an image stores already.
    Named(DigestName),
}

/// Inodes, directories and extended attributes of an image.
#[derive(Clone, Debug)]
pub struct MetadataOptions {
    /// True to use the compact form for inodes that fit it; false to give every inode the extended form.
    pub compact_inodes: bool,
    /// True to give compact inodes mtimes of their own, so that more inodes are compact. Needs Linux 6.15; for older
    /// kernels all compact inodes have one mtime.
    pub own_mtimes: bool,
    /// True to leave out the entry `.` of directories. Needs Linux 6.15.
    pub omit_dot: bool,
    /// Number of owners from which an extended attribute is stored once for all of them, at least 1.
    pub xattr_share_min: u64,
    /// Prefixes of names of extended attributes, for example `user.long.`, that are stored once: at most 128, of up to
    /// 254 bytes behind `user.`, `trusted.` or `security.`. Needs Linux 6.4.
    pub xattr_prefixes: Vec<Vec<u8>>,
    /// True to set the flag that prefixes lie in the image itself (`PLAIN_XATTR_PFX`) also where every reader looks for
    /// them there.
    pub plain_xattr_prefixes: bool,
    /// Digests of contents.
    pub content_digests: ContentDigests,
    /// Function of the digests. `None`: that of the base or of an image among the sources, or else SHA-256.
    pub digest_hash: Option<ContentHash>,
    /// Least room in bytes for attributes beside the root inode, at most 262148, so that some can be added to an image
    /// later.
    pub root_xattr_len: usize,
    /// Compression of inodes, and of the data beside them, in the metabox; `None` does not compress them. Needs Linux
    /// 6.17.
    pub metabox: Option<Spec>,
}

impl Default for MetadataOptions {
    fn default() -> Self {
        Self {
            compact_inodes: true,
            own_mtimes: false,
            omit_dot: false,
            xattr_share_min: 2,
            xattr_prefixes: Vec::new(),
            plain_xattr_prefixes: false,
            content_digests: ContentDigests::AsSource,
            digest_hash: None,
            root_xattr_len: 0,
            metabox: None,
        }
    }
}

//! Inodes and their attributes.

use super::Image;
use crate::error::ReadError;
use crate::error::object::ComposefsObject;
use crate::metadata::inode::Inode;
use crate::metadata::xattr::Xattr;
use crate::tree::digest::{DigestCheck, DigestVerifier};
use kiln_digest::contents::ContentDigest;
use kiln_format::Nid;
use kiln_parallel::Threads;

impl Image {
    /// Reads the inode in slot `nid`.
    ///
    /// # Errors
    /// A slot outside the metadata, an inode that the format does not allow, a failing source.
    pub fn inode(&self, nid: Nid) -> Result<Inode, ReadError> {
        self.reader().inode(nid)
    }

    /// Reads the inodes in all of these slots on `threads`. Returns them in the order of `nids`.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// use kiln_read::Threads;
    ///
    /// let nids: Vec<_> = image.open_dir("/big")?.map(|entry| entry.map(|entry| entry.nid)).collect::<Result<_, _>>()?;
    /// for inode in image.inodes(&nids, Threads::PROCESSORS) {
    ///     println!("{} bytes", inode?.size());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn inodes(&self, nids: &[Nid], threads: Threads) -> Vec<Result<Inode, ReadError>> {
        self.reader().inodes(nids, threads)
    }

    /// Returns the inode number that Linux shows for `nid`.
    pub fn st_ino(&self, nid: Nid) -> u64 {
        self.reader().st_ino(nid)
    }

    /// Returns all extended attributes in stored order, without those that Linux hides (unknown
    /// prefixes).
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/xattrs.erofs".as_ref(), &[], &Default::default())?;
    /// let root = image.inode(image.root_nid())?;
    /// for entry in image.walk(&root, b"/") {
    ///     let entry = entry?;
    ///     for xattr in image.list_xattrs(&entry.inode)? {
    ///         println!("{}: {}", entry.path.escape_ascii(), xattr.name.escape_ascii());
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// An xattr body that the format does not allow, a failing source.
    pub fn list_xattrs(&self, inode: &Inode) -> Result<Vec<Xattr>, ReadError> {
        self.reader().list_xattrs(inode)
    }

    /// Returns the long prefixes of attribute names, indexed by their numbers. A prefix of hidden
    /// attributes is shown without its short prefix.
    pub fn xattr_prefixes(&self) -> Vec<Vec<u8>> {
        self.reader().xattr_prefixes()
    }

    /// Returns the value of one attribute by its full name.
    ///
    /// # Errors
    /// As [`Image::list_xattrs`].
    pub fn get_xattr(&self, inode: &Inode, name: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        self.reader().get_xattr(inode, name)
    }

    /// Returns true if the image has the header of composefs.
    pub fn is_composefs(&self) -> bool {
        self.core.volume.is_composefs
    }

    /// Returns the composefs object that has the contents of a file and is not at hand. Returns
    /// `None` for a file whose contents can be read: they are in this image, or in its
    /// [objects](crate::ImageOptions::objects); and for all files of images that composefs did not
    /// make.
    ///
    /// # Errors
    /// As [`Image::list_xattrs`].
    pub fn composefs_object(&self, inode: &Inode) -> Result<Option<ComposefsObject>, ReadError> {
        self.reader().composefs_object(inode)
    }

    /// Returns true if the superblock announces digests of contents. It does not announce digests
    /// that are stored under their full name.
    pub fn has_content_digests(&self) -> bool {
        self.reader().has_content_digests()
    }

    /// Returns the digest that is stored for the contents of an inode, or `None` if there is none,
    /// or one of an unknown function.
    ///
    /// # Errors
    /// As [`Image::list_xattrs`].
    pub fn content_digest(&self, inode: &Inode) -> Result<Option<ContentDigest>, ReadError> {
        self.reader().content_digest(inode)
    }

    /// Returns a verifier that compares the contents of an inode with their stored digest while you
    /// read them. Returns `None` if there is no digest, or the contents are too long for so small
    /// an image.
    ///
    /// # Errors
    /// As [`Image::content_digest`].
    pub fn digest_verifier(&self, inode: &Inode) -> Result<Option<DigestVerifier>, ReadError> {
        self.reader().digest_verifier(inode)
    }

    /// Reads the contents of an inode and compares them with their stored digest.
    ///
    /// # Errors
    /// Contents or attributes that cannot be read.
    pub fn check_digest(&self, inode: &Inode) -> Result<DigestCheck, ReadError> {
        self.reader().check_digest(inode)
    }
}

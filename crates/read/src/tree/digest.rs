//! Digests of contents that are stored beside inodes: SHA-256 or fs-verity, in a hidden attribute.
//! Its name is a long prefix that the superblock announces, or is stored in full, for kernels that
//! do not have these.

use crate::error::{Defect, ReadError};
use crate::image::reader::Reader;
use crate::metadata::inode::Inode;
use kiln_digest::contents::{ContentDigest, ContentHasher};
use kiln_format::inode::FileType;
use kiln_format::xattr::{FINGERPRINT_NAME, HIDDEN, LONG_PREFIX, RawXattrEntry};
use kiln_format::{Compat, Nid};
use std::ops::ControlFlow;
use zerocopy::FromBytes;

/// Bytes hashed at a time.
const STEP: usize = 1 << 20;
/// Contents over a GiB and this many times as long as the image are not hashed: only holes give so
/// much, and hashing them could take years.
const RATIO_MAX: u64 = 64;

/// Result of comparing contents with their stored digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestCheck {
    /// There is none.
    Absent,
    /// The contents have it.
    Equal,
    /// The contents have another one.
    Different,
    /// The contents are too long for so small an image.
    TooLong,
}

impl<'a> Reader<'a> {
    /// Implements `Image::has_content_digests`.
    pub(crate) fn has_content_digests(self) -> bool {
        self.superblock().compat.contains(Compat::ISHARE_XATTRS)
    }

    /// Implements `Image::content_digest`.
    pub(crate) fn content_digest(self, inode: &Inode) -> Result<Option<ContentDigest>, ReadError> {
        if inode.meta.xattr_icount == 0 {
            return Ok(None);
        }
        let prefix = self.has_content_digests().then_some(LONG_PREFIX | self.superblock().ishare_xattr_prefix_id);
        let mut digest = None;
        let visited = self.visit_entries(inode, &mut |entry| {
            let (raw, rest) = RawXattrEntry::ref_from_prefix(entry).expect("checked");
            let (name, rest) = rest.split_at(raw.e_name_len.into());
            let is_prefix = prefix == Some(raw.e_name_index) && name.is_empty();
            if !is_prefix && (raw.e_name_index, name) != (HIDDEN, FINGERPRINT_NAME) {
                return ControlFlow::Continue(());
            }
            let value = &rest[..raw.e_value_size.get().into()];
            digest = ContentDigest::parse(value);
            ControlFlow::Break(())
        });
        visited.map_err(|error| error.at_nid(inode.nid)).map(|()| digest)
    }

    /// Implements `Image::digest_verifier`.
    pub(crate) fn digest_verifier(self, inode: &Inode) -> Result<Option<DigestVerifier>, ReadError> {
        self.verifier(inode).map(Result::ok)
    }

    /// Implements `Image::check_digest`.
    pub(crate) fn check_digest(self, inode: &Inode) -> Result<DigestCheck, ReadError> {
        let mut verifier = match self.verifier(inode)? {
            Ok(verifier) => verifier,
            Err(unverified) => return Ok(unverified),
        };
        let size = inode.meta.size;
        let mut buf = vec![0; STEP.min(size as usize)];
        let mut off = 0;
        while off < size {
            let len = self.read_at(inode, &mut buf, off)?;
            verifier.update(&buf[..len]);
            off += len as u64;
        }
        Ok(if verifier.finish().is_ok() { DigestCheck::Equal } else { DigestCheck::Different })
    }
}

impl<'a> Reader<'a> {
    fn verifier(self, inode: &Inode) -> Result<Result<DigestVerifier, DigestCheck>, ReadError> {
        if inode.meta.file_type != FileType::Regular {
            return Ok(Err(DigestCheck::Absent));
        }
        let Some(stored) = self.content_digest(inode)? else { return Ok(Err(DigestCheck::Absent)) };
        let size = inode.meta.size;
        if size > 1 << 30 && size / RATIO_MAX > self.volume.devices.primary_len() {
            return Ok(Err(DigestCheck::TooLong));
        }
        Ok(Ok(DigestVerifier { hash: ContentHasher::new(stored.hash()), stored, nid: inode.nid }))
    }
}

/// Compares contents with their stored digest while they are read, front to back, see
/// [`Image::digest_verifier`].
#[derive(Clone, Debug)]
pub struct DigestVerifier {
    hash: ContentHasher,
    stored: ContentDigest,
    nid: Nid,
}

impl DigestVerifier {
    /// Hashes the bytes that follow.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
    }

    /// Hashes `len` zeros that follow: a hole.
    pub fn update_zeros(&mut self, len: u64) {
        self.hash.update_zeros(len);
    }

    /// Ends the comparison, after all contents were hashed.
    ///
    /// # Errors
    /// [`ReadError::Corrupt`] if the contents have another digest.
    pub fn finish(self) -> Result<(), ReadError> {
        let (stored, computed) = (self.stored, self.hash.finish());
        if computed == stored {
            return Ok(());
        }
        let defect = Box::new(Defect::Digest { stored, computed });
        Err(ReadError::Corrupt { path: None, nid: Some(self.nid), file_off: None, defect })
    }
}

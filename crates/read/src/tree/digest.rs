//! Digests of contents that are stored beside inodes: SHA-256, in a hidden attribute. Its name is a long prefix that the superblock
//! announces, or is stored in full, for kernels that do not have these.

use crate::error::{Defect, ReadError};
use crate::image::Image;
use crate::metadata::inode::Inode;
use kiln_format::Compat;
use kiln_format::inode::FileType;
use kiln_format::xattr::{FINGERPRINT_NAME, HIDDEN, LONG_PREFIX, RawXattrEntry};
use sha2::{Digest, Sha256};
use std::ops::ControlFlow;
use zerocopy::FromBytes;

/// What a value starts with.
const ALGORITHM: &[u8] = b"sha256:";
/// Bytes hashed at a time.
const STEP: usize = 1 << 20;
/// Contents over a GiB and this many times as long as the image are not hashed: only holes give so much, and hashing them could
/// take years.
const RATIO_MAX: u64 = 64;

/// What a stored digest says of the contents.
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

impl Image {
    /// Whether the superblock announces digests of contents. Those with their full name it does not.
    pub fn has_content_digests(&self) -> bool {
        self.superblock().compat.contains(Compat::ISHARE_XATTRS)
    }

    /// The SHA-256 that is stored for the contents of an inode.
    ///
    /// # Errors
    /// As [`Image::list_xattrs`]. A value of another algorithm is no error, and no digest.
    pub fn content_digest(&self, inode: &Inode) -> Result<Option<[u8; 32]>, ReadError> {
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
            digest = value.strip_prefix(ALGORITHM).and_then(|digest| digest.try_into().ok());
            ControlFlow::Break(())
        });
        visited.map_err(|error| error.at_nid(inode.nid)).map(|()| digest)
    }

    /// Compare all contents of an inode, which were read, with their stored digest, if there is one.
    ///
    /// # Errors
    /// Contents that have another digest; attributes that cannot be read.
    pub fn verify_contents(&self, inode: &Inode, contents: &[u8]) -> Result<(), ReadError> {
        if inode.meta.file_type != FileType::Regular {
            return Ok(());
        }
        match self.content_digest(inode)? {
            Some(stored) if Sha256::digest(contents)[..] != stored => {
                let defect = Box::new(Defect::Digest);
                Err(ReadError::Corrupt { path: None, nid: Some(inode.nid), defect })
            }
            _ => Ok(()),
        }
    }

    /// Read the contents of an inode and compare them with their stored digest.
    ///
    /// # Errors
    /// Contents or attributes that cannot be read.
    pub fn check_digest(&self, inode: &Inode) -> Result<DigestCheck, ReadError> {
        let size = inode.meta.size;
        if inode.meta.file_type != FileType::Regular {
            return Ok(DigestCheck::Absent);
        }
        let Some(stored) = self.content_digest(inode)? else { return Ok(DigestCheck::Absent) };
        if size > 1 << 30 && size / RATIO_MAX > self.source_len() {
            return Ok(DigestCheck::TooLong);
        }
        let mut hash = Sha256::new();
        let mut buf = vec![0; STEP.min(size as usize)];
        let mut off = 0;
        while off < size {
            let len = self.read_at(inode, &mut buf, off)?;
            hash.update(&buf[..len]);
            off += len as u64;
        }
        Ok(if hash.finalize()[..] == stored { DigestCheck::Equal } else { DigestCheck::Different })
    }
}

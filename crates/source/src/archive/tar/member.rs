//! A member of an archive: its header, and what extended headers say of it.

use kiln_format::acl::{ACCESS, DEFAULT};
use kiln_format::inode::Rdev;
use kiln_tree::{Kind, Metadata, Node};

use super::acl::{Acl, Known};
use super::header::{DEV_MAJOR, DEV_MINOR, Dialect, GID, Header, MODE, MTIME, SIZE, UID};
use super::pax::Extended;

/// A member.
pub(super) struct Member<'h> {
    /// Where its first header begins.
    pub(super) offset: u64,
    pub(super) header: Header<'h>,
    pub(super) extended: Extended,
    pub(super) path: Vec<u8>,
    /// Of a link.
    pub(super) target: Vec<u8>,
}

/// Bytes of the archive, and what is wrong there.
pub(super) type Problems = Vec<(u64, String)>;

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    File,
    /// Sparse, with the map in the header.
    OldSparseFile,
    HardLink,
    Symlink,
    CharDevice,
    BlockDevice,
    Directory,
    Fifo,
    /// Nothing of a tree.
    Nothing,
    /// Nothing that can be read, and why.
    Refused(&'static str),
}

impl Member<'_> {
    /// What it is.
    pub(super) fn what(&self) -> What {
        match self.header.type_flag() {
            // So v7 writes directories.
            0 | b'0' if self.path.ends_with(b"/") && self.size() == Ok(0) => What::Directory,
            // Nobody has contiguous files any more.
            0 | b'0' | b'7' => What::File,
            b'1' => What::HardLink,
            b'2' => What::Symlink,
            b'3' => What::CharDevice,
            b'4' => What::BlockDevice,
            // `D` of GNU tar lists the names of a directory for incremental backups, as data.
            b'5' | b'D' => What::Directory,
            b'6' => What::Fifo,
            b'S' if self.header.dialect == Dialect::Gnu => What::OldSparseFile,
            b'S' => What::Refused("a sparse file of star, whose form is not read"),
            // The label of the archive.
            b'V' => What::Nothing,
            b'M' => {
                What::Refused("the rest of a file that another volume begins: join the volumes first, as with tar -M")
            }
            b'N' => What::Refused("long names in the form of GNU tar 1.10, which is not read"),
            b'A' => What::Refused("an ACL of Solaris, which is not read"),
            _ => What::Refused("not a type that is known"),
        }
    }

    /// Bytes that follow its header. `what` is what it is: links, devices and directories have no data, though some programs write their size.
    ///
    /// # Errors
    /// No size.
    pub(super) fn stored_len(&self, what: What) -> Result<u64, String> {
        match what {
            What::HardLink | What::Symlink | What::CharDevice | What::BlockDevice | What::Fifo => Ok(0),
            What::Directory if self.header.type_flag() != b'D' => Ok(0),
            _ => self.size(),
        }
    }

    /// What an extended header says counts, always.
    fn size(&self) -> Result<u64, String> {
        match self.extended.size {
            Some(size) if i64::try_from(size).is_err() => Err(format!("size = {size}: out of range")),
            Some(size) => Ok(size),
            None => self.header.number_as(SIZE),
        }
    }

    /// The numbers of a device.
    ///
    /// # Errors
    /// No numbers.
    pub(super) fn rdev(&self) -> Result<Rdev, String> {
        let number = |said: Option<u32>, field| said.map_or_else(|| self.header.number_as(field), Ok);
        Ok(Rdev {
            major: number(self.extended.dev_major, DEV_MAJOR)?,
            minor: number(self.extended.dev_minor, DEV_MINOR)?,
        })
    }

    /// It as a node of this kind, and what is wrong with single attributes, which the node has not: byte of the archive, and why.
    ///
    /// # Errors
    /// Owners or times that no file can have.
    pub(super) fn into_node(self, kind: Kind) -> Result<(Node, Problems), String> {
        let (header, mut extended) = (self.header, self.extended);
        let mut meta = Metadata {
            permissions: (header.number(MODE)? & 0o7777) as u16,
            uid: extended.uid.map_or_else(|| header.number_as(UID), Ok)?,
            gid: extended.gid.map_or_else(|| header.number_as(GID), Ok)?,
            mtime: 0,
            mtime_nsec: 0,
        };
        (meta.mtime, meta.mtime_nsec) = match extended.mtime {
            Some(mtime) => mtime,
            None => (header.number(MTIME)?, 0),
        };
        let (user_name, group_name) = (extended.user_name.take(), extended.group_name.take());
        let known = Known {
            user: (user_name.as_deref().unwrap_or(header.user_name()), meta.uid),
            group: (group_name.as_deref().unwrap_or(header.group_name()), meta.gid),
        };
        let mut problems = extended.take_problems();
        let mut parse = |text: Vec<u8>| match Acl::parse(&text, &known) {
            Ok(acl) => Some(acl),
            Err(reason) => {
                problems.push((self.offset, reason));
                None
            }
        };
        let (access, default) = (extended.acl_access.take(), extended.acl_default.take());
        if let Some(acl) = access.and_then(&mut parse) {
            meta.permissions = meta.permissions & 0o7000 | acl.mode();
            if !acl.is_mode() {
                extended.add_acl(acl.to_xattr(ACCESS));
            }
        }
        if let Some(acl) = default.and_then(&mut parse) {
            extended.add_acl(acl.to_xattr(DEFAULT));
        }
        Ok((Node { meta, xattrs: extended.xattrs().into(), kind }, problems))
    }
}

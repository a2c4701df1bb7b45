//! Member of an archive: its header, and the fields of its extended headers.

use kiln_format::acl::{ACCESS, DEFAULT};
use kiln_format::inode::Rdev;
use kiln_tree::{Kind, Metadata, Node};

use super::acl::{Acl, Known};
use super::header::{DEV_MAJOR, DEV_MINOR, Dialect, GID, Header, MODE, MTIME, SIZE, UID};
use super::pax::Extended;

/// A member of an archive.
pub(super) struct Member<'h> {
    /// Offset of its first header in bytes.
    pub(super) offset: u64,
    pub(super) header: Header<'h>,
    pub(super) extended: Extended,
    pub(super) path: Vec<u8>,
    /// Target, if the member is a link.
    pub(super) target: Vec<u8>,
}

/// Offsets in the archive in bytes, each with a description of the problem there.
pub(super) type Problems = Vec<(u64, String)>;

/// Kind of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberKind {
    File,
    /// Sparse file with its map in the header (GNU tar's old format).
    OldSparseFile,
    HardLink,
    Symlink,
    CharDevice,
    BlockDevice,
    Directory,
    Fifo,
    /// Not part of a tree.
    Nothing,
    /// Not supported, with the reason.
    Refused(&'static str),
}

impl Member<'_> {
    /// Returns the kind of the member.
    pub(super) fn what(&self) -> MemberKind {
        match self.header.type_flag() {
            // v7 writes directories this way.
            0 | b'0' if self.path.ends_with(b"/") && self.size() == Ok(0) => MemberKind::Directory,
            // Contiguous files are ordinary files today.
            0 | b'0' | b'7' => MemberKind::File,
            b'1' => MemberKind::HardLink,
            b'2' => MemberKind::Symlink,
            b'3' => MemberKind::CharDevice,
            b'4' => MemberKind::BlockDevice,
            // GNU tar's `D` has the names of the directory's entries as data, for incremental
            // backups.
            b'5' | b'D' => MemberKind::Directory,
            b'6' => MemberKind::Fifo,
            b'S' if self.header.dialect == Dialect::Gnu => MemberKind::OldSparseFile,
            b'S' => MemberKind::Refused("sparse files in the format of star are not supported"),
            // Label of the archive.
            b'V' => MemberKind::Nothing,
            b'M' => MemberKind::Refused(
                "the rest of a file that begins in another volume; join the volumes first, for example with tar -M",
            ),
            b'N' => MemberKind::Refused("long names in the format of GNU tar 1.10 are not supported"),
            b'A' => MemberKind::Refused("ACLs of Solaris are not supported"),
            _ => MemberKind::Refused("unknown type"),
        }
    }

    /// Returns the length in bytes of the data after the header. Links, devices and directories
    /// have no data, although some programs write their size.
    ///
    /// # Errors
    /// A size that is not a number.
    pub(super) fn stored_len(&self, what: MemberKind) -> Result<u64, String> {
        match what {
            MemberKind::HardLink
            | MemberKind::Symlink
            | MemberKind::CharDevice
            | MemberKind::BlockDevice
            | MemberKind::Fifo => Ok(0),
            MemberKind::Directory if self.header.type_flag() != b'D' => Ok(0),
            _ => self.size(),
        }
    }

    /// Returns the size. That of an extended header takes precedence.
    fn size(&self) -> Result<u64, String> {
        match self.extended.size {
            Some(size) if i64::try_from(size).is_err() => Err(format!("size = {size}: out of range")),
            Some(size) => Ok(size),
            None => self.header.number_as(SIZE),
        }
    }

    /// Returns the device number.
    ///
    /// # Errors
    /// Device numbers that are not numbers or out of range.
    pub(super) fn rdev(&self) -> Result<Rdev, String> {
        let number = |said: Option<u32>, field| said.map_or_else(|| self.header.number_as(field), Ok);
        Ok(Rdev {
            major: number(self.extended.dev_major, DEV_MAJOR)?,
            minor: number(self.extended.dev_minor, DEV_MINOR)?,
        })
    }

    /// Converts the member to a node of this kind. Invalid attributes are left out of the node and
    /// returned as problems.
    ///
    /// # Errors
    /// An owner or a time that is invalid.
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

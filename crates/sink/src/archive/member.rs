//! Members of archives, and the capabilities of formats.

use super::report::Loss;
use kiln_read::{ComposefsObject, FileType, Inode, Xattr};
use std::ops::Range;
use std::sync::Arc;

/// A member of an archive.
pub(super) struct Member {
    /// Path in the image; empty for the root.
    pub(super) path: Vec<u8>,
    pub(super) inode: Inode,
    pub(super) xattrs: Vec<Xattr>,
    pub(super) body: Body,
    /// Number of names that the inode has in the archive; only set with [`Links::DataWithLast`].
    pub(super) names_count: u32,
    /// True if the inode has another name before this one, and the format cannot express hard
    /// links.
    pub(super) is_copy: bool,
}

/// Contents that follow a member's header.
pub(super) enum Body {
    /// No contents.
    Nothing,
    /// The target of a symbolic link.
    Target(Vec<u8>),
    /// Ranges of the file; the gaps between them are zeros.
    Data(Vec<Range<u64>>),
    /// A further name of an earlier member.
    LinkTo(Arc<[u8]>),
    /// The format cannot store this member.
    LeftOut(Loss),
    /// The contents are not in the image.
    Skipped(ComposefsObject),
}

impl Member {
    pub(super) fn file_type(&self) -> FileType {
        self.inode.file_type()
    }

    /// Returns the number of bytes of contents that follow in windows.
    pub(super) fn data_len(&self) -> u64 {
        match &self.body {
            Body::Data(ranges) => ranges.iter().map(|range| range.end - range.start).sum(),
            _ => 0,
        }
    }

    /// Returns the target of a symbolic link, or an empty slice.
    pub(super) fn target(&self) -> &[u8] {
        match &self.body {
            Body::Target(target) => target,
            _ => &[],
        }
    }

    /// Returns the approximate memory of the member in bytes.
    pub(super) fn memory_len(&self) -> usize {
        let xattrs: usize = self.xattrs.iter().map(|xattr| xattr.name.len() + xattr.value.len()).sum();
        let ranges = match &self.body {
            Body::Data(ranges) => size_of_val(&ranges[..]),
            _ => 0,
        };
        size_of::<Self>() + self.path.len() + self.target().len() + xattrs + ranges
    }
}

/// Representation of hard links in a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    /// Further names refer to the first, which has the data.
    ToFirst,
    /// All names share an inode number; the last name of a regular file has the data. Symbolic
    /// links are separate members.
    DataWithLast,
    /// All names are separate members.
    Copied,
}

/// Capabilities and requirements of a format.
pub(super) struct Rules {
    /// True if holes are left out of the data.
    pub(super) sparse: bool,
    pub(super) links: Links,
    /// True if contents are read. The lengths are known in either case.
    pub(super) contents: bool,
    /// Maximum length of a file in bytes.
    pub(super) file_max_len: u64,
    /// Returns the loss caused by a file of this type if the format cannot store it.
    pub(super) left_out: fn(FileType) -> Option<Loss>,
}

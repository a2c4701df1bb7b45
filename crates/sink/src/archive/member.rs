//! What an archive holds, and what a format asks of it.

use super::report::Loss;
use kiln_read::{ComposefsObject, FileType, Inode, Xattr};
use std::ops::Range;
use std::sync::Arc;

/// An entry of an archive.
pub(super) struct Member {
    /// Path in the image; the root's is empty.
    pub(super) path: Vec<u8>,
    pub(super) inode: Inode,
    pub(super) xattrs: Vec<Xattr>,
    pub(super) body: Body,
    /// How many names the archive has for the inode: known with [`Links::DataWithLast`].
    pub(super) names_count: u32,
    /// The inode has another name before this one, and the format cannot say that they are one.
    pub(super) is_copy: bool,
}

/// What follows a member's header.
pub(super) enum Body {
    /// Nothing.
    Nothing,
    /// The target of a symbolic link.
    Target(Vec<u8>),
    /// These ranges of the file; what lies between them is zeros.
    Data(Vec<Range<u64>>),
    /// The member is another name of one before.
    LinkTo(Arc<[u8]>),
    /// The format has no such members.
    LeftOut(Loss),
    /// The contents are not in the image.
    Skipped(ComposefsObject),
}

impl Member {
    pub(super) fn file_type(&self) -> FileType {
        self.inode.file_type()
    }

    /// Bytes of contents that follow in windows.
    pub(super) fn data_len(&self) -> u64 {
        match &self.body {
            Body::Data(ranges) => ranges.iter().map(|range| range.end - range.start).sum(),
            _ => 0,
        }
    }

    /// The target of a symbolic link, else nothing.
    pub(super) fn target(&self) -> &[u8] {
        match &self.body {
            Body::Target(target) => target,
            _ => &[],
        }
    }

    /// Bytes of memory, about.
    pub(super) fn memory_len(&self) -> usize {
        let xattrs: usize = self.xattrs.iter().map(|xattr| xattr.name.len() + xattr.value.len()).sum();
        let ranges = match &self.body {
            Body::Data(ranges) => size_of_val(&ranges[..]),
            _ => 0,
        };
        size_of::<Self>() + self.path.len() + self.target().len() + xattrs + ranges
    }
}

/// What a format does with further names of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    /// They refer to the first name, which has the data.
    ToFirst,
    /// They have a number in common; of a regular file, the last name has the data. Symbolic links are members of their own.
    DataWithLast,
    /// They are members of their own.
    Copied,
}

/// What a format asks for.
pub(super) struct Rules {
    /// Whether holes are left out of the data.
    pub(super) sparse: bool,
    pub(super) links: Links,
    /// Whether contents are to be read. Their length is told anyway.
    pub(super) contents: bool,
    /// The longest file.
    pub(super) file_max_len: u64,
    /// What is lost with files of a type that there are none of.
    pub(super) left_out: fn(FileType) -> Option<Loss>,
}

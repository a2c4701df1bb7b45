//! Options for reading archives.

use kiln_tree::Implied;

/// Options for making a tree from an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TarOptions {
    /// Metadata of the root and of directories without a member of their own.
    pub implied: Implied,
    /// Location of the members' data.
    pub data: TarData,
    /// Treatment of `..` in the path of a member and in the target of a hard link.
    pub dot_dot: DotDot,
    /// True to read on after an end mark, for archives concatenated with `cat a.tar b.tar`. If
    /// false, the archive ends at its mark, as for other programs, and a note reports the data
    /// after it.
    pub concatenated: bool,
}

/// Treatment of `..` in the path of a member and in the target of a hard link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DotDot {
    /// Refuse the member, as GNU tar does.
    #[default]
    Refused,
    /// Go up one level, as containerd does: `a/../b` is `b`, even if `a` is not a directory. A path
    /// that leads out of the root is refused.
    Up,
}

/// Location of the members' data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TarData {
    /// The archive; images copy the data.
    #[default]
    Stored,
    /// The archive, as a device to which images refer. A file whose data are not whole records of
    /// the archive, such as some sparse files, is stored in the image.
    Placed,
    /// None: the archive has headers only. Files have the size of their headers and consist of one
    /// hole.
    Omitted,
}

//! Options for reading archives.

use kiln_tree::Implied;

/// Options for making a tree from an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TarOptions {
    /// Metadata of the root and of directories that are no members.
    pub implied: Implied,
    /// Place of the data of members.
    pub data: TarData,
    /// Meaning of `..` in the path of a member, or in the target of a hard link.
    pub dot_dot: DotDot,
    /// Read on behind an end mark, for archives one behind the other (`cat a.tar b.tar`). Else an archive ends at its mark, as for
    /// other programs: what lies behind it is told.
    pub concatenated: bool,
}

/// Meaning of `..` in the path of a member, or in the target of a hard link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DotDot {
    /// Refused, as by GNU tar.
    #[default]
    Refused,
    /// One step up, as for containerd: `a/../b` is `b`, whatever `a` is. A path that leads out of the root is refused.
    Up,
}

/// Place of the data of members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TarData {
    /// In the archive, from which images get them.
    #[default]
    Stored,
    /// In the archive, to which images refer as to a device. A file that does not lie there in whole records, as some
    /// sparse files, is stored in the image.
    Placed,
    /// Nowhere: one header follows the other. Files are as long as their headers say, and all hole.
    Omitted,
}

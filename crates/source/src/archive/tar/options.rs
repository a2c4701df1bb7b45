//! How archives are read.

use kiln_builder::tree::Implied;

/// How an archive becomes a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TarOptions {
    /// Metadata of the root and of directories that are no members.
    pub implied: Implied,
    /// Where the data of members are.
    pub data: TarData,
    /// Read on behind an end mark, for archives one behind the other (`cat a.tar b.tar`). Else an archive ends at its mark, as for other programs:
    /// what lies behind it is told.
    pub concatenated: bool,
}

/// Where the data of members are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TarData {
    /// In the archive, from which images get them.
    #[default]
    Stored,
    /// In the archive, to which images refer as to a device. A file that does not lie there in whole records, as some sparse files, is stored
    /// in the image.
    Placed,
    /// Nowhere: one header follows the other. Files are as long as their headers say, and all hole.
    Omitted,
}

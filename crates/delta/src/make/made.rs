//! How a patch is made, and what became of the new image.

use kiln_output::Spool;
use std::path::PathBuf;

/// How a patch is made.
#[derive(Clone, Debug)]
pub struct MakeOptions {
    /// Carry encoded bytes only: the receiver then needs no encoder, and the patch is larger.
    pub portable: bool,
    /// Where the patch's body waits for its header, in a file without a name.
    pub spool_dir: PathBuf,
    /// CPU time that encoders may take which do not give the new image's bytes again, in picoseconds by a model ([`kiln_codec::Spec::cost`]): as
    /// much as those take that do, and this. Then what no known encoder gives is carried encoded.
    pub search_cost_max: u64,
}

/// Six seconds: LZMA at its default level, which is among the slowest, encodes 24 MB in them.
const SEARCH_COST_MAX: u64 = 6_000_000_000_000;

impl Default for MakeOptions {
    fn default() -> Self {
        Self { portable: false, spool_dir: Spool::default_dir(), search_cost_max: SEARCH_COST_MAX }
    }
}

/// What a patch was made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Length of the patch in bytes.
    pub patch_len: u64,
    /// Length of the old image in bytes.
    pub old_len: u64,
    /// Length of the new image in bytes.
    pub new_len: u64,
    /// Bytes of the new image that the old one has as they are stored.
    pub copied: u64,
    /// Bytes of the new image that the receiver encodes.
    pub encoded: u64,
    /// Encoded bytes of the new image that the patch carries, as encoding did not give them.
    pub carried: u64,
    /// Bytes of text that nothing of the old image resembles.
    pub literal: u64,
    /// CPU time that encoders have taken which did not give the new image's bytes again, in picoseconds by a model.
    pub search_cost: u64,
    /// Text of what is carried encoded, as far as it was compared with the old image's, in bytes.
    pub compared: u64,
    /// Of these, bytes that a build over the old image would have kept.
    pub known: u64,
}

impl Made {
    /// Tells if a new image packed with the old one as its base would make the patch far shorter: what is carried makes
    /// up much of the image, though most of its text is that of the old one.
    pub fn base_helps(&self) -> bool {
        self.carried > self.new_len / 8 && self.patch_len > self.new_len / 8 && self.known > self.compared / 2
    }
}

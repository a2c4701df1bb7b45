//! Options and report of making a patch.

use kiln_output::Spool;
use std::path::PathBuf;

use crate::format::header::NewTree;

/// Options of making a patch.
#[derive(Clone, Debug)]
pub struct MakeOptions {
    /// True to store encoded bytes as they are: the receiver then needs no encoder, and the patch
    /// is larger.
    pub portable: bool,
    /// Directory of the unnamed file that holds the patch's body until the header is known.
    pub spool_dir: PathBuf,
    /// Budget for encoding attempts that do not reproduce the new image's bytes, in picoseconds of
    /// CPU time by a model ([`kiln_codec::Spec::cost`]). The cost of successful attempts is added
    /// to it. When it is spent, bytes that no encoder found so far reproduces are stored encoded.
    pub search_cost_max: u64,
    /// Hash tree behind the new image, if there is one. The source of the new image ends in front of it.
    pub new_tree: Option<NewTree>,
}

/// Six seconds, in which LZMA at its default level, one of the slowest encoders, encodes 24 MB.
const SEARCH_COST_MAX: u64 = 6_000_000_000_000;

impl Default for MakeOptions {
    fn default() -> Self {
        Self { portable: false, spool_dir: Spool::default_dir(), search_cost_max: SEARCH_COST_MAX, new_tree: None }
    }
}

/// Report of a patch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MakeReport {
    /// Length of the patch in bytes.
    pub patch_len: u64,
    /// Length of the old image in bytes.
    pub old_len: u64,
    /// Length of the new image in bytes.
    pub new_len: u64,
    /// Bytes of the new image that are copied from the old image as stored.
    pub copied: u64,
    /// Bytes of the new image that the receiver encodes.
    pub encoded: u64,
    /// Encoded bytes of the new image that the patch stores because encoding did not reproduce
    /// them.
    pub carried: u64,
    /// Bytes of text that match nothing in the old image.
    pub literal: u64,
    /// Cost of encoding attempts that did not reproduce the new image's bytes, in picoseconds of
    /// CPU time by a model.
    pub search_cost: u64,
    /// Bytes of text of the extents that the patch stores encoded, as far as it was compared with
    /// the old image.
    pub compared: u64,
    /// Bytes of `compared` that a build over the old image would have reused.
    pub known: u64,
}

impl MakeReport {
    /// Returns true if packing the new image with the old one as its base would make the patch much
    /// shorter: stored extents make up a large part of the image, although most of their text is in
    /// the old one.
    pub fn base_helps(&self) -> bool {
        self.carried > self.new_len / 8 && self.patch_len > self.new_len / 8 && self.known > self.compared / 2
    }
}

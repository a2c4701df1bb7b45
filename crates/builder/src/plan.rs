//! The plan: the way in which each file is stored, and the order.
//!
//! Files are in walk order, except those that a caller puts first. What is known before any text is read is a
//! [`survey`]. Then text comes, and the [`planner`] decides about it in order, segment by segment.

pub(crate) mod dedupe;
pub(crate) mod file;
pub(crate) mod fragments;
pub(crate) mod hole;
mod hot;
pub(crate) mod method_selection;
pub(crate) mod packed_window;
pub(crate) mod pieces;
pub(crate) mod planner;
pub(crate) mod previous;
pub(crate) mod survey;
pub(crate) mod text;

mod duplicates;
pub(crate) mod file_list;
mod placed;
pub(crate) mod reuse;
mod stored;

use kiln_codec::Spec;
use std::collections::HashMap;
use std::ops::Range;

use crate::context::Context;
use crate::error::BuildError;
use crate::format::Format;
use crate::inodes::digest;
use crate::plan::dedupe::parts::Deduplication;
use crate::plan::file::{FilePlan, Storage};
use crate::plan::file_list::FileIndex;
use crate::plan::hole::Holes;
use crate::plan::planner::Decided;
use crate::plan::reuse::Gaps;
use crate::plan::survey::Survey;
use crate::plan::text::TextSource;
use kiln_digest::contents::ContentDigest;
use kiln_tree::NodeId;

/// All data to be stored.
pub(crate) struct Plan {
    /// Regular files: those with an order of their own, then the others in walk order.
    pub files: Vec<FilePlan>,
    /// Bytes of the files that are compressed together, and of reused ones before them.
    pub fragments_len: u64,
    /// Compression of the packed inode.
    pub fragment_compression: Option<Spec>,
    /// Parts of files that are stored once, if they are looked for.
    pub parts: Option<Deduplication>,
    /// Bytes of holes that are stored as zeros, by file.
    pub filled_holes: HashMap<u32, u64>,
    /// Entropy in bits per byte of long files in which random text was seen.
    pub entropies: HashMap<u32, f64>,
    /// Index of each node's file.
    index: FileIndex,
    /// Holes of the files that have some.
    holes: HashMap<u32, Holes>,
    /// Ranges to be stored in files that are partly reused from a base.
    gaps: Gaps,
}

impl Plan {
    /// Makes a plan of the decisions; the packed stream has `fragments_len` bytes.
    pub(crate) fn new(survey: Survey, decided: Decided, fragments_len: u64, format: &Format) -> Self {
        let Survey { index, gaps, holes, filled_holes, .. } = survey;
        let Decided { files, entropies, parts, .. } = decided;
        Self {
            fragments_len,
            fragment_compression: format.packing.spec,
            files,
            parts,
            filled_holes,
            entropies,
            index,
            holes,
            gaps,
        }
    }

    /// Returns the holes of a file, as it is to be stored.
    pub(crate) fn holes(&self, file: u32) -> &[Range<u64>] {
        self.holes.get(&file).map_or(&[], |holes| holes)
    }

    /// Returns the ranges of a reused file that are stored again.
    pub(crate) fn gaps(&self, file: u32) -> &[Range<u64>] {
        self.gaps.get(&file).map_or(&[], |gaps| gaps)
    }

    /// Returns the digests of contents as attributes, given those that were computed as contents were read.
    ///
    /// # Errors
    /// A file of which parts are reused, and that cannot be read; an interruption.
    pub(crate) fn digests(
        &self,
        computed: &HashMap<u32, ContentDigest>,
        context: Context<'_>,
    ) -> Result<HashMap<NodeId, Box<[u8]>>, BuildError> {
        let storage = |node| self.file_of(node).map(|file| (file, self.files[file as usize].storage));
        let is_reused = |node| {
            storage(node)
                .is_some_and(|(file, storage)| matches!(storage, Storage::Reused { .. }) && self.gaps(file).is_empty())
        };
        let is_left_out = |node| storage(node).is_none_or(|(_, storage)| storage == Storage::LeftOut);
        let computed = |node| self.file_of(node).and_then(|file| computed.get(&file).copied());
        digest::values(computed, is_reused, is_left_out, context)
    }

    /// Returns the index in `files` of a node, if it is there.
    pub(crate) fn file_of(&self, node: NodeId) -> Option<u32> {
        self.index.get(node)
    }

    /// Returns whether a stream is a file that is stored in chunks, whatever packing shows.
    pub(crate) fn is_in_chunks(&self, stream: TextSource) -> bool {
        match stream {
            TextSource::File(file) => matches!(self.files[file as usize].storage, Storage::Chunks { .. }),
            TextSource::Fragments => false,
        }
    }

    /// Returns the compression of a stream, if it has one.
    pub(crate) fn compression_of(&self, stream: TextSource) -> Option<Spec> {
        file::compression_of(stream, &self.files, self.fragment_compression)
    }
}

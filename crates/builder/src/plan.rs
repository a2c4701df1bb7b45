//! The plan: the way in which each file is stored, and the order. It is made in plain-text coordinates, before
//! anything is compressed.
//!
//! Files are in walk order, except those that a caller puts first. Facts for the decisions (digests of files of
//! equal length, holes, samples of large files) are gathered on all cores; the decisions themselves are taken in
//! order.

pub(crate) mod analysis;
pub(crate) mod dedupe;
pub(crate) mod file;
pub(crate) mod fragments;
pub(crate) mod hole;
mod hot;
pub(crate) mod method_selection;
pub(crate) mod previous;
pub(crate) mod text;
pub(crate) mod verify;

mod duplicates;
mod file_list;
mod findings;
mod placed;
pub(crate) mod reuse;
mod stored;

use kiln_codec::Spec;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use crate::context::Context;
use crate::error::BuildError;
use crate::inodes::Inodes;
use crate::plan::dedupe::input::{Compressed, Deduplication};
use crate::plan::dedupe::revalidation::ContentChecks;
use crate::plan::file::{FilePlan, Storage};
use crate::plan::file_list::{FileIndex, FileList};
use crate::plan::findings::Findings;
use crate::plan::fragments::FragmentStream;
use crate::plan::hole::Holes;
use crate::plan::placed::PlacedFiles;
use crate::plan::reuse::{Gaps, ReusedFiles};
use crate::plan::stored::StoredFiles;
use crate::plan::text::TextSource;
use kiln_tree::NodeId;

/// All data to be stored.
pub(crate) struct Plan {
    /// Regular files: those with an order of their own, then the others in walk order.
    pub files: Vec<FilePlan>,
    /// Number of files that have an order of their own.
    pub ordered_count: u32,
    /// Byte of the packed inode behind the files there that have an order of their own.
    pub ordered_fragments_end: u64,
    /// Bytes of the files that are compressed together, and of reused ones before them.
    pub fragments_len: u64,
    /// Bytes of reused text of the base's packed inode: the front of the packed inode.
    pub reused_packed_len: u64,
    /// Compression of the packed inode.
    pub fragment_compression: Option<Spec>,
    /// Compression of files whose ends go to the packed inode, too.
    pub tail_compression: Option<Spec>,
    /// Parts of files that are stored once, if they are looked for.
    pub parts: Option<Deduplication>,
    /// Bytes of holes that are stored as zeros, by file.
    pub filled_holes: HashMap<u32, u64>,
    /// Entropy in bits per byte of the files whose samples do not compress.
    pub entropies: HashMap<u32, f64>,
    /// Files that share nothing with others: those that are apart, and those that have changed.
    pub apart: BTreeSet<u32>,
    /// Index of each node's file.
    index: FileIndex,
    /// Holes of the files that have some.
    holes: HashMap<u32, Holes>,
    /// Ranges to be stored in files that are partly reused from a base.
    gaps: Gaps,
}

/// Decisions that only packing needs and that take much memory: they are dropped after it.
pub(crate) struct PackSources {
    /// Small files that are compressed together.
    pub fragments: FragmentStream,
    /// Checked text of files that are equal to others.
    pub originals: ContentChecks,
    /// Checked text of files that have, or are, the source of a reference.
    pub parts: ContentChecks,
    /// Places of files that are on devices already.
    pub placed: PlacedFiles,
    /// Data reused from a base.
    pub reused: ReusedFiles,
}

impl Plan {
    /// Plans the storage of every file of the tree.
    ///
    /// # Errors
    /// The first file that cannot be read, unless such files are to be skipped.
    pub(crate) fn make(inodes: &Inodes, context: Context<'_>) -> Result<(Self, PackSources), BuildError> {
        let format = context.format;
        let FileList { files, index, ordered_count } = FileList::of(inodes, context);
        let StoredFiles { elsewhere, reused, previous } = stored::look_up(&files, context)?;
        let (files, placed) = placed::plan(files, elsewhere, context)?;
        let (files, mut reused, gaps) = reuse::plan(files, reused, previous, context)?;
        reused.hot = hot::runs(&format.layout.hot, (&files, &index), &reused, format.block_bits);
        let reused_packed_len = reused.packed.len();
        let apart = context.ledger.apart().into_iter().filter_map(|node| index.get(node)).collect();
        let findings = Findings::gather(files, apart, context)?;
        let Findings { files, holes, filled_holes, entropies, apart, small, chunks, pairs } = findings;
        let (files, originals) = duplicates::confirm(files, pairs, context)?;
        let is_packable = |file: u32| small.binary_search_by_key(&file, |candidate| candidate.file).is_ok();
        let files = method_selection::choose(files, is_packable, context)?;
        let (files, fragments) = fragments::choose(files, small, (reused_packed_len, ordered_count), format)?;
        let compressed = Compressed { files: &files, holes: &holes, apart: &apart, fragments: &fragments };
        let parts = format.dedupes_parts().then(|| Deduplication::plan(&compressed, chunks, context)).transpose()?;
        let (parts, part_checks) = parts.unzip();
        let plan = Self {
            ordered_count,
            ordered_fragments_end: fragments.end_of_first(ordered_count),
            fragments_len: fragments.len(),
            reused_packed_len,
            fragment_compression: format.packing.spec,
            tail_compression: format.compression.spec.filter(|_| format.packing.ends),
            files,
            parts,
            filled_holes,
            entropies,
            apart,
            index,
            holes,
            gaps,
        };
        Ok((plan, PackSources { fragments, originals, parts: part_checks.unwrap_or_default(), placed, reused }))
    }

    /// Returns the holes of a file, as it is to be stored.
    pub(crate) fn holes(&self, file: u32) -> &[Range<u64>] {
        self.holes.get(&file).map_or(&[], |holes| holes)
    }

    /// Returns the ranges of a reused file that are stored again.
    pub(crate) fn gaps(&self, file: u32) -> &[Range<u64>] {
        self.gaps.get(&file).map_or(&[], |gaps| gaps)
    }

    /// Returns whether all of a file is reused from a base.
    pub(crate) fn is_kept_whole(&self, file: u32) -> bool {
        matches!(self.files[file as usize].storage, Storage::Reused { .. }) && self.gaps(file).is_empty()
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
        match stream {
            TextSource::File(file) => self.files[file as usize].compression,
            TextSource::Fragments => self.fragment_compression,
        }
    }

    /// Returns whether a file comes first though it is not reused. Reused data comes first in extents, see [`hot`].
    pub(crate) fn is_first(&self, file: u32) -> bool {
        file < self.ordered_count && !matches!(self.files[file as usize].storage, Storage::Reused { .. })
    }

    /// Returns whether the end of a file may go to the packed inode.
    pub(crate) fn packs_end(&self, stream: TextSource) -> bool {
        self.tail_compression.is_some() && self.compression_of(stream) == self.tail_compression
    }
}

impl PackSources {
    /// Returns the checked text of files that share data.
    pub(crate) fn checks(&self) -> impl Iterator<Item = &ContentChecks> {
        [&self.originals, &self.parts].into_iter()
    }
}

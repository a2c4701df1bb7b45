//! What is stored how, and in which order: decided in plain-text coordinates, before anything is compressed.
//!
//! Files stand in walk order, but for those that a caller puts first. What the decisions need (digests of files of equal
//! length, holes, samples of large files) is gathered on all cores; the decisions themselves are taken in order.

pub(crate) mod analysis;
pub(crate) mod dedupe;
pub(crate) mod file;
pub(crate) mod former;
pub(crate) mod fragments;
pub(crate) mod hole;
mod hot;
pub(crate) mod method_selection;
pub(crate) mod text;
pub(crate) mod verify;

mod duplicates;
mod file_list;
mod findings;
pub(crate) mod kept;
mod placed;
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
use crate::plan::kept::{Gaps, KeptFiles};
use crate::plan::placed::PlacedFiles;
use crate::plan::stored::StoredFiles;
use crate::plan::text::TextSource;
use kiln_tree::NodeId;

/// Everything that will be stored.
pub(crate) struct Plan {
    /// Regular files: those with an order of their own, then the others in walk order.
    pub files: Vec<FilePlan>,
    /// How many have an order of their own.
    pub ordered_count: u32,
    /// Byte of the packed inode behind the files there that have an order of their own.
    pub ordered_fragments_end: u64,
    /// Bytes of the files that are compressed together, and of what is taken over before them.
    pub fragments_len: u64,
    /// Bytes of text of the packed inode of the base, which are taken over as they are stored: the first ones of the packed inode.
    pub kept_packed_len: u64,
    /// How they are.
    pub fragment_compression: Option<Spec>,
    /// The ends of files that are compressed like this go there, too.
    pub tail_compression: Option<Spec>,
    /// Parts of files that are stored once, if they are looked for.
    pub parts: Option<Deduplication>,
    /// Bytes of the holes of the files of which zeros are stored instead.
    pub filled_holes: HashMap<u32, u64>,
    /// Entropy in bits per byte of the files whose samples do not compress.
    pub entropies: HashMap<u32, f64>,
    /// Files that share nothing with others: those that were to be apart, and those that have changed.
    pub apart: BTreeSet<u32>,
    /// Where each node is among the files.
    index: FileIndex,
    /// Holes of the files that have some.
    holes: HashMap<u32, Holes>,
    /// What is to be stored of files of which only parts are taken over from a base.
    gaps: Gaps,
}

/// What only packing needs of the decisions, and what takes much memory: it goes when packing is done.
pub(crate) struct PackSources {
    /// Small files that are compressed together.
    pub fragments: FragmentStream,
    /// What was seen of files that others equal.
    pub originals: ContentChecks,
    /// What was seen of files that have, or are, the source of a reference.
    pub parts: ContentChecks,
    /// Where the files lie that are on devices already.
    pub placed: PlacedFiles,
    /// What is taken over from a base.
    pub kept: KeptFiles,
}

impl Plan {
    /// Plan how to store every file of the tree.
    ///
    /// # Errors
    /// The first file that cannot be read, unless such files are to be skipped.
    pub(crate) fn make(inodes: &Inodes, context: Context<'_>) -> Result<(Self, PackSources), BuildError> {
        let format = context.format;
        let FileList { files, index, ordered_count } = FileList::of(inodes, context);
        let StoredFiles { elsewhere, reused, previous } = stored::look_up(&files, context)?;
        let (files, placed) = placed::plan(files, elsewhere, context)?;
        let (files, mut kept, gaps) = kept::plan(files, reused, previous, context)?;
        kept.hot = hot::runs(&format.layout.hot, (&files, &index), &kept, format.block_bits);
        let kept_packed_len = kept.packed.len();
        let apart = context.ledger.apart().into_iter().filter_map(|node| index.get(node)).collect();
        let findings = Findings::gather(files, apart, context)?;
        let Findings { files, holes, filled_holes, entropies, apart, small, chunks, pairs } = findings;
        let (files, originals) = duplicates::confirm(files, pairs, context)?;
        let is_packable = |file: u32| small.binary_search_by_key(&file, |candidate| candidate.file).is_ok();
        let files = method_selection::choose(files, is_packable, context)?;
        let (files, fragments) = fragments::choose(files, small, (kept_packed_len, ordered_count), format)?;
        let compressed = Compressed { files: &files, holes: &holes, apart: &apart, fragments: &fragments };
        let parts = format.dedupes_parts().then(|| Deduplication::plan(&compressed, chunks, context)).transpose()?;
        let (parts, part_checks) = parts.unzip();
        let plan = Self {
            ordered_count,
            ordered_fragments_end: fragments.end_of_first(ordered_count),
            fragments_len: fragments.len(),
            kept_packed_len,
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
        Ok((plan, PackSources { fragments, originals, parts: part_checks.unwrap_or_default(), placed, kept }))
    }

    /// Holes of a file, as it is to be stored.
    pub(crate) fn holes(&self, file: u32) -> &[Range<u64>] {
        self.holes.get(&file).map_or(&[], |holes| holes)
    }

    /// What is stored of a file that is taken over from a base but for this.
    pub(crate) fn gaps(&self, file: u32) -> &[Range<u64>] {
        self.gaps.get(&file).map_or(&[], |gaps| gaps)
    }

    /// Tells if all of a file is taken over from a base.
    pub(crate) fn is_kept_whole(&self, file: u32) -> bool {
        matches!(self.files[file as usize].storage, Storage::Kept { .. }) && self.gaps(file).is_empty()
    }

    /// Place in `files` of a node, if it is among them.
    pub(crate) fn file_of(&self, node: NodeId) -> Option<u32> {
        self.index.get(node)
    }

    /// Whether a stream is a file that is stored in chunks, whatever packing it shows.
    pub(crate) fn is_in_chunks(&self, stream: TextSource) -> bool {
        match stream {
            TextSource::File(file) => matches!(self.files[file as usize].storage, Storage::Chunks { .. }),
            TextSource::Fragments => false,
        }
    }

    /// How a stream is compressed, if it is.
    pub(crate) fn compression_of(&self, stream: TextSource) -> Option<Spec> {
        match stream {
            TextSource::File(file) => self.files[file as usize].compression,
            TextSource::Fragments => self.fragment_compression,
        }
    }

    /// Whether a file comes first though it is stored anew. What is taken over comes first in extents, see [`hot`].
    pub(crate) fn is_first(&self, file: u32) -> bool {
        file < self.ordered_count && !matches!(self.files[file as usize].storage, Storage::Kept { .. })
    }

    /// Whether the end of a file may go to the packed inode.
    pub(crate) fn packs_end(&self, stream: TextSource) -> bool {
        self.tail_compression.is_some() && self.compression_of(stream) == self.tail_compression
    }
}

impl PackSources {
    /// What was seen of files that share data.
    pub(crate) fn checks(&self) -> impl Iterator<Item = &ContentChecks> {
        [&self.originals, &self.parts].into_iter()
    }
}

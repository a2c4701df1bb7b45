//! Synthetic packed data: all that the metadata's length depends on.

use kiln_format::feature::Feature;
use kiln_format::zmap::HeadKind;
use std::collections::{BTreeMap, HashSet};

use super::frame::Frame;
use super::observed::Sample;
use crate::format::Format;
use crate::layout::lcluster_index::ZExtent;
use crate::pack::inline_tails::{TailRef, Tails};
use crate::pack::reuse::ReuseTotals;
use crate::pack::{Extents, Stored, StoredData};
use crate::plan::Plan;
use crate::plan::file::{FilePlan, Storage};
use crate::plan::fragments::FragmentStream;
use crate::plan::text::TextSource;

/// The stored form of a file that is one job.
#[derive(Clone, Copy)]
pub(super) enum Outcome {
    Flat,
    Compressed { inline: u64 },
}

/// Returns places for all files. Addresses mean nothing, and there are no more extents than maps need.
pub(super) fn stored(
    plan: &Plan,
    (fragments, has_blob): (&FragmentStream, bool),
    outcomes: &BTreeMap<u32, Outcome>,
    format: &Format,
) -> StoredData {
    let shape = |stream, len, holes| extents(stream, len, holes, plan, format);
    let stored = |(idx, file): (u32, &FilePlan)| match file.storage {
        // A tree with a base is not estimated.
        Storage::LeftOut | Storage::Empty | Storage::Duplicate(_) | Storage::Reused { .. } => Stored::Nothing,
        // The members below hold the place.
        Storage::Fragment => Stored::Fragment(0),
        Storage::Chunks { chunk_bits, .. } | Storage::Placed { chunk_bits } => {
            Stored::Chunks { chunk_bits, runs: Box::default() }
        }
        Storage::Flat => plain(file, format),
        Storage::Compressed { sparse } => match outcomes.get(&idx) {
            Some(Outcome::Flat) => plain(file, format),
            outcome => {
                let inline = match outcome {
                    Some(&Outcome::Compressed { inline }) if inline > 0 => Some(tail_of(inline as u16)),
                    _ => None,
                };
                Stored::Compressed(Box::new(Extents { inline, ..shape(TextSource::File(idx), file.len, sparse) }))
            }
        },
    };
    let mut stored: Vec<Stored> = (0..).zip(&plan.files).map(stored).collect();
    for member in fragments.members() {
        stored[member.file as usize] = Stored::Fragment(member.off);
    }
    let features = features(&stored, plan, format);
    StoredData {
        fragments_len: plan.fragments_len,
        fragments: shape(TextSource::Fragments, plan.fragments_len, false),
        stored,
        tails: Tails::new(format.work.scratch_dir.clone(), format.work.tails_memory()),
        blob_blocks: has_blob.then_some(0),
        shared_chunk_bytes: 0,
        reused: ReuseTotals::default(),
        hot: 0..0,
        features,
        read_back_bytes: 0,
        text_bytes: 0,
        read_bytes: 0,
    }
}

/// Returns the bytes beside inodes, counting each file once.
pub(super) fn inline_len(packed: &StoredData) -> u64 {
    let tail = |stored: &Stored| match stored {
        Stored::Compressed(extents) => extents.inline,
        stored => stored.as_flat().and_then(|(_, tail)| tail),
    };
    packed.stored.iter().filter_map(tail).map(|tail| u64::from(tail.len)).sum()
}

/// Returns the results of files that were packed whole; any other file gets that of the one before it in its
/// stratum.
pub(super) fn outcomes(frame: &Frame, samples: &[Sample]) -> BTreeMap<u32, Outcome> {
    let mut outcomes = BTreeMap::new();
    for (stratum, sample) in frame.strata.iter().zip(samples) {
        let mut donors = sample.observed.iter().filter(|one| one.part.is_some()).peekable();
        let Some(mut donor) = donors.peek().copied() else { continue };
        for &member in stratum.members() {
            while let Some(next) = donors.next_if(|next| next.part <= Some(member)) {
                donor = next;
            }
            if let TextSource::File(file) = frame.parts[member as usize].stream {
                let outcome = if donor.is_flat { Outcome::Flat } else { Outcome::Compressed { inline: donor.inline } };
                outcomes.insert(file, outcome);
            }
        }
    }
    outcomes
}

/// Returns a tail of which only the length is known.
fn tail_of(len: u16) -> TailRef {
    TailRef { off: 0, len }
}

fn plain(file: &FilePlan, format: &Format) -> Stored {
    if let Some(chunk_bits) = format.layout.chunk_bits {
        return Stored::Chunks { chunk_bits, runs: Box::default() };
    }
    let tail = format.inline_tail_len(file.len, file.inode_len as usize);
    Stored::flat(None, (tail > 0).then(|| tail_of(tail as u16)))
}

/// Returns extents whose map has the expected length.
fn extents(stream: TextSource, len: u64, has_holes: bool, plan: &Plan, format: &Format) -> Extents {
    let is_shared = plan.parts.as_ref().is_some_and(|streams| streams.is_shared(stream));
    let scattered = has_holes || is_shared;
    let unit = match plan.compression_of(stream).filter(|_| format.compression.encoded_extents) {
        Some(spec) => u64::from(spec.pcluster_len),
        // For an index only its kind matters.
        None => len.max(1),
    };
    let extent = |n: u64| ZExtent {
        la: n * unit,
        llen: (len - n * unit).min(unit) as u32,
        plen: 1,
        pa: if scattered { len - n } else { n },
        kind: HeadKind::Head1,
        partial: scattered,
    };
    Extents { list: (0..len.div_ceil(unit)).map(extent).collect(), ..Extents::default() }
}

fn features(stored: &[Stored], plan: &Plan, format: &Format) -> Vec<Feature> {
    let has_refs = plan.parts.as_ref().is_some_and(|streams| !streams.refs.is_empty());
    let has_holes = |file: &FilePlan| matches!(file.storage, Storage::Compressed { sparse: true });
    let mut features = HashSet::new();
    if has_refs || !format.compression.encoded_extents && plan.files.iter().any(has_holes) {
        features.insert(Feature::Fragments);
    }
    for one in stored {
        match one {
            Stored::Chunks { .. } => features.insert(Feature::ChunkedFile),
            Stored::Fragment(_) => features.insert(Feature::Fragments),
            Stored::Compressed(extents) if extents.inline.is_some() => features.insert(Feature::TailPacking),
            _ => false,
        };
        let is_compressed = matches!(one, Stored::Compressed(_) | Stored::Fragment(_));
        if format.compression.encoded_extents && is_compressed {
            features.insert(Feature::Addr48Bit);
        }
    }
    features.into_iter().collect()
}

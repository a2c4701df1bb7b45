//! Selection of one of several methods and levels for each file: tried on samples, within a budget.
//!
//! A slower method is worth its time for some files and not for others. Samples of each file are encoded by the
//! default method and by those to be tried; one that saves at least a block is a candidate. All candidates that save
//! without a cost are taken; then those that save most for their cost, until the budget is used up. Cost is a model
//! ([`Spec::cost`]), not a clock: the same input gives the same image on any machine.

use kiln_codec::{Encoder, Spec};
use kiln_format::BlockBits;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::context::Context;
use crate::error::BuildError;
use crate::format::Format;
use crate::plan::file::{FilePlan, Storage};
use crate::read::{PIECE_COST, Piece, Role};
use kiln_parallel::ordered::{self, Costed};
use kiln_tree::{NodeId, Tree};

/// Files below this are not tried: they fill two pclusters of a block, where nothing can be saved.
const FILE_MIN_LEN: u64 = 8 << 10;
/// Files that are to be packed are tried from here on: shorter ones gain more from their neighbours.
const PACKED_MIN_LEN: u64 = 1 << 20;
/// Loss of a file that is not packed after all: the room left in its last pcluster, and lost references to other
/// text.
const UNPACKED_COST: u64 = 16 << 10;
/// A sample stands for this many bytes of a long file.
const SAMPLED_LEN: u64 = 2 << 20;
const SAMPLES_MAX: u64 = 8;
/// Share of the remaining budget beyond compression itself that goes into trying: at most one part in this many.
const TRYING_SHARE: u128 = 3;

/// A file to be tried.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    file: u32,
    len: u64,
    /// Its contents, if they are in memory as a whole.
    text: Option<&'a [u8]>,
    /// Bytes from which samples are taken: all of it, or the first piece of a stream's file.
    sampled: u64,
    /// It is packed if nothing better is found.
    is_packable: bool,
}

/// Savings of another compression of a file.
struct Saving {
    file: u32,
    spec: Spec,
    saves: u64,
    /// Cost beyond that of the default compression; may be negative.
    costs: i128,
}

/// Decides which of the files that begin in `pieces`, a segment, are not compressed by default. The budget is that of
/// the segment. Samples of files that are not in memory as a whole are read for this, a second time; those of a stream
/// (`is_stream`) are taken from the first piece.
///
/// # Errors
/// A file that cannot be read, unless such files are to be skipped; a codec that fails; an interruption.
pub(crate) fn choose(
    files: &mut [FilePlan],
    pieces: &[Piece],
    is_stream: bool,
    context: Context<'_>,
) -> Result<(), BuildError> {
    let Context { tree, format, control, .. } = context;
    let Some(default) = format.compression.spec.filter(|_| !format.compression.trial.specs.is_empty()) else {
        return Ok(());
    };
    let begins = |piece: &&Piece| matches!(piece.request.role, Role::Data { is_first: true, .. });
    let new: Vec<&Piece> = pieces.iter().filter(begins).collect();
    let compressed = |piece: &&&Piece| {
        let file = &files[piece.request.file as usize];
        file.compression == Some(default) && matches!(file.storage, Storage::Compressed { .. })
    };
    let cost: u128 =
        new.iter().filter(compressed).map(|one| costs(default, files[one.request.file as usize].len)).sum();
    let mut budget = cost * u128::from(format.compression.trial.budget_percent.saturating_sub(100)) / 100;
    let specs: Vec<Spec> = std::iter::once(default).chain(format.compression.trial.specs.iter().copied()).collect();
    let candidates = candidates(files, (&new, is_stream), &specs, format, budget / TRYING_SHARE);
    budget -= candidates.iter().map(|one| trying_costs(&specs, one.sampled)).sum::<u128>();
    let mut offers = Vec::new();
    let nodes = &*files;
    let worker = || {
        let mut encoder = SampleEncoder { specs: &specs, encoders: HashMap::new(), text: Vec::new(), out: Vec::new() };
        Ok(move |one: Candidate<'_>| {
            control.check()?;
            let lens = encoder.encode_samples(tree, nodes[one.file as usize].node, one.sampled, one.text);
            let lens = match lens {
                // A sample of a file that cannot be read any more: it is stored as it was read.
                Err(error) if !error.is_input() => return Err(error),
                lens => lens.ok(),
            };
            Ok::<_, BuildError>(((one.file, one.len, one.sampled, one.is_packable), lens))
        })
    };
    let jobs = candidates.into_iter().map(|job| Costed { cost: PIECE_COST + sampled_len(default, job.sampled), job });
    ordered::run(format.work.threads, format.work.backlog(), jobs, worker, |(one, lens)| {
        offers.extend(lens.into_iter().flat_map(|lens| savings_of(one, &specs, &lens, format.block_bits)));
        Ok(())
    })?;
    for (file, spec) in knapsack(offers, budget) {
        files[file as usize].compression = Some(spec);
    }
    Ok(())
}

/// Returns the files to be tried, the longest first: their samples cost least. They end when trying has used up its
/// share.
fn candidates<'a>(
    files: &[FilePlan],
    (new, is_stream): (&[&'a Piece], bool),
    specs: &[Spec],
    format: &Format,
    mut budget: u128,
) -> Vec<Candidate<'a>> {
    let candidate = |piece: &&'a Piece| {
        let (file, is_packable) = (piece.request.file, piece.head.is_some());
        let plan = &files[file as usize];
        let least = if is_packable { PACKED_MIN_LEN } else { FILE_MIN_LEN };
        let dense = matches!(plan.storage, Storage::Compressed { sparse: false });
        let is_open = dense && plan.len >= least && format.compression.hints.get(plan.node).is_none();
        let text = Some(&piece.text[..]).filter(|text| is_stream || text.len() as u64 == plan.len);
        let sampled = text.map_or(plan.len, |text| text.len() as u64);
        let candidate = Candidate { file, len: plan.len, text, sampled, is_packable };
        (is_open && plan.compression == Some(specs[0])).then_some(candidate)
    };
    let mut candidates: Vec<_> = new.iter().filter_map(candidate).collect();
    candidates.sort_by_key(|one| (std::cmp::Reverse(one.len), one.file));
    let count = candidates.iter().take_while(|one| {
        let cost = trying_costs(specs, one.sampled);
        let fits = cost <= budget;
        budget = budget.saturating_sub(cost);
        fits
    });
    let count = count.count();
    candidates.truncate(count);
    candidates
}

/// Returns the time of encoding `len` bytes, in picoseconds of a machine like that of [`Spec::cost`].
fn costs(spec: Spec, len: u64) -> u128 {
    u128::from(spec.cost()) * u128::from(len)
}

fn trying_costs(specs: &[Spec], len: u64) -> u128 {
    specs.iter().map(|spec| costs(*spec, sampled_len(*spec, len))).sum()
}

/// Returns the bytes of a sample: about the text of a pcluster, within limits.
fn sample_len(spec: Spec) -> u64 {
    u64::from(spec.pcluster_len).saturating_mul(2).clamp(16 << 10, 256 << 10)
}

/// Returns the bytes of all samples of a file.
fn sampled_len(spec: Spec, len: u64) -> u64 {
    (sample_len(spec) * sample_count(len)).min(len)
}

fn sample_count(len: u64) -> u64 {
    (len / SAMPLED_LEN).clamp(1, SAMPLES_MAX)
}

/// Returns the savings of each compression that saves something. `lens` are the lengths of its encoded samples.
fn savings_of(
    (file, len, sampled, is_packable): (u32, u64, u64, bool),
    specs: &[Spec],
    lens: &[u64],
    block_bits: BlockBits,
) -> Vec<Saving> {
    let whole =
        |encoded: u64| (u128::from(encoded) * u128::from(len) / u128::from(sampled_len(specs[0], sampled))) as u64;
    let least = if is_packable { UNPACKED_COST } else { block_bits.len() };
    let offer = |(&spec, &encoded): (&Spec, &u64)| {
        let saves = whole(lens[0]).saturating_sub(whole(encoded));
        let costs = costs(spec, len) as i128 - costs(specs[0], len) as i128;
        (saves >= least).then_some(Saving { file, spec, saves, costs })
    };
    specs[1..].iter().zip(&lens[1..]).filter_map(offer).collect()
}

/// Takes the best offers that `budget` allows. Of those for one file, a later one replaces an earlier one that saves
/// less.
fn knapsack(mut offers: Vec<Saving>, budget: u128) -> HashMap<u32, Spec> {
    let is_free = |offer: &Saving| offer.costs <= 0;
    offers.sort_by(|a, b| {
        let by_worth = match (is_free(a), is_free(b)) {
            (false, false) => (b.saves as i128 * a.costs).cmp(&(a.saves as i128 * b.costs)),
            (true, true) => b.saves.cmp(&a.saves),
            (a_is_free, b_is_free) => b_is_free.cmp(&a_is_free),
        };
        by_worth.then(a.file.cmp(&b.file))
    });
    let mut left = budget as i128;
    let mut taken = HashMap::<u32, Saving>::new();
    for offer in offers {
        let before = taken.get(&offer.file).map_or((0, 0), |offer| (offer.saves, offer.costs));
        if offer.saves > before.0 && offer.costs - before.1 <= left {
            left -= offer.costs - before.1;
            taken.insert(offer.file, offer);
        }
    }
    taken.into_iter().map(|(file, offer)| (file, offer.spec)).collect()
}

/// Encodes samples; one for each thread.
struct SampleEncoder<'a> {
    specs: &'a [Spec],
    encoders: HashMap<Spec, Encoder>,
    text: Vec<u8>,
    out: Vec<u8>,
}

impl SampleEncoder<'_> {
    /// Returns the encoded bytes of a file's samples for each of `specs`. `text` is the file, if it is in memory.
    fn encode_samples(
        &mut self,
        tree: &Tree,
        node: NodeId,
        len: u64,
        text: Option<&[u8]>,
    ) -> Result<Vec<u64>, BuildError> {
        let (count, sample_len) = (sample_count(len), sample_len(self.specs[0]).min(len));
        let mut lens = vec![0; self.specs.len()];
        let mut content = if text.is_none() { Some(tree.open(node)?) } else { None };
        for sample in 0..count {
            // Evenly spread, in the middle of the text that each represents.
            let at = (len - sample_len) * (2 * sample + 1) / (2 * count);
            let sample = match (text, &mut content) {
                (Some(text), _) => &text[at as usize..][..sample_len as usize],
                (None, Some(content)) => {
                    self.text.resize(sample_len as usize, 0);
                    let read = content.read_exact_at(&mut self.text, at);
                    read.map_err(|source| BuildError::Read { path: tree.path(node), source })?;
                    &self.text
                }
                (None, None) => return Err(BuildError::Internal("a sample has no text".to_owned())),
            };
            for (spec, len) in self.specs.iter().zip(&mut lens) {
                let encoder = match self.encoders.entry(*spec) {
                    Entry::Occupied(entry) => entry.into_mut(),
                    Entry::Vacant(entry) => entry.insert(Encoder::new(spec)?),
                };
                encoder.reset();
                self.out.resize(sample.len(), 0);
                // Text that does not shrink is stored as it is.
                *len += encoder.encode(sample, &mut self.out)?.unwrap_or(sample.len()) as u64;
            }
        }
        Ok(lens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_codec::Method;

    fn spec(level: i32) -> Spec {
        Spec { method: Method::Zstd, level, pcluster_len: 4096, window_len: None }
    }

    fn taken(offers: &[(u32, i32, u64, i128)], budget: u128) -> Vec<(u32, i32)> {
        let offer =
            |&(file, level, saves, costs): &(u32, i32, u64, i128)| Saving { file, spec: spec(level), saves, costs };
        let taken = knapsack(offers.iter().map(offer).collect(), budget);
        let mut taken: Vec<_> = taken.into_iter().map(|(file, spec)| (file, spec.level)).collect();
        taken.sort_unstable();
        taken
    }

    #[test]
    fn what_is_worth_most_comes_first_and_the_budget_is_kept() {
        let offers = [(1, 9, 100, 100), (2, 9, 300, 100), (3, 9, 50, -10), (4, 9, 400, 500)];
        assert_eq!(taken(&offers, 0), [(3, 9)]);
        assert_eq!(taken(&offers, 89), [(3, 9)]);
        assert_eq!(taken(&offers, 90), [(2, 9), (3, 9)]);
        assert_eq!(taken(&offers, 190), [(1, 9), (2, 9), (3, 9)]);
        assert_eq!(taken(&offers, 1000), [(1, 9), (2, 9), (3, 9), (4, 9)]);
        assert_eq!(taken(&[], 1000), []);
    }

    #[test]
    fn a_file_takes_the_better_way_if_there_is_room_for_it() {
        let offers = [(1, 5, 100, 10), (1, 9, 150, 100), (1, 15, 120, 200)];
        assert_eq!(taken(&offers, 10), [(1, 5)]);
        assert_eq!(taken(&offers, 99), [(1, 5)]);
        assert_eq!(taken(&offers, 100), [(1, 9)]);
    }

    #[test]
    fn a_block_is_the_least_that_pays() {
        let (one, specs) = ((1, 16 << 10, 16 << 10, false), [spec(3), spec(9)]);
        for bits in [9, 12, 13] {
            let block_bits = BlockBits::new(bits).unwrap();
            let offers = |saved| savings_of(one, &specs, &[15_000, 15_000 - saved], block_bits).len();
            assert_eq!((offers(block_bits.len() - 1), offers(block_bits.len())), (0, 1), "{bits}");
        }
    }

    #[test]
    fn samples_lie_within_their_file() {
        for len in [FILE_MIN_LEN, 100_000, SAMPLED_LEN, 5 * SAMPLED_LEN + 1, 1 << 40] {
            let sampled = sampled_len(spec(3), len);
            assert!(sampled > 0 && sampled <= len && sampled <= SAMPLES_MAX * sample_len(spec(3)), "{len}");
        }
    }
}

//! Any runs, packed by a model of the packer, become an index that the format allows, and text that is the same.

use super::resolve::{RefExtent, Resolved};
use super::*;
use crate::plan::dedupe::chunker::{ChunkHash, ChunkSizes, Chunker};
use crate::plan::dedupe::matching::tests::Memory;
use crate::plan::dedupe::matching::{Chunk, Matcher, Run, RunKind, Runs};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index as Pick;
use proptest::test_runner::RngSeed;
use std::collections::BTreeMap;

const BITS: BlockBits = BlockBits::DEFAULT;
const B: u64 = 4096;

/// Stored parts, and the references to them; together they cover all streams.
#[derive(Debug, PartialEq, Eq)]
struct PartPlan {
    /// In order of streams and offsets.
    parts: Vec<StoredPart>,
    /// In order of targets.
    refs: Vec<Ref>,
}

/// Plans streams that are in memory as a whole, in portions of `portion_len` bytes.
fn plan_of(runs: &Runs, portion_len: u64, rules: IndexRules) -> PartPlan {
    let mut portions = Vec::new();
    for stream in 0..runs.len() as u32 {
        let len = runs.stream(stream).last().map_or(0, Run::end);
        let portion = |start: u64| {
            let end = len.min(start + portion_len);
            Portion { stream, range: start..end, ends_stream: end == len }
        };
        portions.extend((0..len).step_by(portion_len as usize).map(portion));
    }
    let (refs, parts) = plan_parts(runs.unsealed_refs(0), &portions, rules);
    PartPlan { parts: parts.concat(), refs }
}

impl PartPlan {
    /// Returns the index of the part that starts at `place`. Every Ref's source has one.
    fn part_at(&self, place: Place) -> Option<usize> {
        self.parts.binary_search_by_key(&place, |part| Place { stream: part.stream, off: part.range.start }).ok()
    }
}

/// Seeded numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 += 1;
        xxhash_rust::xxh3::xxh3_64_with_seed(&self.0.to_le_bytes(), 0xC075) % limit
    }
}

/// Models the packer: units of random lengths that save a block, plain blocks, and for the rest one unit that saves
/// nothing. If `compresses` is false, the text is the worst case: plain wherever possible.
fn fill(part: &StoredPart, big: bool, compresses: bool, random: &mut Random) -> Vec<Unit> {
    let unit = |llen: u64, blocks: u64| Unit { llen: llen as u32, blocks: blocks as u16, is_whole: false };
    let mut units = Vec::new();
    let mut rest = part.range.end - part.range.start;
    while rest > 0 {
        let blocks = if big { 1 + random.below(16) } else { 1 };
        let most = rest.min(blocks * B + 1 + random.below(9 * B));
        let tried = if compresses && most > blocks * B { unit(most, blocks) } else { unit(rest.min(B), 1) };
        let left = rest - u64::from(tried.llen);
        let is_fine = part.ends_stream || left == 0 || left == B || left >= 2 * B;
        let taken = match is_fine && (part.ends_stream || u64::from(tried.llen) >= B) {
            true => tried,
            false if rest < 4 * B => unit(rest, rest / B + 2),
            false => unit(B, 1),
        };
        units.push(taken);
        rest -= u64::from(taken.llen);
    }
    units
}

/// An extent of a stream, and the place whose text it shows.
#[derive(Clone, Copy, Debug)]
struct Extent {
    la: u64,
    llen: u64,
    blocks: u16,
    text: Place,
}

/// Packs a plan, resolves its references, and checks the demands of the format. Returns the number of late parts.
fn pack(runs: &Runs, plan: &PartPlan, rules: IndexRules, big: bool, random: &mut Random) -> usize {
    let mut filled = |part: &StoredPart| {
        let compresses = random.below(2) == 0;
        let units = fill(part, big, compresses, random);
        assert!(part.ends_stream || units.iter().all(|&unit| rules.allows(unit)), "the model keeps its promise");
        units
    };
    let packed: Vec<_> = plan.parts.iter().map(&mut filled).collect();
    let mut extents: BTreeMap<u32, Vec<Extent>> = BTreeMap::new();
    let mut put = |stream, extent| extents.entry(stream).or_default().push(extent);
    let mut put_part = |part: &StoredPart, units: &[Unit]| {
        let mut la = part.range.start;
        for unit in units {
            let text = Place { stream: part.stream, off: la };
            put(part.stream, Extent { la, llen: unit.llen.into(), blocks: unit.blocks, text });
            la += u64::from(unit.llen);
        }
    };
    plan.parts.iter().zip(&packed).for_each(|(part, units)| put_part(part, units));
    let mut late_parts = Vec::new();
    let mut referred = Vec::new();
    for one in &plan.refs {
        let first = plan.part_at(one.source).expect("a part starts at every source");
        let units: Vec<Unit> = packed[first..].iter().flatten().copied().collect();
        let target = one.target.off..one.end();
        let len = runs.stream(one.target.stream).last().unwrap().end();
        let ends_stream = target.end == len;
        let resolved = resolve_ref(target.clone(), ends_stream, units.iter().copied(), rules).expect("resolves");
        let (mut la, mut text) = (target.start, one.source);
        for (idx, extent) in resolved.extents.iter().enumerate() {
            let unit = units[extent.unit];
            assert!(extent.unit == idx && extent.llen > 0 && extent.llen <= unit.llen);
            referred.push((one.target.stream, Extent { la, llen: extent.llen.into(), blocks: unit.blocks, text }));
            la += u64::from(extent.llen);
            text.off += u64::from(unit.llen);
        }
        if let Some(late) = resolved.late {
            assert!(late.start == la && late.end == target.end && late.end - late.start < 4 * B);
            late_parts.push(StoredPart { stream: one.target.stream, range: late, ends_stream });
            la = target.end;
        }
        assert_eq!(la, target.end);
    }
    let late_units: Vec<_> = late_parts.iter().map(filled).collect();
    late_parts.iter().zip(&late_units).for_each(|(part, units)| put_part(part, units));
    referred.into_iter().for_each(|(stream, extent)| put(stream, extent));
    for (stream, extents) in &mut extents {
        extents.sort_by_key(|extent| extent.la);
        check_text(runs, *stream, extents);
        if rules.lclusters.is_some() {
            check_index(runs.stream(*stream).last().unwrap().end(), extents);
        }
    }
    late_parts.len()
}

/// Returns the place where a byte of a stream is stored, according to the runs.
fn origin(runs: &Runs, place: Place) -> Place {
    let run = runs.stream(place.stream).iter().find(|run| run.end() > place.off).unwrap();
    match run.kind {
        RunKind::Stored => place,
        RunKind::Ref(source) => Place { off: source.off + place.off - run.start, ..source },
    }
}

/// Extents cover the stream and show its text. Both are made of few straight pieces, so ends decide, and a byte
/// between.
fn check_text(runs: &Runs, stream: u32, extents: &[Extent]) {
    let mut pos = 0;
    for extent in extents {
        assert_eq!(extent.la, pos, "no gap, no overlap");
        for off in [0, extent.llen / 2, extent.llen - 1] {
            let wanted = origin(runs, Place { stream, off: pos + off });
            assert_eq!(origin(runs, Place { off: extent.text.off + off, ..extent.text }), wanted);
        }
        pos += extent.llen;
    }
    assert_eq!(pos, runs.stream(stream).last().unwrap().end());
}

/// Checks the demands of the lcluster index, from the format's description.
fn check_index(len: u64, extents: &[Extent]) {
    let lcluster = |pos: u64| pos / B;
    for (idx, extent) in extents.iter().enumerate() {
        // Behind the last extent comes the end: a marker in the last lcluster, or the end of the table.
        let next = extents.get(idx + 1).map_or(len, |next| next.la);
        let distance = lcluster(next) - lcluster(extent.la);
        let is_last = idx + 1 == extents.len();
        assert!(distance >= 1 || (is_last && extent.blocks == 1), "two heads in an lcluster: {extent:?}, then {next}");
        assert!(distance >= 2 || extent.blocks == 1, "no entry for the count of blocks: {extent:?}, then {next}");
    }
}

/// Checks the laws in the head of the module.
fn check_plan(runs: &Runs, plan: &PartPlan, portion_len: u64, rules: IndexRules) {
    let least = rules.min_len();
    let len_of = |stream| runs.stream(stream).last().map_or(0, Run::end);
    let mut pieces: Vec<(u32, Range<u64>)> = Vec::new();
    for part in &plan.parts {
        let len = part.range.end - part.range.start;
        assert!(part.ends_stream || len >= least, "{part:?} is too short");
        assert!(len > 0 && len <= portion_len, "{part:?} is too long");
        assert_eq!(part.ends_stream, part.range.end == len_of(part.stream));
        pieces.push((part.stream, part.range.clone()));
    }
    assert!(plan.parts.is_sorted_by_key(|part| (part.stream, part.range.start)));
    assert!(plan.refs.is_sorted_by_key(|one| one.target));
    for one in &plan.refs {
        assert!(one.len >= least);
        pieces.push((one.target.stream, one.target.off..one.end()));
        // The parts behind the source's start hold all of it, without a gap.
        let (mut part, mut at) = (plan.part_at(one.source).expect("a part starts here"), one.source.off);
        while at < one.source.off + one.len {
            let StoredPart { stream, range, .. } = &plan.parts[part];
            assert!(*stream == one.source.stream && range.start == at, "{one:?} leaves its run");
            (part, at) = (part + 1, range.end);
        }
    }
    pieces.sort_by_key(|(stream, range)| (*stream, range.start));
    let mut covered = vec![0; runs.len()];
    for (stream, range) in pieces {
        assert_eq!(std::mem::replace(&mut covered[stream as usize], range.end), range.start);
    }
    assert!((0..runs.len() as u32).all(|stream| covered[stream as usize] == len_of(stream)));
}

/// Generates any runs that matching could make, and worse: Refs as short as a byte, and cuts as near.
fn runs() -> impl Strategy<Value = Runs> {
    let len = prop_oneof![2 => 1..3 * B, 3 => 1..16 * B, 1 => 1..100 * B];
    let near = prop_oneof![3 => Just(None), 2 => (0..9000_u64).prop_map(Some)];
    let run = (any::<bool>(), any::<Pick>(), any::<Pick>(), near, len);
    vec(vec(run, 0..8), 1..12).prop_map(|streams| {
        let mut runs = Runs::default();
        let mut stored: Vec<(u32, Run)> = Vec::new();
        let mut last_source: Option<(usize, u64)> = None;
        for (stream, list) in streams.into_iter().enumerate() {
            runs.begin();
            let mut start = 0;
            for (is_ref, pick, at, near, len) in list {
                let mut run = Run { start, len, kind: RunKind::Stored };
                if is_ref && !stored.is_empty() {
                    // Often a little behind the source before, so that cuts come in flocks.
                    let (idx, off) = match (near, last_source) {
                        (Some(by), Some((idx, off))) if off + by < stored[idx].1.end() => (idx, off + by),
                        _ => {
                            let idx = pick.index(stored.len());
                            (idx, stored[idx].1.start + at.index(stored[idx].1.len as usize) as u64)
                        }
                    };
                    last_source = Some((idx, off));
                    run.len = len.min(stored[idx].1.end() - off);
                    run.kind = RunKind::Ref(Place { stream: stored[idx].0, off });
                } else if let Some((_, last)) =
                    stored.last_mut().filter(|(s, run)| *s == stream as u32 && run.end() == start)
                {
                    // Adjacent Stored runs are one run.
                    last.len += len;
                } else {
                    stored.push((stream as u32, run));
                }
                runs.push(run);
                start = run.end();
            }
        }
        runs
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3000, rng_seed: RngSeed::Fixed(0xC075), failure_persistence: None, ..Default::default()
    })]

    #[test]
    fn any_runs_become_a_legal_index(runs in runs(), big: bool, segment in 2..40_u64, seed: u64) {
        let rules = IndexRules::lclusters(BITS);
        let plan = plan_of(&runs, segment * B, rules);
        check_plan(&runs, &plan, segment * B, rules);
        pack(&runs, &plan, rules, big, &mut Random(seed >> 1));
        prop_assert_eq!(plan, plan_of(&runs, segment * B, rules));
    }

    #[test]
    fn encoded_extents_need_no_late_parts(runs in runs(), segment in 2..40_u64, seed: u64) {
        let rules = IndexRules::encoded_extents();
        let plan = plan_of(&runs, segment * B, rules);
        check_plan(&runs, &plan, segment * B, rules);
        let late = pack(&runs, &plan, rules, true, &mut Random(seed >> 1));
        prop_assert_eq!(late, 0);
    }
}

/// From bytes to a plan, with a copy at every offset within a block, source and target.
#[test]
fn copies_at_every_offset() {
    let mut random = Random(1);
    let mut bytes =
        |len: u64| -> Vec<u8> { (0..len / 8 + 1).flat_map(|_| random.below(u64::MAX).to_le_bytes()).collect() };
    let original = bytes(1 << 20);
    let fresh = bytes(1 << 20);
    let mut streams = vec![original.clone()];
    let mut planted = 0;
    for at in (0..B as usize).step_by(7) {
        let len = 60_000 + 13 * at;
        let before = B as usize - at + 9000;
        streams.push([&fresh[at * 97..][..before], &original[at * 11..][..len], &fresh[at * 5..][..at]].concat());
        planted += len as u64;
    }
    let mut matcher = Matcher::new(16 << 10, 1 << 24);
    let mut chunker = Chunker::new(ChunkSizes::DEFAULT);
    for text in &streams {
        let mut chunks = Vec::new();
        chunker.chunk(text, |range| chunks.push(Chunk { len: range.len() as u32, hash: ChunkHash::of(&text[range]) }));
        matcher.begin(0);
        matcher.grow(text.len() as u64);
        let Ok(()) = matcher.push(&chunks, &mut Memory(&streams));
        matcher.settle();
    }
    let (runs, rules) = (matcher.runs(), IndexRules::lclusters(BITS));
    let plan = plan_of(runs, 4 << 20, rules);
    check_plan(runs, &plan, 4 << 20, rules);
    let referred: u64 = plan.refs.iter().map(|one| one.len).sum();
    assert!(referred * 100 > planted * 85, "{referred} of {planted} bytes");
    for big in [false, true] {
        pack(runs, &plan, rules, big, &mut Random(big.into()));
    }
}

#[test]
fn a_last_piece_that_is_too_short_is_stored_with_what_is_before_it() {
    let rules = IndexRules::lclusters(BITS);
    let unit = |llen: u64, blocks| Unit { llen: llen as u32, blocks, is_whole: false };
    let resolve =
        |target: Range<u64>, ends: bool, units: &[Unit]| resolve_ref(target, ends, units.iter().copied(), rules);
    let extent = |unit, llen: u64| RefExtent { unit, llen: llen as u32 };
    let units = [unit(10 * B, 3), unit(10 * B, 3)];
    // Whole pieces, and a long one, stay.
    let whole = Resolved { extents: vec![extent(0, 10 * B), extent(1, 5 * B)], late: None };
    assert_eq!(resolve(100..100 + 15 * B, false, &units), Some(whole));
    // 50 bytes of the second unit: two lclusters are stored, the first unit shows the rest.
    let late = Resolved { extents: vec![extent(0, 8 * B + 50)], late: Some(100 + 8 * B + 50..150 + 10 * B) };
    assert_eq!(resolve(100..150 + 10 * B, false, &units), Some(late));
    // At the end of a stream they are stored alone, and one block of a short unit needs nothing.
    let late = Resolved { extents: vec![extent(0, 10 * B)], late: Some(100 + 10 * B..150 + 10 * B) };
    assert_eq!(resolve(100..150 + 10 * B, true, &units), Some(late));
    let short = Resolved { extents: vec![extent(0, 10 * B), extent(1, 50)], late: None };
    assert_eq!(resolve(100..150 + 10 * B, true, &[units[0], unit(60, 1)]), Some(short));
    // Nothing of the unit before can stay: all of it is stored.
    let late = Resolved { extents: vec![], late: Some(100..100 + 3 * B) };
    assert_eq!(resolve(100..100 + 3 * B, false, &[unit(2 * B, 2), unit(2 * B, 2)]), Some(late));
    // Broken promises are noticed.
    assert_eq!(resolve(0..15 * B, false, &[unit(B, 2), unit(20 * B, 3)]), None);
    assert_eq!(resolve(0..15 * B, false, &[unit(10 * B, 2)]), None);
    assert_eq!(resolve(0..15 * B, false, &[unit(0, 1), unit(20 * B, 3)]), None);
}

#[test]
fn plain_bytes_are_referred_to_as_a_whole() {
    let rules = IndexRules::encoded_extents();
    let unit = |is_whole| Unit { llen: 30_000, blocks: 1, is_whole };
    let resolve = |end: u64, is_whole| resolve_ref(100..end, false, [unit(false), unit(is_whole)], rules).unwrap();
    assert_eq!(resolve(60_100, true).late, None);
    assert_eq!(resolve(50_100, false).late, None);
    let cut = resolve(50_100, true);
    assert_eq!((cut.extents.len(), cut.late), (1, Some(30_100..50_100)));
}

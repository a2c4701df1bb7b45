//! Our own deflate encoder: its peculiarities. `round_trip.rs` has the tests that all methods
//! share.

use crate::common::{Packed, Random, decoder, inputs, pack, verify};
use kiln_codec::{Decoder, Encoder, Method, Spec};

const LEVELS: std::ops::RangeInclusive<i32> = 1..=9;

fn spec(level: i32, pcluster_len: usize) -> Spec {
    Spec::new(Method::Deflate, Some(level), pcluster_len as u32).unwrap()
}

/// Returns the inputs of all methods, and some to which matches are sensitive.
fn more_inputs(len: usize) -> Vec<(&'static str, Vec<u8>)> {
    let mut random = Random(21);
    let mut all = inputs(len);
    let mut periodic = |period: usize| random.bytes(period).repeat(len / period + 1)[..len].to_vec();
    all.push(("period 3", periodic(3)));
    all.push(("period 257", periodic(257)));
    all.push(("the whole window", periodic(32 << 10)));
    all.push(("just beyond the window", periodic((32 << 10) + 1)));
    all.push(("long matches", long_matches(len)));
    all
}

/// Returns copies of some hundred bytes from anywhere within 40 KB, with noise between them.
fn long_matches(len: usize) -> Vec<u8> {
    let mut random = Random(22);
    let mut out = random.bytes(1000);
    while out.len() < len {
        let from = out.len() - 1 - random.below(out.len().min(40_000));
        let copy = random.below(700);
        (from..from + copy).for_each(|i| out.push(out[i]));
        let noise = random.below(30);
        out.extend(random.bytes(noise));
    }
    out.truncate(len);
    out
}

fn check(decoder: &mut Decoder, packed: &[Packed], input: &[u8], spec: &Spec) {
    let mut at = 0;
    for Packed { filled, stream } in packed {
        assert!(filled.produced <= spec.pcluster_len as usize);
        if filled.consumed == 0 {
            at += (input.len() - at).min(spec.pcluster_len as usize);
            continue;
        }
        assert_ne!(stream[0], 0, "{spec:?}: begins with zero");
        verify(decoder, Method::Deflate, stream, &input[at..at + filled.consumed]);
        at += filled.consumed;
    }
    assert_eq!(at, input.len());
}

fn streams(packed: &[Packed]) -> Vec<&[u8]> {
    packed.iter().map(|p| &p.stream[..]).collect()
}

/// All levels decode, and an encoder that saw other data before returns the same bytes.
#[test]
fn every_level_and_room() {
    let mut decoder = decoder();
    for (pcluster_len, len) in [(4 << 10, 60_000), (8 << 10, 60_000), (64 << 10, 300_000)] {
        let inputs = more_inputs(len);
        for level in LEVELS {
            let spec = spec(level, pcluster_len);
            let mut used = Encoder::new(&spec).unwrap();
            for (_, input) in &inputs {
                let packed = pack(&mut used, &spec, input);
                check(&mut decoder, &packed, input, &spec);
                let fresh = pack(&mut Encoder::new(&spec).unwrap(), &spec, input);
                assert!(streams(&packed) == streams(&fresh), "{spec:?}: depends on the past");
            }
        }
    }
}

/// Several pclusters of 1 MiB: the tables wrap around many times.
#[test]
fn large_rooms() {
    let mut decoder = decoder();
    for level in [1, 6, 8] {
        let spec = spec(level, 1 << 20);
        let mut encoder = Encoder::new(&spec).unwrap();
        for (_, input) in more_inputs(3 << 20) {
            check(&mut decoder, &pack(&mut encoder, &spec, &input), &input, &spec);
        }
    }
}

#[test]
fn every_short_input() {
    let mut decoder = decoder();
    let mut random = Random(23);
    let (noise, text) = (random.bytes(300), crate::common::text(&mut random, 300));
    for level in [1, 6, 9] {
        // A buffer longer than the input goes through libdeflate at levels 1 to 8.
        for pcluster_len in [512, 4 << 10] {
            let spec = spec(level, pcluster_len);
            let mut encoder = Encoder::new(&spec).unwrap();
            for len in 0..=300 {
                for input in [&noise[..len], &text[..len], &[0; 300][..len]] {
                    check(&mut decoder, &pack(&mut encoder, &spec, input), input, &spec);
                }
            }
        }
    }
}

/// Every buffer of up to some hundred bytes, with more input than fits.
#[test]
fn every_small_room() {
    let mut decoder = decoder();
    let mut random = Random(24);
    let inputs = [crate::common::text(&mut random, 3000), crate::common::binary(&mut random, 3000), vec![0; 100_000]];
    for level in [1, 5, 9] {
        let mut encoder = Encoder::new(&spec(level, 512)).unwrap();
        for room in 0..400 {
            for input in &inputs {
                encoder.reset();
                let mut out = vec![0xAA; room];
                let filled = encoder.fill(input, &mut out).unwrap();
                assert!(filled.produced <= room);
                if filled.consumed > 0 {
                    verify(&mut decoder, Method::Deflate, &out[..filled.produced], &input[..filled.consumed]);
                }
                assert!(filled.consumed > room || room < 150, "{room}: {filled:?}");
            }
        }
    }
}

/// Full pclusters are full to the last bytes.
#[test]
fn rooms_are_full() {
    let mut random = Random(25);
    let input = [crate::common::text(&mut random, 1 << 20), crate::common::binary(&mut random, 1 << 20)].concat();
    for (pcluster_len, min) in [(4 << 10, 0.998), (8 << 10, 0.998), (64 << 10, 0.999)] {
        for level in [1, 6, 9] {
            let spec = spec(level, pcluster_len);
            let packed = pack(&mut Encoder::new(&spec).unwrap(), &spec, &input);
            let full = &packed[..packed.len() - 1];
            let produced: usize = full.iter().map(|p| p.filled.produced).sum();
            let fill = produced as f64 / (full.len() * pcluster_len) as f64;
            assert!(fill >= min, "{spec:?}: {fill}");
        }
    }
}

/// Slower levels pack more. Within a strategy, levels may be equal here; level 1 may win against
/// greedy ones, which take short matches that do not pay in this text.
#[test]
fn levels_are_in_order() {
    let input = crate::common::text(&mut Random(26), 1 << 20);
    let used = |level| -> usize {
        let spec = spec(level, 16 << 10);
        pack(&mut Encoder::new(&spec).unwrap(), &spec, &input).iter().map(|p| p.filled.produced).sum()
    };
    let [fast, greedy, lazy, best] = [1, 3, 6, 9].map(used);
    assert!(best < fast && best < lazy && lazy < greedy, "{fast} {greedy} {lazy} {best}");
}

//! Decoders read what encoders write, and the output of encoders does not depend on their past.

use crate::common::{Random, decoder, inputs, levels, pack, verify};
use kiln_codec::{Decoder, Encoder, Filled, Method, Spec, Want};
use kiln_format::compr_cfg::EXTENT_MAX_LEN;
use proptest::prelude::*;

fn round_trip(decoder: &mut Decoder, spec: &Spec, input: &[u8], name: &str) -> usize {
    let mut encoder = Encoder::new(spec).unwrap();
    let packed = pack(&mut encoder, spec, input);
    let (mut at, mut used) = (0, 0);
    for pcluster in &packed {
        let Filled { consumed, produced } = pcluster.filled;
        if consumed == 0 {
            let stored = (input.len() - at).min(spec.pcluster_len as usize);
            (at, used) = (at + stored, used + stored);
            continue;
        }
        let context = format!("{spec:?}, {name} at {at}");
        assert!(produced < consumed && consumed <= EXTENT_MAX_LEN, "{context}: {consumed} to {produced}");
        assert_ne!(pcluster.stream[0], 0, "{context}: begins with zero");
        verify(decoder, spec.method, &pcluster.stream, &input[at..at + consumed]);
        (at, used) = (at + consumed, used + produced);
    }
    assert_eq!(at, input.len());

    let again = pack(&mut encoder, spec, input);
    assert!(
        packed.iter().map(|p| &p.stream).eq(again.iter().map(|p| &p.stream)),
        "{spec:?}, {name}: depends on the past"
    );
    used
}

fn round_trips(method: Method) {
    let mut decoder = decoder();
    for (pcluster_len, len) in [(4 << 10, 60_000), (64 << 10, 400_000), (1 << 20, 900_000)] {
        let inputs = inputs(len);
        for &level in levels(method) {
            let spec = Spec::new(method, Some(level), pcluster_len).unwrap();
            for (name, input) in &inputs {
                let used = round_trip(&mut decoder, &spec, input, name);
                match *name {
                    "random" => assert!(used >= len, "{spec:?}: random bytes shrank"),
                    "zeros" => assert!(used < len / 100, "{spec:?}: {used} bytes for zeros"),
                    _ => assert!(used < len * 85 / 100, "{spec:?}: {used} bytes of {len} for {name}"),
                }
            }
        }
    }
}

#[test]
fn lz4() {
    round_trips(Method::Lz4);
}

#[test]
fn lz4hc() {
    round_trips(Method::Lz4hc);
}

#[test]
fn lzma() {
    round_trips(Method::Lzma);
}

#[test]
fn deflate() {
    round_trips(Method::Deflate);
}

#[test]
fn zstd() {
    round_trips(Method::Zstd);
}

/// Several pclusters of 1 MiB and 256 KiB: zstd streams and cuts these.
#[test]
fn zstd_streams() {
    let mut decoder = decoder();
    for (name, input) in inputs(5 << 20) {
        for pcluster_len in [256 << 10, 1 << 20] {
            let spec = Spec::new(Method::Zstd, Some(1), pcluster_len).unwrap();
            round_trip(&mut decoder, &spec, &input, name);
        }
    }
}

/// libzstd refuses to parse inputs whose last block has less than 7 bytes.
#[test]
fn zstd_input_ends_just_behind_a_block() {
    let input = crate::common::text(&mut Random(13), (256 << 10) + 16);
    let mut decoder = decoder();
    for level in [1, 3, 16] {
        let spec = Spec::new(Method::Zstd, Some(level), 128 << 10).unwrap();
        for len in [32 << 10, 128 << 10, 256 << 10] {
            for more in [0, 1, 2, 6, 7, 9] {
                round_trip(&mut decoder, &spec, &input[..len + more], "just behind a block");
            }
        }
    }
}

/// Searching and cutting must not waste room: full pclusters are nearly full.
#[test]
fn pclusters_are_full() {
    let input = crate::common::text(&mut Random(7), 3 << 20);
    for (method, pcluster_len, min) in [
        (Method::Lz4, 4 << 10, 0.995),
        (Method::Lz4hc, 64 << 10, 0.998),
        (Method::Lzma, 4 << 10, 0.99),
        (Method::Deflate, 4 << 10, 0.985),
        (Method::Deflate, 64 << 10, 0.99),
        (Method::Zstd, 4 << 10, 0.985),
        (Method::Zstd, 64 << 10, 0.99),
        (Method::Zstd, 256 << 10, 0.97),
    ] {
        let spec = Spec::new(method, None, pcluster_len).unwrap();
        let packed = pack(&mut Encoder::new(&spec).unwrap(), &spec, &input);
        let (_, full) = packed.split_last().unwrap();
        let produced: usize = full.iter().map(|p| p.filled.produced).sum();
        let fill = produced as f64 / (full.len() * pcluster_len as usize) as f64;
        assert!(fill >= min, "{spec:?}: {fill}");
    }
}

/// An encoder that saw other data before the reset returns the bytes of a new one.
#[test]
fn reset_forgets() {
    let inputs = inputs(700_000);
    for method in [Method::Lz4, Method::Lz4hc, Method::Deflate, Method::Zstd] {
        for pcluster_len in [4 << 10, 128 << 10, 256 << 10] {
            let spec = Spec::new(method, Some(1), pcluster_len).unwrap();
            let mut used = Encoder::new(&spec).unwrap();
            for (name, input) in &inputs {
                let with_used = pack(&mut used, &spec, input);
                let with_new = pack(&mut Encoder::new(&spec).unwrap(), &spec, input);
                assert!(with_used.iter().map(|p| &p.stream).eq(with_new.iter().map(|p| &p.stream)), "{spec:?}, {name}");
            }
        }
    }
}

/// Noise before text: deflate begins with a stored block, whose header is a zero byte.
#[test]
fn streams_that_begin_with_a_stored_block() {
    let mut random = Random(17);
    let input = [random.bytes(100_000), crate::common::text(&mut random, 300_000)].concat();
    for method in Method::ALL {
        let spec = Spec::new(method, None, 1 << 20).unwrap();
        let used = round_trip(&mut decoder(), &spec, &input, "noise, then text");
        assert!(used < 300_000, "{method:?}: {used}");
    }
}

#[test]
fn extents_end_where_kernels_stop() {
    let zeros = vec![0; EXTENT_MAX_LEN + 5000];
    let mut out = vec![0; 64 << 10];
    let mut plain = vec![1; EXTENT_MAX_LEN];
    for method in Method::ALL {
        let spec = Spec::new(method, Some(1), 64 << 10).unwrap();
        let filled = Encoder::new(&spec).unwrap().fill(&zeros, &mut out).unwrap();
        assert!(filled.consumed <= EXTENT_MAX_LEN && filled.consumed > EXTENT_MAX_LEN / 2, "{method:?}: {filled:?}");
        let plain = &mut plain[..filled.consumed];
        decoder().decode(method.algorithm(), &out[..filled.produced], plain, Want::Whole).unwrap();
        assert!(plain.iter().all(|&byte| byte == 0));
    }
}

#[test]
fn tiny_inputs() {
    let mut decoder = decoder();
    let mut random = Random(3);
    for method in Method::ALL {
        for pcluster_len in [512, 4 << 10, 1 << 20] {
            let spec = Spec::new(method, None, pcluster_len).unwrap();
            for len in 0..=50 {
                for input in [vec![b'x'; len], random.bytes(len), b"abcab".repeat(10)[..len].to_vec()] {
                    round_trip(&mut decoder, &spec, &input, "tiny");
                }
            }
        }
    }
}

/// Buffers smaller than the pcluster, down to nothing, as for the last extent of a part or an
/// inline tail.
#[test]
fn small_rooms() {
    let input = crate::common::text(&mut Random(5), 20_000);
    let mut decoder = decoder();
    for method in Method::ALL {
        for pcluster_len in [4 << 10, 1 << 20] {
            let mut encoder = Encoder::new(&Spec::new(method, None, pcluster_len).unwrap()).unwrap();
            for room in [0, 1, 5, 6, 7, 11, 12, 20, 100, 1000, 4095] {
                let mut out = vec![0; room];
                let filled = encoder.fill(&input, &mut out).unwrap();
                assert!(filled.produced <= room);
                if filled.consumed > 0 {
                    verify(&mut decoder, method, &out[..filled.produced], &input[..filled.consumed]);
                }
                assert!(room < 1000 || filled.consumed > room, "{method:?} {room}");
            }
        }
    }
}

/// The image may declare a window smaller than the kernel's limit: our streams stay within that of
/// the spec.
#[test]
fn streams_keep_within_the_declared_window() {
    let input = crate::common::mixed(&mut Random(11), 300_000);
    for method in [Method::Lzma, Method::Zstd] {
        let spec = Spec::new(method, None, 4 << 10).unwrap();
        let limits =
            kiln_codec::DecodeLimits { lzma_dict_size: spec.lzma_dict_size(), zstd_window_log: spec.zstd_window_log() };
        let mut decoder = Decoder::new(limits);
        round_trip(&mut decoder, &spec, &input, "mixed");
    }
}

/// Returns text, noise with some short copies from always the same distance, and more such copies.
fn noise_with_copies(seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    let mut input = Vec::new();
    for _ in 0..6 {
        let text_len = 2000 + random.below(30_000);
        input.extend_from_slice(&crate::common::binary(&mut random, text_len));
        let (noise_len, dist, copy_len) =
            (300 + random.below(4000), 5 + random.below(text_len - 10), 3 + random.below(4));
        let mut copy = |noise_len, copy_len: usize| {
            input.extend_from_slice(&random.bytes(noise_len));
            let from = input.len() - dist;
            input.extend_from_within(from..from + copy_len.min(dist));
        };
        (0..40_000 / noise_len).for_each(|_| copy(noise_len, copy_len));
        (0..20).for_each(|_| copy(30, 60));
    }
    input
}

/// A block of noise with a few matches is stored uncompressed, and readers do not see the offsets
/// of these matches, so following sequences must not repeat them. A former bug did with these
/// inputs.
#[test]
fn offsets_of_plain_blocks_are_not_repeated() {
    for (seed, level) in [(1, 1), (2, 3), (3, 5)] {
        let input = noise_with_copies(seed);
        for pcluster_len in [16 << 10, 64 << 10, 128 << 10] {
            let spec = Spec::new(Method::Zstd, Some(level), pcluster_len).unwrap();
            round_trip(&mut decoder(), &spec, &input, "noise with copies");
            for len in [1 << 10, 4 << 10, 8 << 10] {
                round_trip(&mut decoder(), &spec.with_window(len).unwrap(), &input, "noise with copies");
            }
        }
    }
}

#[test]
fn coders_move_between_threads() {
    fn assert_send<T: Send>() {}
    assert_send::<Encoder>();
    assert_send::<Decoder>();
}

fn any_method() -> impl Strategy<Value = Method> {
    prop::sample::select(Method::ALL.as_slice())
}

/// Generates bytes of an alphabet of 1 to 256 values: from one run to noise.
fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    (0u32..=8).prop_flat_map(|bits| {
        prop::collection::vec((0u8..=255).prop_map(move |b| (u32::from(b) >> (8 - bits)) as u8), 1..20_000)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_input_round_trips(method in any_method(), input in any_bytes(), blocks in 1u32..20) {
        let spec = Spec::new(method, None, blocks * 512).unwrap();
        round_trip(&mut decoder(), &spec, &input, "any");
    }
}

//! Damaged and random streams: errors or wrong bytes, never a panic, never a hang.

use crate::common::{Random, decoder, inputs, pack};
use kiln_codec::{CodecError, DecodeLimits, Decoder, Encoder, Method, Reason, Spec, Want};
use kiln_format::Algorithm;
use proptest::prelude::*;

/// Returns streams of every kind of input, with their plain lengths.
fn streams(method: Method) -> Vec<(Vec<u8>, usize)> {
    let mut streams = Vec::new();
    for (pcluster_len, len) in [(4 << 10, 20_000), (256 << 10, 200_000)] {
        let spec = Spec::new(method, None, pcluster_len).unwrap();
        for (_, input) in inputs(len) {
            let packed = pack(&mut Encoder::new(&spec).unwrap(), &spec, &input);
            streams.extend(
                packed.into_iter().filter(|p| p.filled.consumed > 0).take(3).map(|p| (p.stream, p.filled.consumed)),
            );
        }
    }
    streams
}

fn mutate(random: &mut Random, stream: &mut Vec<u8>) {
    for _ in 0..1 + random.below(4) {
        // Headers and tables are at the front: half of the damage goes there.
        let reach = if random.below(2) == 0 { stream.len().min(24) } else { stream.len() };
        let at = random.below(reach.max(1));
        match random.below(6) {
            _ if stream.is_empty() => stream.push(random.next() as u8),
            0 => stream.truncate(at),
            1 => stream.extend((0..1 + random.below(40)).map(|_| random.next() as u8).collect::<Vec<_>>()),
            2 => stream[at] = [0, 0xFF, 0x80, 1][random.below(4)],
            3 => {
                stream.remove(at);
            }
            4 => stream[at] ^= 1 << random.below(8),
            _ => stream[at] = random.next() as u8,
        }
    }
}

fn survives(method: Method) {
    let algorithm = method.algorithm();
    let streams = streams(method);
    let mut random = Random(99);
    let mut decoder = decoder();
    let mut dst = vec![0; 1 << 20];
    let mut refused = 0;
    const ROUNDS: usize = 6000;
    for round in 0..ROUNDS {
        let (stream, plain_len) = &streams[round % streams.len()];
        let mut stream = stream.clone();
        mutate(&mut random, &mut stream);
        let len = match random.below(4) {
            0 => random.below(2 * plain_len),
            _ => *plain_len,
        };
        let dst = &mut dst[..len];
        let want = if round % 2 == 0 { Want::Whole } else { Want::Prefix };
        refused += usize::from(decoder.decode(algorithm, &stream, dst, want).is_err());
        if algorithm == Algorithm::Lz4 {
            let _ = decoder.decode_lz4_unpadded(&stream, dst);
        }
    }
    assert!(refused > ROUNDS / 10, "only {refused} refused: the mutations do nothing");

    // The decoder still works.
    let (stream, plain_len) = &streams[0];
    decoder.decode(algorithm, stream, &mut dst[..*plain_len], Want::Whole).unwrap();
}

#[test]
fn lz4_survives() {
    survives(Method::Lz4hc);
}

#[test]
fn lzma_survives() {
    survives(Method::Lzma);
}

#[test]
fn deflate_survives() {
    survives(Method::Deflate);
}

#[test]
fn zstd_survives() {
    survives(Method::Zstd);
}

#[test]
fn lengths_are_checked() {
    let mut decoder = decoder();
    for method in Method::ALL {
        let algorithm = method.algorithm();
        for (stream, len) in streams(method) {
            let mut decode =
                |stream: &[u8], len: usize, want| decoder.decode(algorithm, stream, &mut vec![0; len], want);
            assert!(decode(&stream, len - 1, Want::Whole).is_err(), "{method:?}: shorter");
            assert!(decode(&stream, len + 1, Want::Whole).is_err(), "{method:?}: longer");
            // A MicroLZMA stream has no end of its own: a few more symbols can be decoded from its
            // last bits.
            let endless = algorithm == Algorithm::Lzma;
            assert!(endless || decode(&stream, len + 1, Want::Prefix).is_err(), "{method:?}: longer prefix");
            assert!(decode(&stream[..stream.len() - 1], len, Want::Whole).is_err(), "{method:?}: cut off");
            assert!(decode(&[], len, Want::Whole).is_err(), "{method:?}: empty");
            let trailing = [stream.as_slice(), &[0x55; 3]].concat();
            let refused = decode(&trailing, len, Want::Whole).is_err();
            assert_eq!(refused, matches!(algorithm, Algorithm::Lz4 | Algorithm::Lzma), "{method:?}: trailing bytes");
        }
    }
}

#[test]
fn zstd_frames_are_checked() {
    let (stream, len) = streams(Method::Zstd).swap_remove(0);
    let mut dst = vec![0; len];
    let mut decode = |stream: &[u8], limits, want| {
        let result = Decoder::new(limits).decode(Algorithm::Zstd, stream, &mut dst, want);
        result.map_err(|error| match error {
            CodecError::Corrupt { reason, .. } => reason,
            other => panic!("{other}"),
        })
    };
    let skippable = [&[0x50, 0x2A, 0x4D, 0x18, 1, 0, 0, 0, 9], stream.as_slice()].concat();
    let small = DecodeLimits { zstd_window_log: 10, ..Default::default() };
    for want in [Want::Whole, Want::Prefix] {
        assert_eq!(decode(&stream, Default::default(), want), Ok(()));
        assert_eq!(decode(&stream[1..], Default::default(), want), Err(Reason::Frame), "no magic");
        assert_eq!(decode(&skippable, Default::default(), want), Err(Reason::Frame), "skippable");
        assert_eq!(decode(&stream, small, want), Err(Reason::Window));
    }
}

/// Two frames are not one, even if their text together has the right length.
#[test]
fn zstd_takes_one_frame_only() {
    let spec = Spec::new(Method::Zstd, None, 4096).unwrap();
    let mut out = vec![0; 4096];
    let produced = Encoder::new(&spec).unwrap().fill(&[7; 1000], &mut out).unwrap().produced;
    let two = [&out[..produced], &out[..produced]].concat();
    let mut dst = vec![0; 2000];
    for want in [Want::Whole, Want::Prefix] {
        assert!(decoder().decode(Algorithm::Zstd, &two, &mut dst, want).is_err());
    }
}

/// Old images pad after the stream.
#[test]
fn lz4_without_padding_in_front() {
    let (mut stream, len) = streams(Method::Lz4).swap_remove(0);
    let mut want = vec![0; len];
    decoder().decode(Algorithm::Lz4, &stream, &mut want, Want::Whole).unwrap();
    stream.extend_from_slice(&[0; 100]);
    let mut dst = vec![1; len];
    decoder().decode_lz4_unpadded(&stream, &mut dst).unwrap();
    assert!(dst == want);
    assert!(decoder().decode(Algorithm::Lz4, &stream, &mut dst, Want::Whole).is_err());
}

/// A match at distance 0 copies nothing: the previous bytes stay. Decoding does not detect it,
/// verifying does.
#[test]
fn lz4_matches_at_distance_0_are_found() {
    let literals = |token: u8, bytes: &[u8]| [&[token], bytes].concat();
    let end = literals(0xC0, b"twelve bytes");
    let good = [literals(0x40, b"good"), vec![1, 0], end.clone()].concat();
    let bad = [literals(0x40, b"bad!"), vec![0, 0], end].concat();
    for stream in [&good, &bad] {
        decoder().decode(Algorithm::Lz4, stream, &mut [0; 20], Want::Whole).unwrap();
    }
    let verify = |stream: &[u8], len| Decoder::verify(Algorithm::Lz4, stream, len);
    assert_eq!(verify(&good, 20), Ok(()));
    let malformed = CodecError::Corrupt { algorithm: Algorithm::Lz4, reason: Reason::Malformed };
    assert_eq!(verify(&bad, 20), Err(malformed));
    // A fault after the wanted bytes does no harm: zeros after the stream in old images look like
    // such matches.
    assert_eq!(verify(&bad, 4), Ok(()));
    assert_eq!(verify(&[&good[..], &[0; 100]].concat(), 20), Ok(()));
    // No encoder's streams have such matches, however long their runs are.
    for (stream, len) in streams(Method::Lz4).into_iter().chain(streams(Method::Lz4hc)) {
        assert_eq!(verify(&stream, len), Ok(()));
    }
}

/// A stored deflate block that is not the last begins with a zero byte, which readers would skip:
/// its padding bits are set.
#[test]
fn deflate_accepts_set_padding_bits() {
    let stream = [0x08, 2, 0, 0xFD, 0xFF, b'a', b'b', 0x01, 1, 0, 0xFE, 0xFF, b'c'];
    for want in [Want::Whole, Want::Prefix] {
        let mut dst = [0; 3];
        decoder().decode(Algorithm::Deflate, &stream, &mut dst, want).unwrap();
        assert_eq!(&dst, b"abc");
    }
}

/// Literal/length symbol 286, which does not exist, in a block of the fixed codes: libdeflate takes
/// it for a length.
#[test]
fn verification_finds_invalid_deflate_symbols() {
    const STREAM: [u8; 16] =
        [0x63, 0x18, 0x05, 0xA3, 0x60, 0x14, 0x8C, 0x82, 0x51, 0x30, 0x0A, 0xC6, 0xC1, 0x90, 0x07, 0x00];
    let mut decoder = Decoder::new(DecodeLimits::default());
    let mut plain = vec![0; 2000];
    assert!(decoder.decode(Algorithm::Deflate, &STREAM, &mut plain, Want::Whole).is_ok());
    assert!(decoder.decode(Algorithm::Deflate, &STREAM, &mut plain, Want::Prefix).is_err());
    assert!(Decoder::verify(Algorithm::Deflate, &STREAM, 2000).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_survived(
        algorithm in prop::sample::select(Algorithm::ALL.as_slice()),
        stream in prop::collection::vec(any::<u8>(), 0..300),
        len in 0usize..5000,
    ) {
        let mut dst = vec![0; len];
        let _ = decoder().decode(algorithm, &stream, &mut dst, Want::Whole);
        let _ = decoder().decode(algorithm, &stream, &mut dst, Want::Prefix);
        let _ = decoder().decode_lz4_unpadded(&stream, &mut dst);
    }
}

//! Versions of encoders identify the bytes that they produce.

use kiln_codec::{Encoder, Method, Spec};

/// Updates an FNV-1a hash.
fn digest(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}

/// Returns the digest of a method's streams of a text, at some levels, filling pclusters and
/// encoding units.
fn streams(method: Method) -> u64 {
    let text: Vec<u8> = (0..60_000u32)
        .flat_map(|n| {
            format!("{:x} {} ", n.wrapping_mul(2_654_435_761) >> 22, ["word", "text", "name"][n as usize % 3])
                .into_bytes()
        })
        .collect();
    let levels = method.levels();
    let mut hash = 0xCBF2_9CE4_8422_2325;
    let more = if method == Method::Zstd { &[9][..] } else { &[] }; // a match finder of our own
    for level in [*levels.start(), method.default_level(), *levels.end()].iter().chain(more) {
        for pcluster_len in [4096, 65536, 1 << 20] {
            let mut encoder = Encoder::new(&Spec::new(method, Some(*level), pcluster_len).unwrap()).unwrap();
            let (mut out, mut rest) = (vec![0; pcluster_len as usize], &text[..]);
            for _ in 0..3 {
                let filled = encoder.fill(rest, &mut out).unwrap();
                hash = digest(hash, &out[..filled.produced]);
                rest = &rest[filled.consumed..];
            }
            if let Some(len) = encoder.encode(&text[..20_000], &mut out).unwrap() {
                hash = digest(hash, &out[..len]);
            }
        }
    }
    hash
}

/// Patches between images rely on this. If streams change, the version in
/// [`Method::encoder_version`] must change, too.
#[test]
fn a_version_stands_for_the_same_streams() {
    let expected: [(Method, u64, u64); 5] = [
        (Method::Lz4, 0x1_00002AF8, 0x4C11_44DF_F26A_424F),
        (Method::Lz4hc, 0x1_00002AF8, 0x2713_FCB7_7B8B_FDCE),
        (Method::Lzma, 0x1_02FC292A, 0x7E7E_BB0C_AA9C_E3EB),
        (Method::Deflate, 0x1_00000126, 0x5717_609E_2066_3956),
        (Method::Zstd, 0x2_0000290B, 0x50D9_4AC0_74EA_78AC),
    ];
    let found = expected.map(|(method, ..)| (method, method.encoder_version(), streams(method)));
    assert_eq!(found, expected, "{found:#x?}");
}

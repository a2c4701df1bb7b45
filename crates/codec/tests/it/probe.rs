//! The probe distinguishes noise from everything else.

use crate::common::Random;
use kiln_codec::Method;
use kiln_codec::probe::{is_incompressible, start_is_incompressible};

#[test]
fn only_noise_is_incompressible() {
    let mut random = Random(21);
    for len in [4096, 5000, 65536, 65537, 200_000, 1 << 20] {
        assert!(is_incompressible(&random.bytes(len)), "{len} random bytes");
    }
    for (name, input) in crate::common::inputs(300_000) {
        assert_eq!(is_incompressible(&input), name == "random", "{name}");
    }
}

/// Beginnings of small files: repeats suit any method, few different bytes suit methods with an
/// entropy coder, and noise or compressed data suits none.
#[test]
fn starts_are_judged_by_repeats_and_by_entropy() {
    let mut random = Random(5);
    for len in [513, 800, 2000, 4096] {
        let mut of = |values: usize| (0..len).map(|_| (random.below(values) * 256 / values) as u8).collect::<Vec<_>>();
        for (values, lz4, others) in [(16, true, false), (64, true, false), (256, true, true)] {
            for _ in 0..20 {
                let start = of(values);
                assert_eq!(start_is_incompressible(&start, Method::Lz4hc), lz4, "{values} values in {len} bytes");
                for method in [Method::Deflate, Method::Lzma, Method::Zstd] {
                    assert_eq!(start_is_incompressible(&start, method), others, "{values} values in {len} bytes");
                }
            }
        }
    }
    let text = crate::common::text(&mut random, 4096);
    assert!(Method::ALL.iter().all(|method| !start_is_incompressible(&text, *method)));
    assert!(Method::ALL.iter().all(|method| !start_is_incompressible(&random.bytes(512), *method)));
}

#[test]
fn little_data_is_tried() {
    assert!(!is_incompressible(&[]));
    assert!(!is_incompressible(&Random(1).bytes(4095)));
}

/// Entropy alone does not see repeats.
#[test]
fn repeated_noise_is_compressible() {
    let piece = Random(2).bytes(8 << 10);
    assert!(!is_incompressible(&piece.repeat(16)));
}

#[test]
fn one_compressible_unit_is_enough() {
    let mut data = Random(4).bytes(256 << 10);
    data[100 << 10..164 << 10].fill(b' ');
    assert!(!is_incompressible(&data));
}

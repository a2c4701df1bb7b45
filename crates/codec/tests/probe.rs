//! The probe tells noise from everything else.

mod common;

use common::Random;
use kiln_codec::probe::is_incompressible;

#[test]
fn noise_is_incompressible_and_nothing_else() {
    let mut random = Random(21);
    for len in [4096, 5000, 65536, 65537, 200_000, 1 << 20] {
        assert!(is_incompressible(&random.bytes(len)), "{len} random bytes");
    }
    for (name, input) in common::inputs(300_000) {
        assert_eq!(is_incompressible(&input), name == "random", "{name}");
    }
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

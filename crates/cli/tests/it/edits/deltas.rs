//! Patches between any two images.

use crate::common::{Scratch, stdout};
use kiln_tests::rng::Rng;
use std::fs;

/// The images for which a patch finds out how their pclusters were encoded. That takes ten times as long as all
/// else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proofs {
    All,
    OfSmallImages,
}

/// Most bytes of a small image.
const SMALL_MAX: u64 = 1 << 20;

/// Checks that a patch turns `old` into `new` byte for byte, both beside it and in place.
pub fn go_through_a_patch(scratch: &Scratch, rng: &mut Rng, proofs: Proofs, [old, new]: [&str; 2]) {
    let [patch, made] = ["patch", "made.erofs"].map(|name| scratch.path(name));
    let is_proved = proofs == Proofs::All || fs::metadata(new).unwrap().len() <= SMALL_MAX;
    let portable = if rng.below(3) == 0 || !is_proved { &["--portable"][..] } else { &[] };
    stdout(&[&["patch", "make", "--quiet"], portable, &[old, new, &patch]].concat());
    stdout(&["patch", "apply", "--quiet", old, &patch, &made]);
    let expected = fs::read(new).unwrap();
    assert!(fs::read(&made).unwrap() == expected, "{old} and a patch make {new}");
    fs::copy(old, &made).unwrap();
    stdout(&["patch", "apply", "--quiet", "--in-place", &made, &patch]);
    assert!(fs::read(&made).unwrap() == expected, "{old} becomes {new} by a patch in place");
}

//! Random edits of random trees through each command that makes an image from an older one. All readers of the
//! result find the tree, so `kiln diff` finds no difference to a fresh pack of it.
//!
//! `./test.sh --long` makes ten trees for each line of options of kiln and of mkfs.erofs. Without it, there is one tree
//! for each third line. `KILN_EDITS=n` sets the number of trees. `KILN_EDITS_SEED=n` selects one tree alone: a failure
//! prints its seed. `KILN_EDITS_FROM=n` skips the first n seeds, and `KILN_EDITS_STEP=n` takes each
//! n-th one.

mod deltas;
mod starts;
mod story;

use deltas::Proofs;
use kiln_tests::{rounds, without};
use starts::{MKFS, WAYS};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use story::{Start, Story};

/// First seed of trees that begin as images of mkfs.erofs.
const MKFS_SEEDS: u64 = 1 << 32;
/// Runs the story of one tree.
fn tell(seed: u64) {
    let (start, turn) = match seed.checked_sub(MKFS_SEEDS) {
        None => (Start::Kiln(WAYS[seed as usize % WAYS.len()]), seed / WAYS.len() as u64),
        // For each line of options another preset for new data.
        Some(nth) => {
            let line = MKFS[nth as usize % MKFS.len()];
            (Start::Mkfs(line, WAYS[nth as usize % 7]), nth / MKFS.len() as u64)
        }
    };
    // The first trees, which every run of the tests has, need less.
    let proofs = if turn > 0 && seed.is_multiple_of(5) { Proofs::All } else { Proofs::OfSmallImages };
    let told = catch_unwind(AssertUnwindSafe(|| {
        let mut story = Story::begin(seed, start, proofs);
        (0..1 + seed % 2 + turn % 3).for_each(|_| story.round());
        story.end();
    }));
    if told.is_err() {
        panic!("the edits above failed, KILN_EDITS_SEED={seed}: {start:?}");
    }
}

/// Runs the stories of trees that begin with `lines` kinds of images, from seed `first` on, or the one that is asked
/// for.
fn tell_all(first: u64, lines: u64) {
    match std::env::var("KILN_EDITS_SEED") {
        Ok(_) => {
            let seed = rounds("KILN_EDITS_SEED", 0, 0);
            if (seed >= MKFS_SEEDS) == (first >= MKFS_SEEDS) {
                tell(seed);
            }
        }
        Err(_) => {
            let (step, count) = (rounds("KILN_EDITS_STEP", 3, 1), rounds("KILN_EDITS", lines.div_ceil(3), 10 * lines));
            let from = first + rounds("KILN_EDITS_FROM", 0, 0);
            (from..).step_by(step as usize).take(count as usize).for_each(tell);
            println!("{count} trees from seed {from}, each {step}");
        }
    }
}

#[test]
fn edited_trees_are_what_they_were_packed_from() {
    tell_all(0, WAYS.len() as u64);
}

#[test]
fn images_of_mkfs_erofs_become_edited_trees() {
    match Command::new("mkfs.erofs").arg("-V").output() {
        Ok(output) if output.status.success() => tell_all(MKFS_SEEDS, MKFS.len() as u64),
        _ => without("mkfs.erofs"),
    }
}

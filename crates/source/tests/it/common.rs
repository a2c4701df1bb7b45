//! What the tests of sources share.

use kiln_builder::tree::Tree;
use kiln_diff::{Change, DiffOptions, DiffSummary, diff};
use kiln_parallel::Threads;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

/// Never set: what looks at it goes on.
pub static GOING: AtomicBool = AtomicBool::new(false);

/// What is different between two trees.
pub fn changes(a: &Tree, b: &Tree) -> (Vec<Change>, DiffSummary) {
    let options = DiffOptions {
        path: b"",
        ignore: &[],
        brief: false,
        threads: Threads::at_least_one(2),
        stop: &GOING,
        progress: None,
    };
    let mut list = Vec::new();
    let summary = diff(a, b, &options, &mut |change| {
        list.push(change);
        ControlFlow::Continue(())
    });
    (list, summary.unwrap())
}

//! What the tests of sources share.

use kiln_builder::tree::Tree;
use kiln_diff::{Change, DiffOptions, DiffSummary, diff};
use kiln_parallel::Threads;
use kiln_tests::snapshot::Snapshot;
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

/// A line for each path.
pub fn text(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for (path, record) in snapshot {
        let xattrs: Vec<_> = record.xattrs.iter().map(|(name, value)| (name.escape_ascii(), value)).collect();
        let xattrs: Vec<_> = xattrs.iter().map(|(name, value)| format!(" {name}={}", value.escape_ascii())).collect();
        text += &format!(
            "/{} {:?} {:04o} {}:{} links {} mtime {} size {} rdev {:?} -> {} {:032x} first /{}{}\n",
            path.escape_ascii(),
            record.file_type,
            record.permissions,
            record.uid,
            record.gid,
            record.nlink,
            record.mtime.0,
            record.size,
            record.rdev,
            record.target.escape_ascii(),
            record.contents,
            record.first_name.escape_ascii(),
            xattrs.concat(),
        );
    }
    text
}

//! Helpers shared by the tests of sources.

use kiln_diff::{Change, DiffOptions, DiffSummary, diff};
use kiln_parallel::Threads;
use kiln_source::{Scan, ScanOptions, SourceOptions, open};
use kiln_tests::rng::Rng;
use kiln_tests::snapshot::Snapshot;
use kiln_tree::{Kind, NodeId, Tree};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Stop flag that is never set.
pub static GOING: AtomicBool = AtomicBool::new(false);

/// Returns the differences between two trees.
pub fn changes(a: &Tree, b: &Tree) -> (Vec<Change>, DiffSummary) {
    let options = DiffOptions {
        path: b"",
        ignore: &[],
        latest_mtime: None,
        is_same: None,
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

/// Reads everything readable in the image at `path`, which may be damaged.
pub fn exercise(path: &Path) {
    let options = ScanOptions { keep_going: true, ..ScanOptions::new(&GOING) };
    let Ok(source) = open(path, &SourceOptions::default()) else { return };
    let Ok(Scan { tree, .. }) = source.scan(&options) else { return };
    let mut buf = vec![0; 1 << 16];
    for (id, node) in tree.nodes() {
        let Kind::File { len, .. } = node.kind else { continue };
        let Ok(mut content) = tree.open(id) else { continue };
        let part = len.min(buf.len() as u64) as usize;
        drop(content.read_exact_at(&mut buf[..part], 0));
        drop(content.read_exact_at(&mut buf[..part], len - part as u64));
        drop(content.next_data(len / 2));
    }
}

/// Reads a file as a whole and at random positions, and compares; reading beyond its end must fail.
pub fn read_at_random(tree: &Tree, node: NodeId, what: &str) {
    let Kind::File { len, .. } = tree.node(node).kind else { panic!("{what}: no file") };
    let mut whole = vec![0; len as usize];
    tree.open(node).unwrap().read_exact_at(&mut whole, 0).unwrap();
    let (mut content, mut rng) = (tree.open(node).unwrap(), Rng::new(1));
    for _ in 0..200 {
        let start = rng.below(len);
        let mut part = vec![0; rng.below(len - start + 1) as usize];
        content.read_exact_at(&mut part, start).unwrap();
        assert!(part == whole[start as usize..][..part.len()], "{what}: {} from {start}", part.len());
    }
    assert!(content.read_exact_at(&mut [0; 2], len - 1).is_err(), "{what}");
    content.read_exact_at(&mut [], len).unwrap();
}

/// Returns a line for each path.
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

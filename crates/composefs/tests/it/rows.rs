//! Differences between images that composefs 1.0.8 and composefs-rs 0.9.4 make of the same dump.
//! Each row has a dump that shows it, and takes its reason away from any dump.

use super::shared_dumps::{DIRECTORY, Line, MARKS, WHITEOUT, move_to_first_names};
use std::collections::HashSet;

/// Attributes that an inode keeps by reference; composefs-rs refers to all.
const SHARED_MAX: usize = 128;

/// A difference. In all of them kiln makes the image of composefs 1.0.8.
pub struct Row {
    pub name: &'static str,
    /// Lines behind the root that show it.
    pub example: fn() -> Vec<Line>,
    /// Takes the reason away.
    pub remove: fn(&mut Vec<Line>),
    /// Lowest and highest versions with which it explains anything.
    pub explains: &'static [(u32, u32)],
    /// Those with which the example shows it.
    pub shown_by: &'static [(u32, u32)],
}

/// Lowest and highest version of an image.
pub const BOUNDS: [(u32, u32); 3] = [(0, 0), (0, 1), (1, 1)];

pub static ROWS: [Row; 6] = [
    Row {
        name: "whiteouts raise version 0 to 1",
        example: || vec![Line::new(b"/w", WHITEOUT)],
        // Other devices.
        remove: |lines| lines.iter_mut().filter(|line| line.is_whiteout()).for_each(|line| line.rdev = 1),
        explains: &[(0, 1)],
        shown_by: &[(0, 1)],
    },
    Row {
        name: "the inode of hard links lies at its line, not at the first path",
        example: || {
            let inode = Line { nlink: 2, ..Line::new(b"/z", 0o100_644) };
            let link = Line { link: Some(b"/z".into()), ..Line::new(b"/d/b", 0) };
            vec![Line::new(b"/d", DIRECTORY), inode, Line::new(b"/zz", 0o100_644), link]
        },
        remove: |lines| move_to_first_names(lines),
        explains: &BOUNDS,
        shown_by: &BOUNDS,
    },
    Row {
        name: "the 129th shared attribute of an inode is stored on it",
        example: || {
            let shared = |path: &[u8]| {
                let xattrs = (0..=SHARED_MAX).map(|idx| (format!("user.x{idx}"), "v")).collect();
                Line { xattrs, ..Line::new(path, 0o100_644) }
            };
            vec![shared(b"/a"), shared(b"/b")]
        },
        remove: |lines| {
            // All inodes lose the same ones, so that no others are shared instead.
            let long = lines.iter().filter(|line| line.xattrs.len() > 100);
            let lost: HashSet<String> = long.flat_map(|line| &line.xattrs[100..]).map(|(key, _)| key.clone()).collect();
            lines.iter_mut().for_each(|line| line.xattrs.retain(|(key, _)| !lost.contains(key)));
        },
        explains: &BOUNDS,
        shown_by: &BOUNDS,
    },
    Row {
        name: "marks on whiteouts and their directories are replaced, not doubled",
        example: || {
            let marks = vec![("trusted.overlay.opaque".to_owned(), "y")];
            vec![Line { xattrs: marks, ..Line::new(b"/d", DIRECTORY) }, Line::new(b"/d/w", WHITEOUT)]
        },
        remove: |lines| {
            let parents: HashSet<Vec<u8>> =
                lines.iter().filter(|line| line.is_whiteout()).map(|line| line.parent().to_vec()).collect();
            for line in lines.iter_mut().filter(|line| parents.contains(&line.path)) {
                line.xattrs.retain(|(key, _)| !MARKS.contains(&key.as_str()));
            }
            for line in lines.iter_mut().filter(|line| line.is_whiteout()) {
                line.xattrs.retain(|(key, _)| !key.ends_with(".overlay.whiteout"));
            }
        },
        explains: &BOUNDS,
        shown_by: &[(1, 1)],
    },
    Row {
        name: "a whiteout of the root like a stub is a whiteout",
        example: || vec![Line::new(b"/fe", 0o20644)],
        remove: |lines| {
            let is_like_stub = |line: &&mut Line| line.is_whiteout() && line.path.len() == 3 && line.mode == 0o20644;
            lines.iter_mut().filter(is_like_stub).for_each(|line| line.mode = WHITEOUT);
        },
        explains: &BOUNDS,
        shown_by: &[(0, 0), (1, 1)],
    },
    Row {
        name: "whiteouts have no size",
        example: || vec![Line { size: 9, ..Line::new(b"/w", WHITEOUT) }],
        remove: |lines| lines.iter_mut().filter(|line| line.is_whiteout()).for_each(|line| line.size = 0),
        explains: &BOUNDS,
        // Only by the first row, in version 0.
        shown_by: &[],
    },
];

/// Returns the root and the lines of a row that show it.
pub fn example(row: &Row) -> Vec<Line> {
    let root = Line { nlink: 2, ..Line::new(b"", DIRECTORY) };
    [vec![root], (row.example)()].concat()
}

//! `check` finds nothing in good images, and what is wrong in damaged ones.

mod common;

use common::{Golden, manifest};
use kiln_read::{CheckReport, Image, MemorySource, OpenOptions, check};
use std::sync::Arc;

#[test]
fn golden_images_have_no_problems() {
    for golden in manifest() {
        let report = check(&golden.open(), 2).unwrap();
        let problems: Vec<_> = report.problems.iter().map(ToString::to_string).collect();
        assert_eq!(problems, Vec::<String>::new(), "{}", golden.name);
        println!("{}: {} {} {} {}", golden.name, report.inodes, report.directories, report.extents, report.bytes);
    }
}

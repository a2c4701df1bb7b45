//! Harness of the tests across crates.
//!
//! * [`generator`] makes a real tree with every oddity that a filesystem can hold, [`copy`] makes
//!   an equal one, [`mem`] is a tree without a disk, and [`model`] applies the edits of `kiln
//!   update` to a directory.
//! * [`choices`] has options that change the layout of an image, and [`reviewed`] compares tables
//!   of sizes and digests.
//! * [`snapshot`] describes trees, on disk or in an image, for comparison.
//! * [`image`] builds and opens images, [`mnt`] mounts them, [`golden`] has images of other
//!   builders, [`updated`] has one that was updated in place, and [`records`] has records for
//!   images made by hand.
//! * [`damage`] damages images, [`disk`] and [`faulty`] simulate failing disks, [`exercise`] makes
//!   all requests to a reader, and [`fuzz`] has the fuzz targets.
//! * [`restless`] is a directory whose files change while they are read, and [`slow`] delays reads.
//!
//! A test that lacks a privilege or a program prints `SKIP: reason` and passes; with
//! `KILN_NO_SKIP=1` in the environment it fails instead.
#![forbid(unsafe_code)]

use std::io::Write;

pub mod choices;
pub mod copy;
pub mod counted;
pub mod damage;
pub mod data;
pub mod disk;
pub mod exercise;
pub mod faulty;
pub mod fuzz;
pub mod generator;
pub mod golden;
pub mod image;
pub mod mem;
pub mod mnt;
pub mod model;
pub mod records;
pub mod restless;
pub mod reviewed;
pub mod rng;
pub mod slow;
pub mod snapshot;
pub mod temp;
pub mod updated;

/// Reports that a test is skipped, or fails if skips are failures.
///
/// # Panics
/// With `KILN_NO_SKIP=1` in the environment.
pub fn skipped(reason: &str) {
    let strict = std::env::var_os("KILN_NO_SKIP").is_some_and(|value| value == "1");
    assert!(!strict, "SKIP: {reason} (KILN_NO_SKIP=1)");
    tell_skip(reason);
}

/// Reports that a test, or part of it, is skipped because a program is not installed that is only
/// needed for comparison. Such a program is a download, so `KILN_NO_SKIP=1` does not make this a
/// failure; `test.sh` counts them at its end.
pub fn without(program: &str) {
    tell_skip(&format!("no program {program}"));
}

/// Returns true if mksquashfs 4.7 or later is installed, whose options the tests use. Otherwise, it
/// reports a [skip](without).
pub fn has_mksquashfs() -> bool {
    let version = std::process::Command::new("mksquashfs").arg("-version").output();
    // `mksquashfs version 4.7.5 (2025/10/27)`
    let is_new = version.is_ok_and(|output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut numbers = text.split_whitespace().nth(2).unwrap_or_default().split('.').map(|part| part.parse::<u32>());
        matches!((numbers.next(), numbers.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= (4, 7))
    });
    if !is_new {
        without("mksquashfs 4.7");
    }
    is_new
}

/// Prints why something is skipped, and adds it to the file that `test.sh` counts.
fn tell_skip(reason: &str) {
    println!("SKIP: {reason}");
    if let Some(path) = std::env::var_os("KILN_SKIP_LOG") {
        let log = std::fs::File::options().append(true).create(true).open(path);
        // One write, so that lines of several tests do not mix. A lost count changes no result.
        let _ = log.and_then(|mut log| log.write_all(format!("{reason}\n").as_bytes()));
    }
}

/// Returns how often a test repeats itself: the number in the environment variable `name`, or else
/// `long` with `KILN_LONG=1` in the environment (`./test.sh --long`), or else `quick`.
///
/// # Panics
/// If the variable is not a number.
pub fn rounds(name: &str, quick: u64, long: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text}: not a number")),
        Err(_) if std::env::var_os("KILN_LONG").is_some_and(|value| value == "1") => long,
        Err(_) => quick,
    }
}

/// Ends the running test with a reason, formatted as by `format!`.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)*) => {{
        $crate::skipped(&format!($($reason)*));
        return;
    }};
}

/// Returns the value of an `Ok`, or ends the running test with the error as the reason.
#[macro_export]
macro_rules! require {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(reason) => $crate::skip!("{reason}"),
        }
    };
}

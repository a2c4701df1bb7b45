//! Harness of the tests that see the builder as a whole.
//!
//! [`generator`] makes a real tree with every oddity a filesystem can hold, [`copy`] makes another one equal to it, [`mem`] is
//! a tree without a disk, [`model`] does to a directory what edits do to an image. [`choices`] has what changes the layout of an image,
//! [`reviewed`] the form of tables that show what a change does to images. [`snapshot`] describes trees, on disk or in an image, so that they can be compared;
//! [`image`] builds and opens, [`mnt`] mounts. [`golden`] has images of other builders, [`damage`] damages them, [`updated`] has one that was updated, [`disk`] is a disk whose power fails, [`exercise`]
//! asks for everything that is in them, [`records`] has what images made by hand begin with, and [`fuzz`] has the functions that are fuzzed.
//!
//! A test that needs a privilege or a program that is missing prints `SKIP: reason` and passes; with `KILN_NO_SKIP=1`
//! in the environment it fails instead.
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
pub mod reviewed;
pub mod rng;
pub mod snapshot;
pub mod temp;
pub mod updated;

/// Say that a test is skipped, or fail if skips are failures.
///
/// # Panics
/// With `KILN_NO_SKIP=1` in the environment.
pub fn skipped(reason: &str) {
    let strict = std::env::var_os("KILN_NO_SKIP").is_some_and(|value| value == "1");
    assert!(!strict, "SKIP: {reason} (KILN_NO_SKIP=1)");
    tell_skip(reason);
}

/// Say that a test, or a part of one, is skipped because a program is not installed that the project does not need but for comparison. A
/// program is a download, so `KILN_NO_SKIP=1` does not make this a failure; `test.sh` counts them at its end.
pub fn without(program: &str) {
    tell_skip(&format!("no program {program}"));
}

/// Whether mksquashfs of version 4.7 or later is installed, whose options the tests use. If not, this [says so](without).
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

/// Print why something is skipped, and add it to the file that `test.sh` counts.
fn tell_skip(reason: &str) {
    println!("SKIP: {reason}");
    if let Some(path) = std::env::var_os("KILN_SKIP_LOG") {
        let log = std::fs::File::options().append(true).create(true).open(path);
        // One write, so that lines of several tests do not mix. A count that is lost changes no result.
        let _ = log.and_then(|mut log| log.write_all(format!("{reason}\n").as_bytes()));
    }
}

/// How often a test repeats itself: as often as the environment's variable `name` says, else `long` times with `KILN_LONG=1` in the
/// environment (`./test.sh --long`), else `quick` times.
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

/// Leave the running test with a reason, as for `format!`.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)*) => {{
        $crate::skipped(&format!($($reason)*));
        return;
    }};
}

/// The value of an `Ok`, or leave the running test with the error as the reason.
#[macro_export]
macro_rules! require {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(reason) => $crate::skip!("{reason}"),
        }
    };
}

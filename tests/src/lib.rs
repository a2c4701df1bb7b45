//! Harness of the tests that see the builder as a whole.
//!
//! [`generator`] makes a real tree with every oddity a filesystem can hold, [`copy`] makes another one equal to it, [`mem`] is
//! a tree without a disk. [`choices`] has what changes the layout of an image,
//! [`reviewed`] the form of tables that show what a change does to images. [`snapshot`] describes trees, on disk or in an image, so that they can be compared;
//! [`image`] builds and opens, [`mnt`] mounts. [`golden`] has images of other builders, [`damage`] damages them, [`exercise`]
//! asks for everything that is in them, [`records`] has what images made by hand begin with, and [`fuzz`] has the functions that are fuzzed.
//!
//! A test that needs a privilege or a program that is missing prints `SKIP: reason` and passes; with `KILN_NO_SKIP=1`
//! in the environment it fails instead.
#![forbid(unsafe_code)]

pub mod choices;
pub mod copy;
pub mod counted;
pub mod damage;
pub mod data;
pub mod exercise;
pub mod faulty;
pub mod fuzz;
pub mod generator;
pub mod golden;
pub mod image;
pub mod mem;
pub mod mnt;
pub mod records;
pub mod reviewed;
pub mod rng;
pub mod snapshot;
pub mod temp;

/// Say that a test is skipped, or fail if skips are failures.
///
/// # Panics
/// With `KILN_NO_SKIP=1` in the environment.
pub fn skipped(reason: &str) {
    let strict = std::env::var_os("KILN_NO_SKIP").is_some_and(|value| value == "1");
    assert!(!strict, "SKIP: {reason} (KILN_NO_SKIP=1)");
    println!("SKIP: {reason}");
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

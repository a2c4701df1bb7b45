//! Mounts that end with the test, and trees that can be compared.
#![allow(dead_code, unused_imports, unused_macros, missing_docs)] // each test file uses its own part

pub use kiln_tests::mnt::{KernelMount, Served, wait_until};
pub use kiln_tests::skipped as skip;
pub use kiln_tests::snapshot::exact as snapshot;
pub use kiln_tests::temp::TempDir;

use kiln_mount::fuse::{FuseOptions, ImageSources, Prefetch};
use kiln_read::{Image, ImageOptions};
use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

thread_local! {
    static PREFETCH: Cell<Prefetch> = const { Cell::new(Prefetch::DataAndNames) };
}

/// Runs a test with servers that prefetch as `prefetch` says.
pub fn with_prefetch(prefetch: Prefetch, test: fn()) {
    PREFETCH.set(prefetch);
    test();
}

/// Returns the prefetch of the servers in this test.
pub fn prefetch() -> Prefetch {
    PREFETCH.get()
}

/// Defines tests that run twice: with all prefetch, and with none.
macro_rules! scenes {
    ($($name:ident)*) => {
        mod with_all_prefetch {
            $(#[test] fn $name() { crate::common::with_prefetch(kiln_mount::fuse::Prefetch::DataAndNames, super::$name) })*
        }
        mod without_prefetch {
            $(#[test] fn $name() { crate::common::with_prefetch(kiln_mount::fuse::Prefetch::Off, super::$name) })*
        }
    };
}
pub(crate) use scenes;

/// Returns true if this process may mount. Otherwise prints a skip.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("needs root");
    }
    root
}

/// Returns true if FUSE can be used here. Otherwise prints a skip.
pub fn has_fuse() -> bool {
    let found = Path::new("/dev/fuse").exists();
    if !found {
        skip("no /dev/fuse");
    }
    found && is_root()
}

pub use kiln_tests::golden::file as golden;

/// Returns the golden image `name`, with its extra device if it has one.
pub fn golden_with_devices(name: &str) -> (PathBuf, Vec<PathBuf>) {
    let blob = golden(&format!("{name}.blob"));
    (golden(&format!("{name}.erofs")), blob.exists().then_some(blob).into_iter().collect())
}

pub fn open(path: &Path, devices: &[PathBuf]) -> Image {
    Image::open_path(path, devices, &ImageOptions::default()).unwrap()
}

/// Returns the sources of an image, as `kiln mount` opens them.
pub fn sources(path: &Path, devices: &[PathBuf]) -> ImageSources {
    ImageSources::from_paths(path, devices)
}

pub fn options(fsname: &Path) -> FuseOptions {
    FuseOptions {
        threads: 4,
        allow_other: true,
        fsname: fsname.display().to_string(),
        prefetch: prefetch(),
        ..FuseOptions::default()
    }
}

/// Returns true if `ls -a`, which lists as C libraries do, shows "." and "..".
pub fn ls_shows_dots(dir: &Path) -> bool {
    let listed = Command::new("ls").arg("-a").arg(dir).output().unwrap().stdout;
    [&b"."[..], b".."].iter().all(|dots| listed.split(|byte| *byte == b'\n').any(|name| name == *dots))
}

/// Returns the line of the mount table for `dir`: source, mount point, type, options.
pub fn mount_table_line(dir: &Path) -> Option<Vec<String>> {
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let fields = |line: &str| line.split(' ').map(str::to_string).collect::<Vec<_>>();
    table.lines().map(fields).rfind(|fields| Path::new(&fields[1]) == dir)
}

pub fn is_mounted(dir: &Path) -> bool {
    mount_table_line(dir).is_some()
}

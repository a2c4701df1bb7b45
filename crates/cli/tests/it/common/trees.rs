//! Trees that are packed, edited and packed again.

use super::{Scratch, text};
use kiln_tests::generator;
use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time at which old files were changed, in seconds since 1970.
pub const OLD: u64 = 1_600_000_000;

pub fn set_time(path: &Path, secs: u64) {
    let time = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(secs));
    File::open(path).unwrap().set_times(time).unwrap();
}

/// Waits until a file has been unchanged for so long that it gets a stamp.
pub fn settle(path: &Path) {
    let changed = fs::symlink_metadata(path).unwrap().ctime();
    while SystemTime::now() < UNIX_EPOCH + Duration::from_secs(changed as u64 + 3) {
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub fn write(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>, secs: u64) {
    fs::write(&path, bytes).unwrap();
    set_time(path.as_ref(), secs);
}

/// Returns all regular files below `dir`, sorted.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap() {
                kind if kind.is_dir() => dirs.push(entry.path()),
                kind if kind.is_file() => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// Returns a length for the file with a number, near the lengths at which its storage changes.
pub fn some_len(at: usize) -> usize {
    [10, 700, 4096, 9000, 30_000, 70_001, 200_000][at % 7] + at * 17
}

/// Makes the tree `src` of a seed: a random one, and files of all sizes that share text.
pub fn make(seed: u64) -> (Scratch, PathBuf) {
    let scratch = Scratch::new();
    let src = PathBuf::from(scratch.path("src"));
    fs::create_dir(&src).unwrap();
    fs::create_dir(src.join("random")).unwrap();
    generator::make_random(&src.join("random"), seed).unwrap();
    for at in 0..120 {
        write(src.join(format!("file-{at}")), text(seed + at as u64 / 9, some_len(at)), OLD + at as u64);
    }
    (scratch, src)
}

/// Changes, removes and adds some files of a tree, different ones in each `round`.
pub fn edit(root: &Path, round: usize) {
    for (at, path) in files(root).into_iter().enumerate() {
        match (at + round) % 29 {
            0 => {
                let mut bytes = fs::read(&path).unwrap();
                bytes.iter_mut().step_by(1000).for_each(|byte| *byte ^= 0x55);
                fs::write(&path, bytes).unwrap();
            }
            7 => fs::write(&path, text(round as u64, 20_000 + at)).unwrap(),
            13 => fs::remove_file(&path).unwrap(),
            19 => fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap(),
            _ => {}
        }
    }
    write(root.join(format!("added-{round}")), text(round as u64, 300_000), OLD + 5);
}

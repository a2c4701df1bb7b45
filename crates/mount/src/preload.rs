//! Files that are in memory before anybody asks for them.

use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

const CHUNK_LEN: usize = 1 << 20;

/// Read the files at `paths` below the mount `dir` once, which brings them into the system's cache, until `stop` is set. Links
/// lead no further than the mount. Returns what could not be read.
pub fn preload(dir: &Path, paths: &[PathBuf], stop: &AtomicBool) -> Vec<(PathBuf, io::Error)> {
    let root = match open(dir, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(root) => root,
        Err(error) => return vec![(dir.to_path_buf(), error.into())],
    };
    let mut chunk = vec![0; CHUNK_LEN];
    let mut read = |path: &Path| -> io::Result<()> {
        // A FIFO must not keep us waiting.
        let flags = OFlags::CLOEXEC | OFlags::NONBLOCK;
        let mut file = File::from(openat2(&root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no regular file"));
        }
        while !stop.load(Ordering::Relaxed) && file.read(&mut chunk)? > 0 {}
        Ok(())
    };
    let mut failed = Vec::new();
    for path in paths.iter().take_while(|_| !stop.load(Ordering::Relaxed)) {
        if let Err(error) = read(path) {
            failed.push((path.clone(), error));
        }
    }
    failed
}

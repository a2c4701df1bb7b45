//! Preloading: files that are read into the page cache before a program reads them.

use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of one read.
const CHUNK_LEN: usize = 1 << 20;

/// Read the files at `paths` below the mount `dir` once, which brings them into the page cache, until `stop` is set. Symbolic links are
/// resolved within the mount. Returns the paths that could not be read, and why.
pub fn preload(dir: &Path, paths: &[PathBuf], stop: &AtomicBool) -> Vec<(PathBuf, io::Error)> {
    let root = match open(dir, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(root) => root,
        Err(error) => return vec![(dir.to_path_buf(), error.into())],
    };
    let mut chunk = vec![0; CHUNK_LEN];
    let mut read = |path: &Path| -> io::Result<()> {
        // Opening a FIFO must not wait for a writer.
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

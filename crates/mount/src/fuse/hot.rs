//! What a server reads before it is asked: the ranges of a hot list, decoded and kept, and put into the page cache.
//!
//! A thread of its own does both once the mount answers. Decoding comes first: it fetches what lies together at once, and what the
//! kernel then reads through the mount is decoded already.

use crate::{Preload, preload};
use kiln_read::hotlist::HotList;
use kiln_read::{Image, Threads};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Threads that fetch and decode: more than processors, as each may wait for its source.
const THREADS: usize = 8;

/// How long the stored bytes of a list stay in memory behind the end of its preload: a program that starts also needs other parts of their
/// extents, which the page cache does not have, and the cache has lost with what was consumed.
const AFTERWARDS: Duration = Duration::from_secs(10);

/// The target of lines of the log that are no errors: what a hot list has that is not in the image, for example.
pub const NOTES: &str = "kiln_mount::notes";

/// A hot list, and what a server does with it once it is mounted, in the background.
#[derive(Clone, Debug, Default)]
pub struct Hot {
    /// What is read, in its order.
    pub list: HotList,
    /// Bytes of files that are read into the page cache at most.
    pub preload_bytes: u64,
    /// Bytes of memory for extents that are decoded and kept, see [`Image::pin`].
    pub pin_bytes: u64,
}

/// The thread, which ends some time after this is dropped.
pub(super) struct HotThread {
    stop: Arc<AtomicBool>,
    thread: Thread,
}

impl HotThread {
    /// Begin with `hot`, an image that is mounted at `dir`, unless `stop` is set.
    pub(super) fn start(hot: Hot, image: Image, dir: PathBuf, stop: Arc<AtomicBool>) -> io::Result<Self> {
        let until = Arc::clone(&stop);
        let thread = thread::Builder::new().name("kiln-hot".into());
        let thread = thread.spawn(move || warm_up(&hot, &image, &dir, &until))?.thread().clone();
        Ok(Self { stop, thread })
    }
}

impl Drop for HotThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

fn warm_up(hot: &Hot, image: &Image, dir: &Path, stop: &AtomicBool) {
    let threads = Threads::at_least_one(THREADS);
    if hot.pin_bytes == 0 && hot.preload_bytes == 0 {
        return;
    }
    // Until this is dropped, stored bytes of the list are in memory, and metadata is fetched in long runs.
    let loaded = match hot.pin_bytes {
        0 => image.load_ahead(&hot.list, threads, stop),
        pin_bytes => image.pin(&hot.list, pin_bytes, threads, stop),
    };
    if hot.pin_bytes > 0 {
        let left_out = loaded.report.left_out;
        for (path, error) in &loaded.report.failed {
            log::warn!(target: NOTES, "{}: not pinned: {error}", path.escape_ascii());
        }
        if left_out > 0 {
            log::warn!(target: NOTES, "{left_out} bytes of the list are not pinned: there is room for {}", hot.pin_bytes);
        }
    }
    if hot.preload_bytes > 0 {
        match preload(dir, &hot.list, Preload::Exactly, hot.preload_bytes, stop) {
            Ok(done) => {
                for (path, error) in done.failed {
                    log::warn!(target: NOTES, "{}: not preloaded: {error}", path.display());
                }
                if done.left_out > 0 {
                    let (left_out, most) = (done.left_out, hot.preload_bytes);
                    log::warn!(target: NOTES, "{left_out} bytes of the list are not preloaded: {most} are the most");
                }
            }
            Err(error) => log::warn!(target: NOTES, "{}: not preloaded: {error}", dir.display()),
        }
    }
    let end = Instant::now() + AFTERWARDS;
    while !stop.load(Ordering::Relaxed) {
        match end.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => thread::park_timeout(left),
            _ => break,
        }
    }
    drop(loaded);
}

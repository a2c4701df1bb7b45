//! Preparation of a server: the ranges of a hot list are decoded and pinned, and put into the page
//! cache.
//!
//! A separate thread does both once the mount answers requests. Decoding comes first: it fetches
//! adjacent ranges at once, and the kernel's reads through the mount then find the data decoded.

use super::threads::descriptors::leave_descriptors;
use crate::{Preload, preload};
use kiln_read::hotlist::HotList;
use kiln_read::{Image, Threads};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Number of threads that fetch and decode: more than processors, as each may wait for the source.
const THREADS: usize = 8;

/// Time for which the stored bytes of a list stay in memory after its preload. A program that starts
/// also needs other parts of their extents, which the page cache does not have, and which the cache
/// dropped when they were consumed.
const AFTERWARDS: Duration = Duration::from_secs(10);

/// Target of log messages that are not errors, for example about paths of a hot list that the image
/// does not have.
pub const NOTES: &str = "kiln_mount::notes";

/// Hot list, and its use by a server in the background once it is mounted.
#[derive(Clone, Debug, Default)]
pub struct Hot {
    /// Ranges to read, in this order.
    pub list: HotList,
    /// Most bytes of files to read into the page cache.
    pub preload_bytes: u64,
    /// Bytes of memory for extents that are decoded and pinned, see [`Image::pin`].
    pub pin_bytes: u64,
}

/// The thread. It ends some time after this is dropped.
pub(super) struct HotThread {
    stop: Arc<AtomicBool>,
    thread: Thread,
}

impl HotThread {
    /// Starts with `hot` for an image that is mounted at `dir`, unless `stop` is set.
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
    // Until this is dropped, the stored bytes of the list are in memory, and metadata is fetched in
    // long runs.
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
            log::warn!(target: NOTES, "{left_out} bytes of the list are not pinned: the limit is {}", hot.pin_bytes);
        }
    }
    if hot.preload_bytes > 0 {
        let preloaded = thread::scope(|scope| {
            let read = || {
                // Kernels before 5.9 cannot: there, a server that is killed at this moment may hang.
                let _ = leave_descriptors();
                preload(dir, &hot.list, Preload::Exactly, hot.preload_bytes, stop)
            };
            scope.spawn(read).join().unwrap_or_else(|_| Err(io::Error::other("preloading panicked")))
        });
        match preloaded {
            Ok(done) => {
                for (path, error) in done.failed {
                    log::warn!(target: NOTES, "{}: not preloaded: {error}", path.display());
                }
                if done.left_out > 0 {
                    let (left_out, most) = (done.left_out, hot.preload_bytes);
                    log::warn!(target: NOTES, "{left_out} bytes of the list are not preloaded: the limit is {most}");
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

//! The dentry thread: it lists directories of the server's own mount, as the dcache only learns
//! names from answers to READDIRPLUS.
//!
//! It calls getdents(2) as any program could. If the server is killed while the thread waits for
//! the server's own answer, only the end of the connection ends that wait, and the connection ends
//! when no process has it open. So the thread has its own table of descriptors, without the
//! connection (rule 6 of [`super`]).
use crate::fuse::mount_identity::MountIdentity;
use crate::fuse::threads::descriptors::leave_descriptors;
use kiln_parallel::channel::{self, Receiver, Sender};
use rustix::fs::{CWD, Mode, OFlags, RawDir, SeekFrom, openat, seek};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// Time limit for a thread that answers a request and waits for a listing (rule 5).
const LIST_TIMEOUT: Duration = Duration::from_millis(100);
/// Buffer length for getdents(2) in bytes. The kernel sends requests of about this size.
const BUF_LEN: usize = 64 << 10;

/// Range of a directory that is to be listed.
#[derive(Debug)]
pub(super) struct DirRange {
    /// Path below the mount point.
    pub(super) path: PathBuf,
    /// Position where the range begins.
    pub(super) from: u64,
    /// Approximate number of entries in the range.
    pub(super) count: u32,
    /// Position where the directory ends.
    pub(super) end: u64,
}

/// Progress of listing a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    /// Number of entries that were listed.
    pub(super) count: u32,
    /// Position after these entries; `None` at the end.
    pub(super) next: Option<u64>,
}

/// Handle of the thread, for the threads that answer requests. The thread starts when it is first
/// needed, and ends when this is dropped.
pub(in crate::fuse) struct ReaddirThread {
    ranges: OnceLock<Option<Ranges>>,
    state: Arc<ThreadState>,
}

/// Sender of ranges to the thread, each with a channel for its result.
type Ranges = Sender<(DirRange, Sender<Progress>)>;

#[derive(Default)]
struct ThreadState {
    mount: OnceLock<(PathBuf, MountIdentity)>,
    /// True while a range is being listed.
    is_busy: AtomicBool,
    /// True if the path of the mount led to another directory (rule 7), or if listing failed.
    is_lost: AtomicBool,
}

/// Slot for the path and identity of the mount, set once the mount answers.
pub(in crate::fuse) struct MountSlot(Arc<ThreadState>);

impl MountSlot {
    pub(in crate::fuse) fn set_mount(self, dir: PathBuf, identity: MountIdentity) {
        let _ = self.0.mount.set((dir, identity));
    }
}

impl ReaddirThread {
    /// Returns the thread, not yet started, and the slot for its mount, without which it lists
    /// nothing.
    pub(in crate::fuse) fn new() -> (Self, MountSlot) {
        let state = Arc::<ThreadState>::default();
        (Self { ranges: OnceLock::new(), state: Arc::clone(&state) }, MountSlot(state))
    }

    fn start(&self) -> io::Result<Ranges> {
        let (ranges, received) = channel::bounded(1);
        let (ready, is_ready) = channel::bounded(1);
        let state = Arc::clone(&self.state);
        thread::Builder::new().name("kiln-dentries".into()).spawn(move || {
            let unshared = leave_descriptors();
            let is_unshared = unshared.is_ok();
            let _ = ready.send(unshared);
            if is_unshared {
                list_ranges(&received, &state);
            }
        })?;
        is_ready.recv().unwrap_or_else(|| Err(io::Error::other("its thread has ended")))?;
        Ok(ranges)
    }

    /// Lists a range. Returns `None` if that failed, if another range is being listed, or after
    /// [`LIST_TIMEOUT`]; in the last case the thread continues on its own.
    pub(super) fn list(&self, range: DirRange) -> Option<Progress> {
        if self.state.is_lost.load(Ordering::Relaxed) || self.state.is_busy.swap(true, Ordering::Acquire) {
            return None;
        }
        let (done, is_done) = channel::bounded(1);
        self.ranges()?.try_send((range, done)).ok()?;
        is_done.recv_timeout(LIST_TIMEOUT).ok()
    }

    fn ranges(&self) -> Option<&Ranges> {
        let start = || self.start().inspect_err(|error| log::debug!("no dentries are prefetched: {error}")).ok();
        self.ranges.get_or_init(start).as_ref()
    }
}

fn list_ranges(ranges: &Receiver<(DirRange, Sender<Progress>)>, state: &ThreadState) {
    let mut buf = Box::new_uninit_slice(BUF_LEN);
    while let Some((range, done)) = ranges.recv() {
        let listed = state.mount.get().map(|(dir, identity)| list(dir.join(&range.path), *identity, &range, &mut buf));
        // Before the result is sent: its receiver may send the next range at once.
        state.is_busy.store(false, Ordering::Release);
        match listed {
            Some(Ok(progress)) => done.send(progress).unwrap_or_default(),
            // The user of the server may not be permitted to list every directory.
            Some(Err(Errno::ACCESS)) | None => {}
            Some(Err(error)) => {
                log::debug!("{}: no dentries are prefetched any more: {error}", range.path.display());
                state.is_lost.store(true, Ordering::Relaxed);
            }
        }
    }
}

fn list(dir: PathBuf, mount: MountIdentity, range: &DirRange, buf: &mut [MaybeUninit<u8>]) -> Result<Progress, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = openat(CWD, &dir, flags, Mode::empty())?;
    if MountIdentity::of_open(&dir)? != mount {
        return Err(Errno::STALE);
    }
    seek(&dir, SeekFrom::Start(range.from))?;
    let mut progress = Progress { count: 0, next: Some(range.from) };
    let mut entries = RawDir::new(&dir, buf);
    while progress.count < range.count || !entries.is_buffer_empty() {
        let Some(entry) = entries.next().transpose()? else {
            progress.next = None;
            break;
        };
        progress.count += 1;
        progress.next = Some(entry.next_entry_cookie()).filter(|&next| next < range.end);
        if progress.next.is_none() {
            break;
        }
    }
    Ok(progress)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_tests::temp::TempDir;
    use std::fs;
    use std::fs::File;
    use std::path::Path;

    /// Directory with files in a directory `sub`, in place of a mount, and the thread that lists
    /// it.
    struct Scene {
        _dir: TempDir,
        thread: ReaddirThread,
    }

    impl Scene {
        fn new(files: u32) -> Self {
            let dir = TempDir::new("dentry-thread").unwrap();
            let sub = dir.dir("sub");
            (0..files).for_each(|file| fs::write(sub.join(file.to_string()), "").unwrap());
            let (thread, slot) = ReaddirThread::new();
            slot.set_mount(dir.path().to_owned(), MountIdentity::of(dir.path()).unwrap());
            Self { _dir: dir, thread }
        }

        fn list(&self, path: &str, from: u64, count: u32) -> Option<Progress> {
            patiently(&self.thread, path, from, count)
        }
    }

    /// Lists a range repeatedly: a loaded machine may take longer than the time limit.
    fn patiently(thread: &ReaddirThread, path: &str, from: u64, count: u32) -> Option<Progress> {
        (0..100).find_map(|_| {
            let listed = thread.list(DirRange { path: path.into(), from, count, end: u64::MAX });
            listed.or_else(|| (std::thread::sleep(Duration::from_millis(5)), None).1)
        })
    }

    #[test]
    fn directories_are_listed_to_their_end() {
        let scene = Scene::new(10);
        // "." and ".." are entries, too.
        assert_eq!(scene.list("sub", 0, 1000), Some(Progress { count: 12, next: None }));
        assert_eq!(scene.list("", 0, 1000), Some(Progress { count: 3, next: None }));
    }

    #[test]
    fn long_ones_are_listed_in_ranges() {
        let scene = Scene::new(5000);
        let (mut count, mut next, mut ranges) = (0, Some(0), 0);
        while let Some(from) = next {
            let progress = scene.list("sub", from, 100).unwrap();
            (count, next, ranges) = (count + progress.count, progress.next, ranges + 1);
        }
        assert_eq!(count, 5002);
        assert!(ranges > 1);
    }

    #[test]
    fn a_missing_directory_ends_listing() {
        let scene = Scene::new(1);
        assert_eq!(scene.thread.list(DirRange { path: "other".into(), from: 0, count: 1, end: 1 }), None);
        assert_eq!(scene.thread.list(DirRange { path: "sub".into(), from: 0, count: 1, end: 1 }), None);
    }

    #[test]
    fn another_mount_is_not_listed() {
        let (thread, slot) = ReaddirThread::new();
        slot.set_mount("/proc".into(), MountIdentity::of(Path::new("/")).unwrap());
        assert_eq!(thread.list(DirRange { path: "self".into(), from: 0, count: 1, end: 1 }), None);
    }

    #[test]
    fn the_thread_has_no_descriptors_of_other_threads() {
        let _other = File::open("/").unwrap();
        let (thread, slot) = ReaddirThread::new();
        slot.set_mount("/proc/thread-self".into(), MountIdentity::of(Path::new("/proc")).unwrap());
        // ".", "..", the standard ones, and the directory itself.
        assert_eq!(patiently(&thread, "fd", 0, 1000), Some(Progress { count: 6, next: None }));
    }
}

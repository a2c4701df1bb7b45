//! Lists directories of our own mount, for the kernel to learn their names: it takes names only as answers to who lists.
//!
//! A thread does that, as any program could. If the server is killed while the thread waits for its own server's answer, nothing but the
//! end of the connection ends that wait, and the connection ends when nobody has it open. So the thread has a table of descriptors
//! of its own, without the connection.
#![allow(unsafe_code)]

use crate::fuse::Identity;
use rustix::fd::IntoRawFd;
use rustix::fs::{CWD, Mode, OFlags, RawDir, SeekFrom, openat, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// How long somebody waits who has something else to do.
const PATIENCE: Duration = Duration::from_millis(100);
/// For getdents(2), which the kernel passes on in requests of about this size.
const BUF_LEN: usize = 64 << 10;
/// Of the standard ones.
const NOWHERE: &str = "/dev/null";

/// A part of a directory that is to be listed.
#[derive(Debug)]
pub struct Part {
    /// Below the mount point.
    pub path: PathBuf,
    /// The position where it begins, and how many entries it has about.
    pub from: u64,
    pub count: u32,
    /// Where the directory ends.
    pub end: u64,
}

/// How far a directory was listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Entries.
    pub count: u32,
    /// The position behind them; `None` at the end.
    pub next: Option<u64>,
}

/// The thread, for others. It starts when it is first needed.
pub struct Lister {
    parts: OnceLock<Option<Parts>>,
    state: Arc<State>,
}

/// Parts for the thread, and where it tells what came of each.
type Parts = SyncSender<(Part, SyncSender<Progress>)>;

#[derive(Default)]
struct State {
    mount: OnceLock<(PathBuf, Identity)>,
    /// Somebody's part is being listed.
    is_busy: AtomicBool,
    /// Our mount is not where it was.
    is_lost: AtomicBool,
}

/// Tells a lister where its mount is, once that answers.
pub struct Place(Arc<State>);

impl Place {
    pub fn tell(self, dir: PathBuf, identity: Identity) {
        let _ = self.0.mount.set((dir, identity));
    }
}

impl Lister {
    /// A lister, and whom to tell where its mount is.
    pub fn new() -> (Self, Place) {
        let state = Arc::<State>::default();
        (Self { parts: OnceLock::new(), state: Arc::clone(&state) }, Place(state))
    }

    /// Start the thread. It ends when the lister is dropped.
    fn start(&self) -> io::Result<Parts> {
        let (parts, received) = mpsc::sync_channel(1);
        let (ready, is_ready) = mpsc::sync_channel(1);
        let state = Arc::clone(&self.state);
        thread::Builder::new().name("kiln-fuse-names".into()).spawn(move || {
            let closed = close_all();
            let is_closed = closed.is_ok();
            let _ = ready.send(closed);
            if is_closed {
                list_parts(&received, &state);
            }
        })?;
        is_ready.recv().unwrap_or_else(|_| Err(io::Error::other("its thread has ended")))?;
        Ok(parts)
    }

    /// Have a part of a directory listed. `None` if that failed, or takes too long; then it goes on.
    pub fn list(&self, part: Part) -> Option<Progress> {
        if self.state.is_lost.load(Ordering::Relaxed) || self.state.is_busy.swap(true, Ordering::Acquire) {
            return None;
        }
        let (done, is_done) = mpsc::sync_channel(1);
        self.parts()?.try_send((part, done)).ok()?;
        is_done.recv_timeout(PATIENCE).ok()
    }

    fn parts(&self) -> Option<&Parts> {
        let start = || self.start().inspect_err(|error| log::debug!("no names for the kernel: {error}")).ok();
        self.parts.get_or_init(start).as_ref()
    }
}

/// Give this thread an empty table of descriptors (Linux 5.9), but for the standard ones, which lead nowhere: somebody may wait for the
/// end of what those of others are.
fn close_all() -> io::Result<()> {
    // SAFETY: no other thread sees the table that is emptied, and this one has been given no descriptor.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE) };
    if closed != 0 {
        return Err(io::Error::last_os_error());
    }
    for _ in 0..3 {
        let standard = File::options().read(true).write(true).open(NOWHERE)?;
        let _ = standard.into_raw_fd();
    }
    Ok(())
}

fn list_parts(parts: &Receiver<(Part, SyncSender<Progress>)>, state: &State) {
    let mut buf = Box::new_uninit_slice(BUF_LEN);
    while let Ok((part, done)) = parts.recv() {
        let listed = state.mount.get().map(|(dir, identity)| list(dir.join(&part.path), *identity, &part, &mut buf));
        // Who gets the answer may ask again at once.
        state.is_busy.store(false, Ordering::Release);
        match listed {
            Some(Ok(progress)) => drop(done.send(progress)),
            // Not for everybody's eyes.
            Some(Err(Errno::ACCESS)) | None => {}
            Some(Err(error)) => {
                log::debug!("{}: no names for the kernel: {error}", part.path.display());
                state.is_lost.store(true, Ordering::Relaxed);
            }
        }
    }
}

fn list(dir: PathBuf, mount: Identity, part: &Part, buf: &mut [MaybeUninit<u8>]) -> Result<Progress, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = openat(CWD, &dir, flags, Mode::empty())?;
    if Identity::of_open(&dir)? != mount {
        return Err(Errno::STALE);
    }
    seek(&dir, SeekFrom::Start(part.from))?;
    let mut progress = Progress { count: 0, next: Some(part.from) };
    let mut entries = RawDir::new(&dir, buf);
    while progress.count < part.count || !entries.is_buffer_empty() {
        let Some(entry) = entries.next().transpose()? else {
            progress.next = None;
            break;
        };
        progress.count += 1;
        progress.next = Some(entry.next_entry_cookie()).filter(|&next| next < part.end);
        if progress.next.is_none() {
            break;
        }
    }
    Ok(progress)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    /// A directory with files in a directory `sub`, for a mount, and who lists it.
    struct Scene {
        dir: PathBuf,
        lister: Lister,
    }

    impl Scene {
        fn new(name: &str, files: u32) -> Self {
            let dir = std::env::temp_dir().join(format!("kiln-{name}-{}", std::process::id()));
            fs::create_dir_all(dir.join("sub")).unwrap();
            (0..files).for_each(|file| fs::write(dir.join(format!("sub/{file}")), "").unwrap());
            let (lister, place) = Lister::new();
            place.tell(dir.clone(), Identity::of(&dir).unwrap());
            Self { dir, lister }
        }

        fn list(&self, path: &str, from: u64, count: u32) -> Option<Progress> {
            patiently(&self.lister, path, from, count)
        }
    }

    /// A loaded machine may take longer than a reader has patience for.
    fn patiently(lister: &Lister, path: &str, from: u64, count: u32) -> Option<Progress> {
        (0..100).find_map(|_| {
            let listed = lister.list(Part { path: path.into(), from, count, end: u64::MAX });
            listed.or_else(|| (thread::sleep(Duration::from_millis(5)), None).1)
        })
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }

    #[test]
    fn directories_are_listed_to_their_end() {
        let scene = Scene::new("lister", 10);
        // With "." and "..".
        assert_eq!(scene.list("sub", 0, 1000), Some(Progress { count: 12, next: None }));
        assert_eq!(scene.list("", 0, 1000), Some(Progress { count: 3, next: None }));
    }

    #[test]
    fn long_ones_are_listed_in_parts() {
        let scene = Scene::new("parts", 5000);
        let (mut count, mut next, mut parts) = (0, Some(0), 0);
        while let Some(from) = next {
            let progress = scene.list("sub", from, 100).unwrap();
            (count, next, parts) = (count + progress.count, progress.next, parts + 1);
        }
        assert_eq!(count, 5002);
        assert!(parts > 1);
    }

    #[test]
    fn what_is_not_there_is_the_end() {
        let scene = Scene::new("lost", 1);
        assert_eq!(scene.lister.list(Part { path: "other".into(), from: 0, count: 1, end: 1 }), None);
        assert_eq!(scene.lister.list(Part { path: "sub".into(), from: 0, count: 1, end: 1 }), None);
    }

    #[test]
    fn another_mount_is_not_listed() {
        let (lister, place) = Lister::new();
        place.tell("/proc".into(), Identity::of(Path::new("/")).unwrap());
        assert_eq!(lister.list(Part { path: "self".into(), from: 0, count: 1, end: 1 }), None);
    }

    #[test]
    fn the_thread_has_no_descriptors_of_others() {
        let _other = File::open("/").unwrap();
        let (lister, place) = Lister::new();
        place.tell("/proc/thread-self".into(), Identity::of(Path::new("/proc")).unwrap());
        // ".", "..", the standard ones, and the directory itself.
        assert_eq!(patiently(&lister, "fd", 0, 1000), Some(Progress { count: 6, next: None }));
    }
}

//! A session: from a mount that answers to its end.

use super::attach;
use super::hot::HotThread;
use super::metrics::Metrics;
use super::metrics::file::MetricsFile;
use super::metrics::labels::MetricLabels;
use super::mount_identity::MountIdentity;
use super::options::{FuseOptions, Prefetch};
use super::prefetch::Prefetcher;
use super::prefetch::dentry_thread::ReaddirThread;
use super::protocol::filesystem::FuseFilesystem;
use super::protocol::image_fs::ImageFs;
use super::protocol::node;
use super::read_ahead::ReadAhead;
use super::recorder::Recorder;
use super::threads::descriptors::leave_descriptors;
use super::threads::leader_followers::LeaderFollowers;
use super::threads::watched::{Watched, wait};
use crate::{MountError, in_use, mount_source, unmount};
use fuser::{Config, Session, SessionACL};
use kiln_parallel::channel::{self, TimeoutError};
use kiln_read::{ImageOptions, ImageSources, Latency, Opening, ReadPolicy};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

/// Time for a session to end after its mount is gone. After that, its threads continue to answer
/// for files that are still open.
const GRACE: Duration = Duration::from_secs(1);
/// Time between looks at the session while the mount does not answer.
const LOOK: Duration = Duration::from_millis(10);
/// Bytes of readahead if the options name none: the longest request of the kernel. Its default of
/// 128 KiB is less than many extents.
const READ_AHEAD: u64 = 1 << 20;
/// Largest number of threads. Each takes 16 MiB of address space.
const THREADS_MAX: usize = 256;

/// Opens the image of `sources`, mounts it at the directory `dir` and serves it until the mount is
/// unmounted, or until `stop`, for example the reading end of a pipe, can be read or is hung up.
/// `ready` is called once the mount answers. Between requests no thread wakes, except for
/// [`FuseOptions::metrics`].
///
/// If files are open when `stop` ends the session, the mount is removed from the tree at once, and
/// its threads answer for these files until they are closed or the process ends.
///
/// # Errors
/// The image cannot be opened, an extra device of it is missing, or another image is being written
/// over it; `dir` is not a directory; FUSE is missing, or not permitted for this user; the session
/// breaks off. Errors of single requests, for example because of a damaged extent, go to the
/// caller, and to the log (the facade `log`) with inode, path and offset.
pub fn serve(
    sources: ImageSources,
    dir: &Path,
    options: &FuseOptions,
    stop: BorrowedFd<'_>,
    ready: &mut dyn FnMut(),
) -> Result<(), MountError> {
    let has_xattrs = sources.has_xattrs();
    let held = sources.path().map(in_use::hold).transpose()?;
    let image = sources.open(&open_options(options)).and_then(|image| image.require_devices().map(|()| image));
    let image = image.map_err(|error| MountError::Image { source: Box::new(error) })?;
    let dir = mount_source::mount_point(dir)?;
    let device = attach::attach(&dir, options)?;
    let mut mount = Mount { dir, identity: None };
    let failed = |path: &Path, source| MountError::Fuse { path: path.to_path_buf(), source };

    let metrics = Arc::<Metrics>::default();
    let metrics_file = options.metrics.clone().map(|path| {
        let labels = MetricLabels::new(options.fsname.as_ref(), &mount.dir);
        MetricsFile::start(path, labels, image.clone(), Arc::clone(&metrics))
    });
    let mut metrics_file = metrics_file.transpose()?;

    let config = config(options);
    // A recording stops reads in advance, and so does the end of the session.
    let interrupt = Arc::<AtomicBool>::default();
    let recorder = Arc::new(Recorder::new(Arc::clone(&interrupt)));
    let hot_image = options.hot.is_some().then(|| image.clone());
    // Listings fill the dcache only if names come with attributes (READDIRPLUS).
    let lists_names = options.prefetch == Prefetch::DataAndNames && node::are_inode_numbers(&image);
    let (thread, slot) = lists_names.then(ReaddirThread::new).unzip();
    let idle = options.idle.map(|after| Idle::new(after, Arc::clone(&metrics)));
    let filesystem = || -> io::Result<FuseFilesystem> {
        let threads = LeaderFollowers::new(device.try_clone()?, config.n_threads.unwrap_or(1), Arc::clone(&metrics));
        let prefetcher = match options.prefetch {
            Prefetch::Off => None,
            Prefetch::Data | Prefetch::DataAndNames => {
                let inodes = image.superblock().inos;
                Some(Prefetcher::new(device.try_clone()?, thread, inodes, Arc::clone(&metrics)))
            }
        };
        let fs = ImageFs::new(image, metrics, options).with_xattrs(has_xattrs);
        Ok(FuseFilesystem::new(fs, threads, prefetcher, Arc::clone(&recorder)))
    };
    // The kernel decides who may enter: fuser's own check of user ids would only repeat it.
    let session = filesystem().and_then(|filesystem| Session::from_fd(filesystem, device, SessionACL::All, config));
    let session = session.map_err(|error| failed(&mount.dir, error))?;
    // While the session answers, no other image may be written over this one.
    let run = move || {
        let _held = held;
        session.run()
    };
    let session = Watched::spawn("kiln-fuse", run).map_err(|error| failed(&mount.dir, error))?;

    let answered = answer(&mount.dir, &session, stop);
    let mut tuned = Ok(());
    let mut hot_thread = None;
    if let Ok(Some(identity)) = answered {
        mount.identity = Some(identity);
        recorder.set_mount(identity);
        if let Some(slot) = slot {
            slot.set_mount(mount.dir.clone(), identity);
        }
        tuned = match options.read_ahead {
            Some(bytes) => ReadAhead::of(identity).set(bytes),
            // Without root, the kernel's default stays.
            None => ReadAhead::of(identity).set(READ_AHEAD).or(Ok(())),
        };
        if tuned.is_ok() {
            ready();
            if let (Some(hot), Some(image)) = (options.hot.clone(), hot_image) {
                match HotThread::start(hot, image, mount.dir.clone(), interrupt) {
                    Ok(thread) => hot_thread = Some(thread),
                    Err(error) => log::warn!("nothing is preloaded or pinned: {error}"),
                }
            }
        }
    }
    let mut waited = Ok(());
    if matches!(answered, Ok(Some(_))) && tuned.is_ok() {
        waited = wait_for_end(&session, stop, metrics_file.as_mut(), idle, &mount.dir);
    }
    // Before the mount ends: the thread may have files of it open.
    drop(hot_thread);
    let dir = mount.dir.clone();
    let ended = if session.has_ended() {
        let ended = join(session);
        // An orderly end: the mount was unmounted. Another mount at this path is not ours.
        if ended.is_ok() {
            std::mem::forget(mount);
        }
        ended
    } else {
        drop(mount);
        end(session)
    };
    // The reason why the session broke off says more than that it does not answer.
    ended.and(answered).and(tuned).and(waited).map_err(|error| failed(&dir, error))
}

/// Returns options for opening the image. The server only fetches requested ranges, keeps decoded
/// data until all of it was read, and prefetches only while fetches are fast.
fn open_options(options: &FuseOptions) -> ImageOptions {
    let policy = ReadPolicy::for_page_cache().with_latency(Latency::new());
    let opening = if options.hot.is_some() { Opening::HotList } else { Opening::Any };
    let subdir = options.subdir.as_ref().map(|path| path.as_os_str().as_bytes().to_vec());
    let image = ImageOptions::default().with_cache_bytes(options.cache_bytes).with_policy(policy);
    image.with_opening(opening).with_subdir(subdir)
}

fn config(options: &FuseOptions) -> Config {
    let mut config = Config::default();
    config.n_threads = Some(options.threads.clamp(1, THREADS_MAX));
    // A descriptor for each thread saves a lock, but needs the device itself, which a user may not
    // have.
    config.clone_fd = attach::open_device().is_ok();
    config
}

type Running = Watched<io::Result<()>>;

/// Waits until the mount at `dir` answers, and returns its identity; `None` if the session was
/// stopped or unmounted before. A separate thread asks: it would hang if the session did.
fn answer(dir: &Path, session: &Running, stop: BorrowedFd<'_>) -> io::Result<Option<MountIdentity>> {
    let dir = dir.to_path_buf();
    let (sender, answer) = channel::bounded(1);
    thread::Builder::new().name("kiln-fuse-ready".into()).spawn(move || {
        // Kernels before 5.9 cannot: there, a server that is killed at this moment may hang.
        let _ = leave_descriptors();
        let _ = sender.send(rustix::fs::statfs(&dir).and_then(|_| MountIdentity::of(&dir)));
    })?;
    loop {
        match answer.recv_timeout(LOOK) {
            Ok(answer) => return Ok(Some(answer?)),
            Err(TimeoutError::Timeout) if wait(&[session.end(), stop], Some(Instant::now()))?.is_none() => {}
            Err(TimeoutError::Timeout) => return Ok(None),
            Err(TimeoutError::Disconnected) => return Err(io::Error::other("asking the mount panicked")),
        }
    }
}

/// Waits until the session ends or `stop` is ready, and keeps the metrics file current meanwhile. Unmounts `dir` once
/// nobody has used it for as long as `idle` says; the session ends then.
fn wait_for_end(
    session: &Running,
    stop: BorrowedFd<'_>,
    mut metrics_file: Option<&mut MetricsFile>,
    mut idle: Option<Idle>,
    dir: &Path,
) -> io::Result<()> {
    let ends = [session.end(), stop];
    loop {
        let due = [metrics_file.as_deref().map(MetricsFile::due), idle.as_ref().map(Idle::due)];
        if wait(&ends, due.into_iter().flatten().min())?.is_some() {
            return Ok(());
        }
        if let Some(metrics_file) = metrics_file.as_mut().filter(|file| file.due() <= Instant::now()) {
            metrics_file.tick();
        }
        if idle.as_mut().is_some_and(Idle::is_over) && unmount::unmount_ours(dir).is_ok() {
            idle = None;
        }
    }
}

/// The time since the last request.
struct Idle {
    after: Duration,
    metrics: Arc<Metrics>,
    /// Requests so far, and the time of the look that saw the last one.
    seen: (u64, Instant),
    looked: Instant,
}

/// Looks for requests while a mount may be idle: it ends that part of the time late, at most.
const IDLE_LOOKS: u32 = 8;

impl Idle {
    fn new(after: Duration, metrics: Arc<Metrics>) -> Self {
        let now = Instant::now();
        Self { after, seen: (metrics.request_count(), now), metrics, looked: now }
    }

    /// Returns the time of the next look.
    fn due(&self) -> Instant {
        self.looked + self.after / IDLE_LOOKS
    }

    /// Returns true if it is time for a look, and there was no request for as long as the option says.
    fn is_over(&mut self) -> bool {
        let now = Instant::now();
        if now < self.due() {
            return false;
        }
        self.looked = now;
        let count = self.metrics.request_count();
        if count != self.seen.0 {
            self.seen = (count, now);
        }
        now - self.seen.1 >= self.after
    }
}

/// Returns the result of the session, if it ends in time.
fn end(session: Running) -> io::Result<()> {
    match wait(&[session.end()], Some(Instant::now() + GRACE))? {
        Some(_) => join(session),
        None => Ok(()),
    }
}

fn join(session: Running) -> io::Result<()> {
    session.join().unwrap_or_else(|_| Err(io::Error::other("the session panicked")))
}

/// Mount of this session. Dropping it unmounts it if it is still there.
struct Mount {
    dir: PathBuf,
    /// Set once the mount has answered.
    identity: Option<MountIdentity>,
}

impl Mount {
    /// Returns true if the mount point still leads to this mount. Only a mount that has answered is
    /// asked: the kernel remembers the answer, whatever happened to the session.
    fn is_there(&self) -> bool {
        let Some(identity) = self.identity else { return true };
        match MountIdentity::of(&self.dir) {
            Ok(found) => found == identity,
            Err(error) => error == Errno::NOTCONN,
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if !self.is_there() {
            return;
        }
        let result = match unmount::unmount_ours(&self.dir) {
            Err(MountError::Busy { path, .. }) => {
                log::warn!("{}: in use, unmounted lazily", path.display());
                unmount::unmount_lazily(&self.dir)
            }
            result => result,
        };
        match result {
            Ok(()) | Err(MountError::NotMounted { .. }) => {}
            Err(error) => log::warn!("{error}"),
        }
    }
}

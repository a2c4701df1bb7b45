//! An image served by FUSE: root mounts directly, users through `fusermount3`.

mod absent;
mod ahead;
mod answering;
mod ask;
mod attach;
mod beside;
mod export;
mod give;
mod listed;
mod lister;
mod metrics;
mod names;
mod node;
mod served;
mod server;
mod store;
mod team;
mod watch;

pub use ask::stats;

use crate::{MountError, place, unmount};
use export::Export;
use fuser::{Config, Session, SessionACL};
use give::Giver;
use kiln_read::Image;
use lister::Lister;
use metrics::Meters;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use served::Served;
use server::Server;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use team::Team;

/// How often the stop flag is looked at.
const POLL: Duration = Duration::from_millis(50);
/// How long a session may take to end after its mount is gone, before its threads are left alone with what is still open.
const GRACE: Duration = Duration::from_secs(1);
/// How far the kernel reads ahead for us if nobody says: what it asks for in one request at most.
const READ_AHEAD: u64 = 1 << 20;
/// Of statx(2).
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;
/// Each thread takes 16 MiB of address space.
const THREADS_MAX: usize = 256;

/// How to serve an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FuseOptions {
    /// Requests that are answered at the same time, 1 to 256. Blocking on a slow source needs many.
    pub threads: usize,
    /// Let other users in. The modes in the image are enforced in any case.
    pub allow_other: bool,
    /// What the mount table shows as the source: the image's path.
    pub fsname: String,
    /// How far the kernel reads ahead for who reads sequentially, in bytes; setting it needs root. `None` is 1 MiB where that can
    /// be set, else what the kernel has: 128 KiB. What is mapped into memory is read in pieces of this size, too, wherever it is
    /// touched, until the kernel notices that most of that is in vain.
    pub read_ahead: Option<u64>,
    /// A file for the counters, in the text format of Prometheus, written every ten seconds and at the end.
    pub metrics: Option<PathBuf>,
}

impl Default for FuseOptions {
    /// Four threads, for this user alone, 1 MiB of read-ahead if possible, and no file for counters.
    fn default() -> Self {
        Self { threads: 4, allow_other: false, fsname: "kiln".into(), read_ahead: None, metrics: None }
    }
}

/// Mount `image` at the directory `dir` and serve it until somebody unmounts it or `stop` is set. `ready` is called once
/// the mount answers.
///
/// If files are open when `stop` is set, the mount is taken out of the tree at once, and its threads answer for these
/// files until they are closed or the process ends.
///
/// # Errors
/// `dir` is no directory; FUSE is missing, or does not let this user; the session breaks off. Errors of single requests,
/// a damaged extent for example, go to who asked, and to the log.
pub fn serve(
    image: Image,
    dir: &Path,
    options: &FuseOptions,
    stop: Arc<AtomicBool>,
    ready: &mut dyn FnMut(),
) -> Result<(), MountError> {
    let dir = place::mount_point(dir)?;
    let device = attach::attach(&dir, options)?;
    let mut mount = Mount { dir, identity: None };
    let failed = |path: &Path, source| MountError::Fuse { path: path.to_path_buf(), source };

    let meters = Arc::<Meters>::default();
    let export = options.metrics.clone().map(|path| Export::start(path, image.clone(), Arc::clone(&meters)));
    let mut export = export.transpose()?;

    let config = config(options);
    let (lister, place) = lister(&image).unzip();
    let served = || -> io::Result<Served> {
        let team = Team::new(device.try_clone()?, config.n_threads.unwrap_or(1), Arc::clone(&meters));
        let giver = Giver::new(device.try_clone()?, lister, Arc::clone(&meters));
        Ok(Served::new(Server::new(image, meters), team, giver))
    };
    // The kernel decides who may enter: fuser's own check of user ids would only repeat it.
    let session = served().and_then(|served| Session::from_fd(served, device, SessionACL::All, config));
    let session = session.map_err(|error| failed(&mount.dir, error))?;
    let session = thread::Builder::new().name("kiln-fuse".into()).spawn(move || session.run());
    let session = session.map_err(|error| failed(&mount.dir, error))?;

    let stopped = || stop.load(Ordering::Relaxed);
    let answered = answer(&mount.dir, &session, &stopped);
    let mut tuned = Ok(());
    if let Ok(Some(identity)) = answered {
        mount.identity = Some(identity);
        if let Some(place) = place {
            place.tell(mount.dir.clone(), identity);
        }
        tuned = match options.read_ahead {
            Some(bytes) => set_read_ahead(identity, bytes),
            // Without root, the kernel's own has to do.
            None => set_read_ahead(identity, READ_AHEAD).or(Ok(())),
        };
        if tuned.is_ok() {
            ready();
        }
    }
    while answered.is_ok() && tuned.is_ok() && !session.is_finished() && !stopped() {
        thread::sleep(POLL);
        if let Some(export) = &mut export {
            export.tick();
        }
    }
    let dir = mount.dir.clone();
    let ended = if session.is_finished() {
        let ended = join(session);
        // An orderly end: somebody has unmounted us. What is in our place by now is not ours.
        if ended.is_ok() {
            std::mem::forget(mount);
        }
        ended
    } else {
        drop(mount);
        end(session)
    };
    // Why the session broke off says more than that it does not answer.
    ended.and(answered).and(tuned).map_err(|error| failed(&dir, error))
}

fn config(options: &FuseOptions) -> Config {
    let mut config = Config::default();
    config.n_threads = Some(options.threads.clamp(1, THREADS_MAX));
    // A descriptor for each thread spares them a lock, but needs the device itself, which a user may not have.
    config.clone_fd = attach::open_device().is_ok();
    config
}

/// Who lists directories for the kernel, where that teaches it anything: not if names come without attributes.
fn lister(image: &Image) -> Option<(Lister, lister::Place)> {
    let started = node::are_inode_numbers(image).then(Lister::start)?;
    started.inspect_err(|error| log::debug!("no names for the kernel: {error}")).ok()
}

/// Wait until the mount at `dir` answers, and return what it is; `None` if it was stopped or unmounted before.
/// A thread of its own asks, for it would hang if the session did.
fn answer(
    dir: &Path,
    session: &JoinHandle<io::Result<()>>,
    stopped: &dyn Fn() -> bool,
) -> io::Result<Option<Identity>> {
    let (sender, answers) = mpsc::channel();
    let dir = dir.to_path_buf();
    thread::Builder::new().name("kiln-fuse-ready".into()).spawn(move || {
        let _ = sender.send(rustix::fs::statfs(&dir).and_then(|_| Identity::of(&dir)));
    })?;
    loop {
        match answers.recv_timeout(POLL) {
            Ok(answer) => return Ok(Some(answer?)),
            Err(RecvTimeoutError::Timeout) if !session.is_finished() && !stopped() => {}
            Err(_) => return Ok(None),
        }
    }
}

/// Tell the kernel how far to read ahead on our mount. It starts with 128 KiB, which is less than many an extent.
fn set_read_ahead(mount: Identity, bytes: u64) -> io::Result<()> {
    let (major, minor) = mount.device;
    let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    let failed = |error: io::Error| io::Error::new(error.kind(), format!("cannot set its read-ahead, {path}: {error}"));
    fs::write(&path, (bytes >> 10).to_string()).map_err(failed)
}

/// The session's own result, if it ends in time.
fn end(session: JoinHandle<io::Result<()>>) -> io::Result<()> {
    let deadline = Instant::now() + GRACE;
    while !session.is_finished() {
        if Instant::now() >= deadline {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(5));
    }
    join(session)
}

fn join(session: JoinHandle<io::Result<()>>) -> io::Result<()> {
    session.join().unwrap_or_else(|_| Err(io::Error::other("the session panicked")))
}

/// What tells one mount from another at the same place. Device numbers are given again soon, mount numbers are from
/// Linux 6.8 on not (`STATX_MNT_ID_UNIQUE`); older kernels answer with one that may be.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: (u32, u32),
    mount: u64,
}

impl Identity {
    fn of(dir: &Path) -> Result<Self, rustix::io::Errno> {
        Self::at(CWD, dir, AtFlags::empty())
    }

    /// Of something that is open.
    fn of_open(file: &OwnedFd) -> Result<Self, rustix::io::Errno> {
        Self::at(file.as_fd(), Path::new(""), AtFlags::EMPTY_PATH)
    }

    fn at(fd: BorrowedFd<'_>, path: &Path, flags: AtFlags) -> Result<Self, rustix::io::Errno> {
        let wanted = StatxFlags::TYPE | StatxFlags::MNT_ID | StatxFlags::from_bits_retain(STATX_MNT_ID_UNIQUE);
        let found = statx(fd, path, flags, wanted)?;
        Ok(Self { device: (found.stx_dev_major, found.stx_dev_minor), mount: found.stx_mnt_id })
    }
}

/// Our mount; dropping it unmounts what is left of it.
struct Mount {
    dir: PathBuf,
    /// Once known.
    identity: Option<Identity>,
}

impl Mount {
    /// Whether what is at the mount point is still ours, and nobody has put another mount in its place. Only a mount that
    /// has answered is asked: the kernel remembers the answer, whatever has become of the session.
    fn is_there(&self) -> bool {
        let Some(identity) = self.identity else { return true };
        match Identity::of(&self.dir) {
            Ok(found) => found == identity,
            Err(error) => error == rustix::io::Errno::NOTCONN,
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if !self.is_there() {
            return;
        }
        let result = match unmount::unmount(&self.dir) {
            Err(MountError::Busy { path }) => {
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

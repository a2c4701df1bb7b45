//! An image served by FUSE: root mounts directly, users through `fusermount3`.

mod attach;
mod metrics;
mod prefetch;
mod protocol;
mod threads;

pub use metrics::labels::Labels;
pub use metrics::query::stats;
pub use protocol::owners::{Ids, Owners};

use crate::{Attributes, MountError, mount_source, unmount};
use fuser::{Config, Session, SessionACL};
use kiln_read::Image;
use metrics::Meters;
use metrics::file::Export;
use prefetch::Giver;
use prefetch::dentry_thread::Lister;
use protocol::filesystem::Served;
use protocol::image_fs::Server;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use threads::leader_followers::Team;
use threads::watched::{Watched, wait};

/// How long a session may take to end after its mount is gone, before its threads are left alone with what is still open.
const GRACE: Duration = Duration::from_secs(1);
/// How far the kernel reads ahead for us if nobody says: what it asks for in one request at most.
const READ_AHEAD: u64 = 1 << 20;
/// Of statx(2).
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;
/// Each thread takes 16 MiB of address space.
const THREADS_MAX: usize = 256;

/// How to serve an image.
#[derive(Clone, Debug)]
pub struct FuseOptions {
    /// Requests that are answered at the same time, 1 to 256. Blocking on a slow source needs many.
    pub threads: usize,
    /// Let other users in.
    pub allow_other: bool,
    /// Whether the modes in the image say what may be read.
    pub modes: Modes,
    /// Owners of files, as the mount shows and enforces them.
    pub owners: Owners,
    /// What the mount allows beside reading.
    pub attributes: Attributes,
    /// What the mount table shows as the source: the image's path.
    pub fsname: String,
    /// How far the kernel reads ahead for who reads sequentially, in bytes; setting it needs root. `None` is 1 MiB where that can
    /// be set, else what the kernel has: 128 KiB. What is mapped into memory is read in pieces of this size, too, wherever it is
    /// touched, until the kernel notices that most of that is in vain.
    pub read_ahead: Option<u64>,
    /// A file for the counters, in the text format of Prometheus with [`Labels`], written every ten seconds and at the end.
    pub metrics: Option<PathBuf>,
}

impl Default for FuseOptions {
    /// Four threads, for this user alone, 1 MiB of read-ahead if possible, and no file for counters.
    fn default() -> Self {
        Self {
            threads: 4,
            allow_other: false,
            modes: Modes::default(),
            owners: Owners::default(),
            attributes: Attributes::default(),
            fsname: "kiln".into(),
            read_ahead: None,
            metrics: None,
        }
    }
}

/// What owners, modes and ACLs in an image mean to the users of a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Modes {
    /// They are enforced if root serves the image, or other users are let in. A user who mounts an image alone reads all files: the
    /// image itself can be read, so enforcing would protect nothing.
    #[default]
    AmongUsers,
    /// They are enforced: `default_permissions`.
    Enforced,
    /// They are shown, and everyone who may enter reads everything.
    Shown,
}

impl FuseOptions {
    fn enforces_modes(&self) -> bool {
        match self.modes {
            Modes::AmongUsers => self.allow_other || rustix::process::geteuid().is_root(),
            Modes::Enforced => true,
            Modes::Shown => false,
        }
    }
}

/// Mount `image` at the directory `dir` and serve it until the mount is unmounted or `stop`, the reading end of a pipe for
/// example, can be read or is hung up. `ready` is called once the mount answers. Between requests no thread wakes, except for
/// [`FuseOptions::metrics`].
///
/// If files are open when `stop` ends it, the mount is taken out of the tree at once, and its threads answer for these
/// files until they are closed or the process ends.
///
/// # Errors
/// `dir` is no directory; FUSE is missing, or does not let this user; the session breaks off. Errors of single requests,
/// a damaged extent for example, go to the caller, and to the log (the facade `log`) with inode, path and offset.
pub fn serve(
    image: Image,
    dir: &Path,
    options: &FuseOptions,
    stop: BorrowedFd<'_>,
    ready: &mut dyn FnMut(),
) -> Result<(), MountError> {
    let dir = mount_source::mount_point(dir)?;
    let device = attach::attach(&dir, options)?;
    let mut mount = Mount { dir, identity: None };
    let failed = |path: &Path, source| MountError::Fuse { path: path.to_path_buf(), source };

    let meters = Arc::<Meters>::default();
    let export = options.metrics.clone().map(|path| {
        let labels = Labels::new(options.fsname.as_ref(), &mount.dir);
        Export::start(path, labels, image.clone(), Arc::clone(&meters))
    });
    let mut export = export.transpose()?;

    let config = config(options);
    // Directories are listed for the kernel where that teaches it anything: not if names come without attributes.
    let (lister, place) = protocol::node::are_inode_numbers(&image).then(Lister::new).unzip();
    let served = || -> io::Result<Served> {
        let team = Team::new(device.try_clone()?, config.n_threads.unwrap_or(1), Arc::clone(&meters));
        let giver = Giver::new(device.try_clone()?, lister, image.superblock().inos, Arc::clone(&meters));
        Ok(Served::new(Server::new(image, meters, options), team, giver))
    };
    // The kernel decides who may enter: fuser's own check of user ids would only repeat it.
    let session = served().and_then(|served| Session::from_fd(served, device, SessionACL::All, config));
    let session = session.map_err(|error| failed(&mount.dir, error))?;
    let session = Watched::spawn("kiln-fuse", move || session.run()).map_err(|error| failed(&mount.dir, error))?;

    let answered = answer(&mount.dir, &session, stop);
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
    let mut waited = Ok(());
    if matches!(answered, Ok(Some(_))) && tuned.is_ok() {
        waited = wait_for_end(&session, stop, export.as_mut());
    }
    let dir = mount.dir.clone();
    let ended = if session.has_ended() {
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
    ended.and(answered).and(tuned).and(waited).map_err(|error| failed(&dir, error))
}

fn config(options: &FuseOptions) -> Config {
    let mut config = Config::default();
    config.n_threads = Some(options.threads.clamp(1, THREADS_MAX));
    // A descriptor for each thread spares them a lock, but needs the device itself, which a user may not have.
    config.clone_fd = attach::open_device().is_ok();
    config
}

type Running = Watched<io::Result<()>>;

/// Wait until the mount at `dir` answers, and return what it is; `None` if it was stopped or unmounted before.
/// A thread of its own asks, for it would hang if the session did.
fn answer(dir: &Path, session: &Running, stop: BorrowedFd<'_>) -> io::Result<Option<Identity>> {
    let dir = dir.to_path_buf();
    let ask = move || rustix::fs::statfs(&dir).and_then(|_| Identity::of(&dir));
    let asking = Watched::spawn("kiln-fuse-ready", ask)?;
    match wait(&[asking.end(), session.end(), stop], None)? {
        Some(0) => {
            let answer = asking.join().map_err(|_| io::Error::other("asking the mount panicked"))?;
            Ok(Some(answer?))
        }
        _ => Ok(None),
    }
}

/// Wait until the session ends or `stop` says so, and keep the file of counters meanwhile.
fn wait_for_end(session: &Running, stop: BorrowedFd<'_>, mut export: Option<&mut Export>) -> io::Result<()> {
    let ends = [session.end(), stop];
    while wait(&ends, export.as_deref().map(Export::due))?.is_none() {
        if let Some(export) = &mut export {
            export.tick();
        }
    }
    Ok(())
}

/// Tell the kernel how far to read ahead on our mount. It starts with 128 KiB, which is less than many an extent.
fn set_read_ahead(mount: Identity, bytes: u64) -> io::Result<()> {
    let (major, minor) = mount.device;
    let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    let failed = |error: io::Error| io::Error::new(error.kind(), format!("cannot set its read-ahead, {path}: {error}"));
    fs::write(&path, (bytes >> 10).to_string()).map_err(failed)
}

/// The session's own result, if it ends in time.
fn end(session: Running) -> io::Result<()> {
    match wait(&[session.end()], Some(Instant::now() + GRACE))? {
        Some(_) => join(session),
        None => Ok(()),
    }
}

fn join(session: Running) -> io::Result<()> {
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
        let result = match unmount::unmount_ours(&self.dir) {
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

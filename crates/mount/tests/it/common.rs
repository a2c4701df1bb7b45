//! Mounts that end with the test, and trees that can be compared.
#![allow(dead_code, unused_imports, unused_macros, missing_docs)] // each test file uses its own part

pub mod snapshot;

use kiln_mount::fuse::{self, FuseOptions, ImageSources, Prefetch};
use kiln_mount::{MountError, kernel};
use kiln_read::{Image, OpenOptions};
use rustix::mount::UnmountFlags;
use std::cell::Cell;
use std::fs;
use std::io::{self, PipeWriter};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

thread_local! {
    static PREFETCH: Cell<Prefetch> = const { Cell::new(Prefetch::DataAndNames) };
}

/// Run a test with servers that prefetch so much.
pub fn with_prefetch(prefetch: Prefetch, test: fn()) {
    PREFETCH.set(prefetch);
    test();
}

/// How much the servers of this test prefetch.
pub fn prefetch() -> Prefetch {
    PREFETCH.get()
}

/// Tests that run twice: with all prefetch, and with none.
macro_rules! scenes {
    ($($name:ident)*) => {
        mod with_all_prefetch {
            $(#[test] fn $name() { crate::common::with_prefetch(kiln_mount::fuse::Prefetch::DataAndNames, super::$name) })*
        }
        mod without_prefetch {
            $(#[test] fn $name() { crate::common::with_prefetch(kiln_mount::fuse::Prefetch::Off, super::$name) })*
        }
    };
}
pub(crate) use scenes;

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Print why a test does not run, or fail where skipping is forbidden.
pub fn skip(reason: &str) {
    assert!(std::env::var_os("KILN_NO_SKIP").is_none_or(|value| value != "1"), "must not skip: {reason}");
    println!("SKIP: {reason}");
}

/// Whether this process may mount; a printed skip if not.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("needs root");
    }
    root
}

/// Whether FUSE can be used here; a printed skip if not.
pub fn has_fuse() -> bool {
    let found = Path::new("/dev/fuse").exists();
    if !found {
        skip("no /dev/fuse");
    }
    found && is_root()
}

pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../read/tests/golden").join(name)
}

/// The golden image `name`, with its extra device if it has one.
pub fn golden_with_devices(name: &str) -> (PathBuf, Vec<PathBuf>) {
    let blob = golden(&format!("{name}.blob"));
    (golden(&format!("{name}.erofs")), blob.exists().then_some(blob).into_iter().collect())
}

pub fn open(path: &Path, devices: &[PathBuf]) -> Image {
    Image::open_path(path, devices, &OpenOptions::default()).unwrap()
}

/// The sources of an image, as `kiln mount` opens them.
pub fn sources(path: &Path, devices: &[PathBuf]) -> ImageSources {
    ImageSources::open_paths(path, devices, 0, 64 << 20).unwrap()
}

pub fn options(fsname: &Path) -> FuseOptions {
    FuseOptions {
        threads: 4,
        allow_other: true,
        fsname: fsname.display().to_string(),
        prefetch: prefetch(),
        ..FuseOptions::default()
    }
}

/// A directory that is removed, after what is still mounted on its children has been detached.
pub struct TempDir(PathBuf);

impl TempDir {
    /// Below `parent`, for all users.
    pub fn new_in(parent: &Path) -> TempDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let unique = format!("kiln-mount-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = parent.join(unique);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        TempDir(path.canonicalize().unwrap())
    }

    pub fn new() -> TempDir {
        TempDir::new_in(&std::env::temp_dir())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A new directory in it.
    pub fn dir(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir(&path).unwrap();
        path
    }

    /// A copy of `file` in it.
    pub fn copy(&self, file: &Path) -> PathBuf {
        let path = self.0.join(file.file_name().unwrap());
        fs::copy(file, &path).unwrap();
        path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            while rustix::mount::unmount(entry.path(), UnmountFlags::DETACH).is_ok() {}
        }
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A served image. Dropping it stops the server and waits.
pub struct Served {
    pub dir: PathBuf,
    /// Closed to stop it.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<Result<(), MountError>>>,
}

impl Served {
    /// Serve the image of `sources` at `dir`, and return when `ready` has been called.
    pub fn start(sources: ImageSources, dir: &Path, options: FuseOptions) -> Result<Served, MountError> {
        let (stopped, stop) = io::pipe().unwrap();
        let (sender, is_ready) = mpsc::channel();
        let path = dir.to_path_buf();
        let serve = move || fuse::serve(sources, &path, &options, stopped.as_fd(), &mut || sender.send(()).unwrap());
        let served = Served { dir: dir.to_path_buf(), stop: Some(stop), thread: Some(thread::spawn(serve)) };
        match is_ready.recv_timeout(PATIENCE) {
            Ok(()) => Ok(served),
            // `serve` has returned, and dropped its end.
            Err(mpsc::RecvTimeoutError::Disconnected) => match served.wait() {
                Ok(()) => panic!("serving ended without being ready"),
                Err(error) => Err(error),
            },
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("not ready in time"),
        }
    }

    /// Wait for the end of `serve`.
    pub fn wait(mut self) -> Result<(), MountError> {
        let thread = self.thread.take().unwrap();
        wait_until(|| thread.is_finished());
        thread.join().unwrap()
    }

    /// Stop it and wait.
    pub fn stop(mut self) -> Result<(), MountError> {
        self.stop = None;
        self.wait()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if self.thread.take().is_some_and(|thread| {
            self.stop = None;
            thread.join().is_err()
        }) {
            let _ = rustix::mount::unmount(&self.dir, UnmountFlags::DETACH);
        }
    }
}

/// A kernel mount, unmounted when dropped.
pub struct KernelMount(pub PathBuf);

impl KernelMount {
    pub fn new(image: &Path, devices: &[PathBuf], dir: &Path) -> Result<KernelMount, MountError> {
        kernel::mount(image, devices, 0, dir).map(|_| KernelMount(dir.to_path_buf()))
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

pub fn wait_until(mut condition: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "waited in vain");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Whether `ls -a`, which lists as C libraries do, shows "." and "..".
pub fn ls_shows_dots(dir: &Path) -> bool {
    let listed = Command::new("ls").arg("-a").arg(dir).output().unwrap().stdout;
    [&b"."[..], b".."].iter().all(|dots| listed.split(|byte| *byte == b'\n').any(|name| name == *dots))
}

/// The line of the mount table for `dir`: source, mount point, type, options.
pub fn mount_table_line(dir: &Path) -> Option<Vec<String>> {
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let fields = |line: &str| line.split(' ').map(str::to_string).collect::<Vec<_>>();
    table.lines().map(fields).rfind(|fields| Path::new(&fields[1]) == dir)
}

pub fn is_mounted(dir: &Path) -> bool {
    mount_table_line(dir).is_some()
}

//! Mounted images, which are unmounted in any case.

use crate::temp::TempDir;
use kiln_mount::fuse::{FuseOptions, ImageSources, query_stats, serve};
use kiln_mount::{MountError, kernel, unmount};
use rustix::mount::UnmountFlags;
use std::io::{self, PipeWriter};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Much longer than a server takes to start, to end, or to become idle.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Waits for a condition that becomes true within 30 seconds.
///
/// # Panics
/// If it does not.
pub fn wait_until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain");
        thread::sleep(Duration::from_millis(2));
    }
}

/// An image served by FUSE. Dropping it stops the server and waits.
#[derive(Debug)]
pub struct Served {
    /// Mount point.
    pub dir: PathBuf,
    /// Write end of a pipe; closing it stops the server.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<Result<(), MountError>>>,
}

impl Served {
    /// Serves the image of `sources` at `dir`, and returns when it is mounted.
    ///
    /// # Errors
    /// Those of [`serve`].
    ///
    /// # Panics
    /// If the server is not ready in time, or ends without an error.
    pub fn start(sources: ImageSources, dir: &Path, options: FuseOptions) -> Result<Served, MountError> {
        let (stopped, stop) = io::pipe().expect("a pipe");
        let (sender, is_ready) = mpsc::channel();
        let path = dir.to_path_buf();
        let ready = move || sender.send(()).expect("the test waits");
        let serve = move || serve(sources, &path, &options, stopped.as_fd(), &mut || ready());
        let served = Served { dir: dir.to_path_buf(), stop: Some(stop), thread: Some(thread::spawn(serve)) };
        match is_ready.recv_timeout(TIMEOUT) {
            Ok(()) => Ok(served),
            // `serve` has returned, and dropped its end.
            Err(mpsc::RecvTimeoutError::Disconnected) => match served.wait() {
                Ok(()) => panic!("serving ended without being ready"),
                Err(error) => Err(error),
            },
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("not ready in time"),
        }
    }

    /// Waits for the end of the server.
    ///
    /// # Errors
    /// Those of [`serve`].
    ///
    /// # Panics
    /// If the server does not end in time, or panicked.
    pub fn wait(mut self) -> Result<(), MountError> {
        let thread = self.thread.take().expect("only the drop takes it, too");
        wait_until(|| thread.is_finished());
        thread.join().expect("a server does not panic")
    }

    /// Stops the server and waits.
    ///
    /// # Errors
    /// Those of [`serve`].
    pub fn stop(mut self) -> Result<(), MountError> {
        self.stop = None;
        self.wait()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.stop = None;
        match thread.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => eprintln!("{}: {error}", self.dir.display()),
            Err(_) => {
                eprintln!("{}: the server panicked", self.dir.display());
                let _ = rustix::mount::unmount(&self.dir, UnmountFlags::DETACH);
            }
        }
    }
}

/// A mount by the kernel's driver, unmounted when dropped.
#[derive(Debug)]
pub struct KernelMount(pub PathBuf);

impl KernelMount {
    /// Mounts the image at byte `offset` of a file, with its extra devices, at `dir`.
    ///
    /// # Errors
    /// Those of [`kernel::mount`].
    pub fn new(image: &Path, offset: u64, devices: &[PathBuf], dir: &Path) -> Result<KernelMount, MountError> {
        kernel::mount(image, devices, offset, dir).map(|_| KernelMount(dir.to_path_buf()))
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        if unmount(&self.0).is_err() {
            // A failing test may leave files open.
            let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
        }
    }
}

/// A mounted image, unmounted when dropped.
#[derive(Debug)]
pub struct Mount {
    _mounted: Mounted,
    dir: TempDir,
}

/// Owner of a mount.
#[derive(Debug)]
enum Mounted {
    Kernel { _mount: KernelMount },
    Fuse { _server: Served },
}

impl Mount {
    /// Mounts `image` with the kernel's driver, by our own library.
    ///
    /// # Errors
    /// The reason why this machine cannot, or the kernel's error.
    pub fn by_kernel(image: &Path) -> Result<Self, String> {
        Self::by_kernel_at(image, 0, &[])
    }

    /// Mounts the image at byte `offset` of a file, with its extra devices, with the kernel's
    /// driver, by our own library.
    ///
    /// # Errors
    /// The reason why this machine cannot, or the kernel's error.
    pub fn by_kernel_at(image: &Path, offset: u64, devices: &[PathBuf]) -> Result<Self, String> {
        let dir = mount_point()?;
        let mount = KernelMount::new(image, offset, devices, dir.path()).map_err(|error| error.to_string())?;
        Ok(Self { _mounted: Mounted::Kernel { _mount: mount }, dir })
    }

    /// Mounts `image` by `mount -t erofs -o loop,ro`.
    ///
    /// # Errors
    /// The reason why this machine cannot, or the program's error.
    pub fn by_loop(image: &Path) -> Result<Self, String> {
        Self::by_loop_as(image, "erofs")
    }

    /// Mounts an image of a filesystem of this type by `mount -t fs_type -o loop,ro`.
    ///
    /// # Errors
    /// Those of [`Mount::by_loop`].
    pub fn by_loop_as(image: &Path, fs_type: &str) -> Result<Self, String> {
        let dir = mount_point()?;
        let output = Command::new("mount").args(["-t", fs_type, "-o", "loop,ro"]).arg(image).arg(dir.path()).output();
        let output = output.map_err(|error| format!("no program mount: {error}"))?;
        match output.status.success() {
            true => {
                let mount = KernelMount(dir.path().to_owned());
                Ok(Self { _mounted: Mounted::Kernel { _mount: mount }, dir })
            }
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }

    /// Serves an image by FUSE as `kiln mount` does, with all prefetch.
    ///
    /// # Errors
    /// The reason why this machine cannot, or why the image cannot be opened.
    pub fn by_fuse(sources: ImageSources) -> Result<Self, String> {
        Self::by_fuse_with(sources, FuseOptions::default())
    }

    /// Serves an image by FUSE.
    ///
    /// # Errors
    /// Those of [`Mount::by_fuse`].
    pub fn by_fuse_with(sources: ImageSources, options: FuseOptions) -> Result<Self, String> {
        let dir = mount_point()?;
        let options = FuseOptions { fsname: "kiln-test".to_owned(), ..options };
        let server = Served::start(sources, dir.path(), options).map_err(|error| error.to_string())?;
        Ok(Self { _mounted: Mounted::Fuse { _server: server }, dir })
    }

    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

fn mount_point() -> Result<TempDir, String> {
    TempDir::new("mnt").map_err(|error| error.to_string())
}

/// Returns the counters of a server once it is idle: a request is counted when it is done, just
/// after its answer.
///
/// # Errors
/// Those of [`query_stats`].
pub fn settled_stats(dir: &Path) -> Result<String, MountError> {
    let mut text = query_stats(dir)?;
    let mut same = 0;
    while same < 3 {
        thread::sleep(Duration::from_millis(10));
        let before = std::mem::replace(&mut text, query_stats(dir)?);
        same = if text == before { same + 1 } else { 0 };
    }
    Ok(text)
}

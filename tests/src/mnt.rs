//! Mounted images, unmounted whatever happens.

use crate::temp::TempDir;
use kiln_mount::fuse::{FuseOptions, ImageSources, serve};
use kiln_mount::{MountError, kernel, unmount};
use std::io::{self, PipeWriter};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

/// A mounted image; its end is an unmount.
#[derive(Debug)]
pub struct Mount {
    server: Option<Server>,
    dir: TempDir,
}

/// What answers for a mount by FUSE.
#[derive(Debug)]
struct Server {
    /// Closed to stop it.
    stop: PipeWriter,
    thread: JoinHandle<Result<(), MountError>>,
}

impl Mount {
    /// Let the kernel mount `image` by our own library.
    ///
    /// # Errors
    /// Why this machine cannot, or what the kernel says.
    pub fn by_kernel(image: &Path) -> Result<Self, String> {
        Self::by_kernel_at(image, 0, &[])
    }

    /// Let the kernel mount the image at byte `offset` of a file, with its extra devices, by our own library.
    ///
    /// # Errors
    /// Why this machine cannot, or what the kernel says.
    pub fn by_kernel_at(image: &Path, offset: u64, devices: &[PathBuf]) -> Result<Self, String> {
        let dir = mount_point()?;
        kernel::mount(image, devices, offset, dir.path()).map_err(|error| error.to_string())?;
        Ok(Self { server: None, dir })
    }

    /// Let the kernel mount `image` by `mount -t erofs -o loop,ro`.
    ///
    /// # Errors
    /// Why this machine cannot, or what the program says.
    pub fn by_loop(image: &Path) -> Result<Self, String> {
        let dir = mount_point()?;
        let output = Command::new("mount").args(["-t", "erofs", "-o", "loop,ro"]).arg(image).arg(dir.path()).output();
        let output = output.map_err(|error| format!("no program mount: {error}"))?;
        match output.status.success() {
            true => Ok(Self { server: None, dir }),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }

    /// Serve an image by FUSE as `kiln mount` does, with all prefetch.
    ///
    /// # Errors
    /// Why this machine cannot, or why the image cannot be opened.
    pub fn by_fuse(sources: ImageSources) -> Result<Self, String> {
        Self::by_fuse_with(sources, FuseOptions::default())
    }

    /// Serve an image by FUSE.
    ///
    /// # Errors
    /// As [`Mount::by_fuse`].
    pub fn by_fuse_with(sources: ImageSources, options: FuseOptions) -> Result<Self, String> {
        let dir = mount_point()?;
        let (stopped, stop) = io::pipe().map_err(|error| error.to_string())?;
        let (ready, is_ready) = mpsc::channel();
        let options = FuseOptions { fsname: "kiln-test".to_owned(), ..options };
        let path = dir.path().to_owned();
        let thread = thread::spawn(move || {
            serve(sources, &path, &options, stopped.as_fd(), &mut || ready.send(()).expect("the test waits"))
        });
        // An error before it is ready drops the sender.
        match is_ready.recv() {
            Ok(()) => Ok(Self { server: Some(Server { stop, thread }), dir }),
            Err(_) => match thread.join() {
                Ok(Err(error)) => Err(error.to_string()),
                Ok(Ok(())) => Err("ended before it was ready".to_owned()),
                Err(_) => Err("panicked".to_owned()),
            },
        }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

fn mount_point() -> Result<TempDir, String> {
    TempDir::new("mnt").map_err(|error| error.to_string())
}

impl Drop for Mount {
    fn drop(&mut self) {
        let ended = match self.server.take() {
            None => unmount(self.path()).map_err(|error| error.to_string()),
            Some(server) => {
                drop(server.stop);
                match server.thread.join() {
                    Ok(outcome) => outcome.map_err(|error| error.to_string()),
                    Err(_) => Err("the server panicked".to_owned()),
                }
            }
        };
        if let Err(error) = ended {
            eprintln!("{}: {error}", self.path().display());
        }
    }
}

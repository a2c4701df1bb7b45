//! An image that this process has mounted.

use kiln_mount::fuse::{self, FuseOptions};
use kiln_mount::kernel::{self, KernelVia};
use kiln_mount::{MountError, check_free};
use kiln_parallel::channel;
use kiln_read::ImageSources;
use std::io::{self, PipeWriter};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use crate::error::Error;
use crate::open::OpenOptions;

/// Way in which an image is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MountVia {
    /// By the kernel's driver. Such a mount could outlive this process.
    Kernel(KernelVia),
    /// By a FUSE server in this process, which ends with it.
    Fuse,
}

/// A mounted image. Dropping it unmounts the image; what goes wrong then is lost, so [`MountedImage::unmount`] is the better way.
#[derive(Debug)]
pub struct MountedImage {
    dir: PathBuf,
    via: MountVia,
    /// The FUSE server.
    server: Option<FuseServer>,
    /// True if the mount has ended, or is to stay.
    is_over: bool,
}

#[derive(Debug)]
struct FuseServer {
    thread: JoinHandle<Result<(), MountError>>,
    /// The server ends once this is closed.
    stop: PipeWriter,
}

/// Mounts an image at the existing, empty directory `dir`: read-only, without set-user-id and device files. By the kernel's driver
/// where it lets this process, else by FUSE.
///
/// # Errors
/// An image that cannot be read, a directory that is in use, a system that allows neither way.
pub fn mount(image: impl AsRef<Path>, dir: impl AsRef<Path>) -> Result<MountedImage, Error> {
    mount_with(image, dir, &OpenOptions::default())
}

/// Mounts an image like [`mount`], with choices. With root hashes FUSE does it, which verifies all that is read: the
/// kernel's driver verifies nothing. FUSE has a cache and a policy of its own.
///
/// # Errors
/// Those of [`mount`]; a hash tree that is missing or has another root hash.
pub fn mount_with(
    image: impl AsRef<Path>,
    dir: impl AsRef<Path>,
    options: &OpenOptions,
) -> Result<MountedImage, Error> {
    let (image, dir) = (image.as_ref(), dir.as_ref());
    check_free(dir)?;
    let mounted = |via, server| MountedImage { dir: dir.to_owned(), via, server, is_over: false };
    let by_fuse = || -> Result<_, Error> {
        Ok(mounted(MountVia::Fuse, Some(FuseServer::start(options.sources(image)?, image, dir)?)))
    };
    if !options.root_hashes.is_empty() || options.read.generation.is_some() {
        return by_fuse();
    }
    match kernel::mount(image, &options.devices, options.read.offset, dir) {
        Ok(via) => Ok(mounted(MountVia::Kernel(via), None)),
        Err(error) if error.falls_back_to_fuse() => by_fuse(),
        Err(error) => Err(error.into()),
    }
}

impl MountedImage {
    /// Returns the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the way in which the image is mounted.
    pub fn via(&self) -> &MountVia {
        &self.via
    }

    /// Unmounts the image. Files of it that are open keep the kernel's mount, which is an error; a FUSE server takes the mount out
    /// of the tree, and answers for these files until they are closed.
    ///
    /// # Errors
    /// A mount in use, or one that has been unmounted already.
    pub fn unmount(mut self) -> Result<(), Error> {
        self.end()
    }

    /// Leaves the image mounted: by the kernel for good, by FUSE until this process ends. `kiln umount` or `umount` unmount it.
    pub fn leave(mut self) {
        self.is_over = true;
        // Without its writing end the pipe would end the server.
        self.server.take().into_iter().for_each(|server| std::mem::forget(server.stop));
    }

    fn end(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.is_over, true) {
            return Ok(());
        }
        Ok(match self.server.take() {
            Some(server) => server.end(&self.dir),
            None => kiln_mount::unmount(&self.dir),
        }?)
    }
}

impl Drop for MountedImage {
    fn drop(&mut self) {
        // A mount that is in use stays.
        let _ = self.end();
    }
}

impl FuseServer {
    /// Starts to serve, and returns once the mount answers.
    fn start(sources: ImageSources, image: &Path, dir: &Path) -> Result<Self, MountError> {
        let failed = |source: io::Error| MountError::Fuse { path: dir.to_owned(), source };
        let (read_end, stop) = io::pipe().map_err(failed)?;
        let (ready, is_ready) = channel::bounded(1);
        let options = FuseOptions { fsname: image.display().to_string(), ..FuseOptions::default() };
        let place = dir.to_owned();
        let serve = move || {
            // The caller may have gone.
            fuse::serve(sources, &place, &options, read_end.as_fd(), &mut || ready.send(()).unwrap_or_default())
        };
        let thread = thread::Builder::new().name("kiln-fuse".into()).spawn(serve).map_err(failed)?;
        let server = FuseServer { thread, stop };
        // The sender is gone without a word if the server has failed.
        match is_ready.recv() {
            Some(()) => Ok(server),
            None => Err(server.end(dir).err().unwrap_or_else(|| failed(io::Error::other("the server has ended")))),
        }
    }

    fn end(self, dir: &Path) -> Result<(), MountError> {
        drop(self.stop);
        let panicked = |_| MountError::Fuse { path: dir.to_owned(), source: io::Error::other("the server panicked") };
        self.thread.join().map_err(panicked)?
    }
}

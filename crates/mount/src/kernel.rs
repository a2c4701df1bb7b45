//! Mounts by Linux's own EROFS driver, by the mount API of Linux 5.2.
//!
//! The image file is passed to the kernel as it is. Kernels before 6.12, and some filesystems under
//! the image (tmpfs, overlayfs), require a block device: then the kernel reads the file through a
//! read-only loop device, which ends with the mount. An image inside a larger file is read that
//! way, too, unless the kernel accepts offsets (Linux 6.16) and this one is a number of whole
//! blocks.

mod calls;
pub mod composefs;
mod loop_device;

use crate::mount_source::{self, Source, SourceKind};
use crate::{Attributes, MountError};
use kiln_read::{Image, ImageOptions};
use loop_device::LoopDevice;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree, unmount,
};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Length of the longest string that `fsconfig` accepts, in bytes.
const PARAMETER_MAX: usize = 255;
/// Largest number of messages that the kernel stores for one context.
const MESSAGES_MAX: usize = 8;

/// Way in which the kernel reads a mounted image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelVia {
    /// From the file or the block device itself.
    File,
    /// Through this loop device, which is freed when the mount ends.
    Loop(PathBuf),
}

/// Mounts the image that begins at byte `offset` of `image`, with its extra `devices` in the order
/// of its device table, at the directory `dir`: read-only, without set-user-id and device files.
///
/// # Errors
/// See [`MountError`]; [`MountError::falls_back_to_fuse`] returns true if FUSE may succeed.
pub fn mount(image: &Path, devices: &[PathBuf], offset: u64, dir: &Path) -> Result<KernelVia, MountError> {
    KernelMount { image, devices, offset, subdir: None, attributes: Attributes::default() }.mount(dir)
}

/// A mount by the kernel, with all choices.
#[derive(Clone, Copy, Debug)]
pub struct KernelMount<'a> {
    /// The image.
    pub image: &'a Path,
    /// Its extra devices, in the order of its device table.
    pub devices: &'a [PathBuf],
    /// Byte of the file at which it begins.
    pub offset: u64,
    /// Directory of the image that is the root of the mount; `None`: the image's root.
    pub subdir: Option<&'a Path>,
    /// Uses that the mount permits.
    pub attributes: Attributes,
}

impl KernelMount<'_> {
    /// Mounts the image at the directory `dir`.
    ///
    /// # Errors
    /// Same as [`mount`]; a `subdir` that is no directory of the image.
    pub fn mount(&self, dir: &Path) -> Result<KernelVia, MountError> {
        let sources = std::iter::once(self.image).chain(self.devices.iter().map(PathBuf::as_path));
        let sources = sources.map(mount_source::source).collect::<Result<Vec<_>, _>>()?;
        let dir = mount_source::mount_point(dir)?;
        let (mount, via) = create_by_any_way(&sources, self.offset, &[], self.attributes)?;
        let failed = |errno: Errno| MountError::MountPoint { path: dir.clone(), source: errno.into() };
        attach(&mount, &dir).map_err(failed)?;
        let Some(subdir) = self.subdir else { return Ok(via) };
        // A part of a mount can be mounted by itself once the mount is in a tree.
        let part = part_of(&dir, subdir);
        unmount(&dir, UnmountFlags::DETACH).map_err(failed)?;
        let missing = |errno: Errno| MountError::Subdir {
            path: self.image.to_path_buf(),
            subdir: subdir.to_path_buf(),
            source: errno.into(),
        };
        attach(&part.map_err(missing)?, &dir).map_err(failed)?;
        Ok(via)
    }
}

fn attach(mount: &OwnedFd, dir: &Path) -> rustix::io::Result<()> {
    move_mount(mount, "", CWD, dir, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// Returns a directory of a mounted image as a mount of its own. Symbolic links stay in the image.
fn part_of(mounted: &Path, subdir: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = open(mounted, flags, Mode::empty())?;
    let part = openat2(&root, subdir, flags, Mode::empty(), ResolveFlags::IN_ROOT)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(&part, "", flags)
}

/// Creates a mount of an image that no directory has. It ends when the descriptor is closed.
///
/// # Errors
/// Same as [`mount`].
pub fn mount_detached(image: &Path) -> Result<(OwnedFd, KernelVia), MountError> {
    create_by_any_way(&[mount_source::source(image)?], 0, &[], Attributes::default())
}

/// Creates a mount that is not yet in a tree: of the files themselves, or by loop devices. `flags` are options of the
/// driver.
fn create_by_any_way(
    sources: &[Source],
    offset: u64,
    flags: &[&str],
    attributes: Attributes,
) -> Result<(OwnedFd, KernelVia), MountError> {
    match create(sources, offset, flags, attributes) {
        Ok(mount) => Ok((mount, KernelVia::File)),
        Err(Refusal { errno: Errno::NOTBLK, .. }) => create_on_loop(sources, offset, flags, attributes),
        // Kernels before 6.16 know no offsets, later ones only those of whole blocks.
        Err(Refusal { errno: Errno::INVAL, .. }) if offset > 0 => create_on_loop(sources, offset, flags, attributes),
        Err(refusal) => Err(refusal.explain(sources, offset)),
    }
}

/// Creates a mount of sources that the kernel reads as they are.
fn create(sources: &[Source], offset: u64, flags: &[&str], attributes: Attributes) -> Result<OwnedFd, Refusal> {
    let context = fsopen("erofs", FsOpenFlags::FSOPEN_CLOEXEC).map_err(Refusal::of_context)?;
    let refusal = |errno| Refusal { errno, reason: reason(context.as_fd(), errno) };
    configure(context.as_fd(), sources, offset, flags).map_err(refusal)?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes.of_fsmount()).map_err(refusal)
}

fn configure(context: BorrowedFd<'_>, sources: &[Source], offset: u64, flags: &[&str]) -> rustix::io::Result<()> {
    // Descriptors that parameters name must live until the filesystem exists.
    let mut held = Vec::new();
    for (i, source) in sources.iter().enumerate() {
        let key = if i == 0 { "source" } else { "device" };
        fsconfig_set_string(context, key, short_name(&source.path, &mut held)?)?;
    }
    if offset > 0 {
        fsconfig_set_string(context, "fsoffset", offset.to_string())?;
    }
    fsconfig_set_flag(context, "ro")?;
    flags.iter().try_for_each(|flag| fsconfig_set_flag(context, *flag))?;
    fsconfig_create(context)
}

/// Returns `path`, or another name for the same file if it is too long for a parameter.
fn short_name(path: &Path, held: &mut Vec<File>) -> rustix::io::Result<PathBuf> {
    if path.as_os_str().len() <= PARAMETER_MAX {
        return Ok(path.to_path_buf());
    }
    let file = File::open(path).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    held.push(file);
    Ok(name.into())
}

/// Creates the mount with all of `sources` as block devices. Only the first, the image, has an
/// offset.
fn create_on_loop(
    sources: &[Source],
    offset: u64,
    flags: &[&str],
    attributes: Attributes,
) -> Result<(OwnedFd, KernelVia), MountError> {
    let mut loops = Vec::new();
    let mut devices = Vec::new();
    let offsets = std::iter::once(offset).chain(std::iter::repeat(0));
    for (source, offset) in sources.iter().zip(offsets) {
        let path = match source.kind {
            SourceKind::BlockDevice if offset == 0 => source.path.clone(),
            _ => {
                let device = LoopDevice::attach(&source.path, offset);
                let device = device.map_err(|error| no_loop(&source.path, offset, error))?;
                let path = device.path().to_path_buf();
                loops.push(device);
                path
            }
        };
        devices.push(Source { path, kind: SourceKind::BlockDevice, ..source.clone() });
    }
    let via = match devices[0].path == sources[0].path {
        true => KernelVia::File,
        false => KernelVia::Loop(devices[0].path.clone()),
    };
    let mount = create(&devices, 0, flags, attributes).map_err(|refusal| refusal.explain(sources, offset))?;
    // From here on the mount holds the loop devices, which end with it.
    Ok((mount, via))
}

fn no_loop(path: &Path, offset: u64, error: io::Error) -> MountError {
    let path = path.to_path_buf();
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            MountError::NotPermitted { path, action: "set up a loop device", reason: error.to_string() }
        }
        _ => {
            let need = match offset {
                0 => "it needs a block device".into(),
                _ => format!("it cannot mount an image at byte {offset} of a file (Linux 6.16 can, at whole blocks)"),
            };
            MountError::Unavailable { path, reason: format!("{need}, and there is no loop device: {error}") }
        }
    }
}

/// Error of the kernel about a mount.
struct Refusal {
    errno: Errno,
    reason: String,
}

impl Refusal {
    /// Returns the refusal of the filesystem type itself.
    fn of_context(errno: Errno) -> Self {
        let reason = match errno {
            Errno::NODEV => "it has no EROFS".into(),
            Errno::NOSYS => "it is older than Linux 5.2".into(),
            other => io::Error::from(other).to_string(),
        };
        Refusal { errno, reason }
    }

    /// Distinguishes a damaged image from one that this kernel does not support. The kernel's error
    /// numbers do not, so our own reader opens the image.
    fn explain(self, sources: &[Source], offset: u64) -> MountError {
        let Refusal { errno, reason } = self;
        let (image, devices) = sources.split_first().expect("an image and its devices");
        let path = image.given.clone();
        match errno {
            Errno::PERM | Errno::ACCESS => MountError::NotPermitted { path, action: "mount an EROFS image", reason },
            Errno::NODEV | Errno::NOSYS => MountError::Unavailable { path, reason },
            _ => match Image::open_path(&image.given, &given(devices), &ImageOptions::default().with_offset(offset)) {
                Ok(_) => {
                    MountError::Unavailable { path, reason: format!("{reason}; the kernel log (dmesg) may say why") }
                }
                Err(error) => MountError::Refused { path, reason: format!("{reason} ({error})") },
            },
        }
    }
}

fn given(sources: &[Source]) -> Vec<PathBuf> {
    sources.iter().map(|source| source.given.clone()).collect()
}

/// Returns the kernel's messages about the failure, or else the error number in words. The messages
/// are only about parameters; errors of an image go to the kernel log.
fn reason(context: BorrowedFd<'_>, errno: Errno) -> String {
    let mut messages = Vec::new();
    let mut buf = [0; 1024];
    while messages.len() < MESSAGES_MAX
        && let Ok(len) = rustix::io::read(context, &mut buf)
        && len > 0
    {
        let text = String::from_utf8_lossy(&buf[..len]);
        // The first letter is the kind: error, warning, information.
        let text = text.trim().trim_start_matches(['e', 'w', 'i']).trim_start();
        messages.push(text.to_string());
    }
    match messages.is_empty() {
        true => io::Error::from(errno).to_string(),
        false => format!("{} ({})", messages.join("; "), io::Error::from(errno)),
    }
}

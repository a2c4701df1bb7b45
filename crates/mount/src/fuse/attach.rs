//! Mounting: from a directory to the descriptor of a FUSE connection.

use super::options::FuseOptions;
use crate::{MountError, fusermount};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::path::Path;

const DEVICE: &str = "/dev/fuse";
/// Subtype: the mount table shows the type as `fuse.` followed by it.
const SUBTYPE: &str = "kiln";

/// Checks that this machine has FUSE, before a server for `dir` is started.
///
/// # Errors
/// [`MountError::FuseMissing`]. A device that this user may not open is none: fusermount3 opens it.
pub fn require_fuse(dir: &Path) -> Result<(), MountError> {
    match open_device() {
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => Err(missing(dir)),
        _ => Ok(()),
    }
}

fn missing(dir: &Path) -> MountError {
    let what = "no /dev/fuse: load the kernel module `fuse`, or give the container this device";
    MountError::FuseMissing { path: dir.to_path_buf(), what }
}

/// Mounts a FUSE filesystem at `dir`. Its requests wait until a session reads them.
pub(super) fn attach(dir: &Path, options: &FuseOptions) -> Result<OwnedFd, MountError> {
    let device = match open_device() {
        Ok(device) => device,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return by_fusermount(dir, options),
        Err(_) => return Err(missing(dir)),
    };
    match mount(&device, dir, options) {
        Ok(()) => Ok(device.into()),
        Err(Errno::PERM) => by_fusermount(dir, options),
        Err(Errno::NODEV) => {
            Err(MountError::FuseMissing { path: dir.to_path_buf(), what: "this kernel has no FUSE: load its module" })
        }
        Err(error) => Err(MountError::Fuse { path: dir.to_path_buf(), source: error.into() }),
    }
}

/// Opens `/dev/fuse`, for a new connection or for one thread of an existing one.
pub(super) fn open_device() -> io::Result<File> {
    File::options().read(true).write(true).open(DEVICE)
}

fn mount(device: &File, dir: &Path, options: &FuseOptions) -> rustix::io::Result<()> {
    // The root of an image is a directory.
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw()
    );
    for option in access(options) {
        data.push(',');
        data.push_str(option);
    }
    let data = CString::new(data).map_err(|_| Errno::INVAL)?;
    let flags = options.attributes.of_mount();
    rustix::mount::mount(&*options.fsname, dir, format!("fuse.{SUBTYPE}"), flags, &*data)
}

/// Returns the mount options of access control.
fn access(options: &FuseOptions) -> impl Iterator<Item = &'static str> {
    let enforced = options.enforces_modes().then_some("default_permissions");
    enforced.into_iter().chain(options.allow_other.then_some("allow_other"))
}

fn by_fusermount(dir: &Path, options: &FuseOptions) -> Result<OwnedFd, MountError> {
    if options.attributes.need_root() {
        let reason = "only root may do this".into();
        return Err(MountError::NotPermitted { path: dir.to_path_buf(), action: "mount with suid or dev", reason });
    }
    let mut arguments = OsString::from(format!("{},", options.attributes));
    for option in access(options) {
        arguments.push(option);
        arguments.push(",");
    }
    arguments.push(fusermount::option("subtype", SUBTYPE));
    arguments.push(",");
    arguments.push(fusermount::option("fsname", &options.fsname));
    fusermount::mount(dir, &arguments).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => MountError::FuseMissing {
            path: dir.to_path_buf(),
            what: "fusermount3 not found: install the package fuse3, or mount as root",
        },
        _ => MountError::Fuse { path: dir.to_path_buf(), source: error },
    })
}

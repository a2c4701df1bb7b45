//! From a directory to the descriptor of a FUSE connection.

use super::FuseOptions;
use crate::{MountError, fusermount};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::path::Path;

const DEVICE: &str = "/dev/fuse";
/// The mount table shows `fuse.` and this.
const SUBTYPE: &str = "kiln";

/// Mount a FUSE filesystem at `dir`, without anybody to answer it yet.
pub fn attach(dir: &Path, options: &FuseOptions) -> Result<OwnedFd, MountError> {
    let device = match open_device() {
        Ok(device) => device,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return by_fusermount(dir, options),
        Err(_) => {
            let what = "no /dev/fuse: load the kernel module `fuse`, or give the container this device";
            return Err(MountError::FuseMissing { path: dir.to_path_buf(), what });
        }
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

/// `/dev/fuse`, for a new connection or for one thread of an old one.
pub fn open_device() -> io::Result<File> {
    File::options().read(true).write(true).open(DEVICE)
}

fn mount(device: &File, dir: &Path, options: &FuseOptions) -> rustix::io::Result<()> {
    // The root of an image is a directory.
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw()
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let data = CString::new(data).map_err(|_| Errno::INVAL)?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount(&*options.fsname, dir, format!("fuse.{SUBTYPE}"), flags, &*data)
}

fn by_fusermount(dir: &Path, options: &FuseOptions) -> Result<OwnedFd, MountError> {
    let mut arguments = OsString::from("ro,nosuid,nodev,default_permissions,");
    if options.allow_other {
        arguments.push("allow_other,");
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

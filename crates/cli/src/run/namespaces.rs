//! Namespaces of the mounts, the processes and the user.
#![allow(unsafe_code)]

use crate::exit::Failure;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{getgid, getuid};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Puts this process into a mount namespace of its own, and its next child into a PID namespace, unless they
/// `share_pids`. Returns true if that took a user namespace, in which this user owns its files and is nobody else.
///
/// # Errors
/// Namespaces that this system, or the container around, does not permit.
pub fn enter(share_pids: bool) -> Result<bool, Failure> {
    let pids = if share_pids { UnshareFlags::empty() } else { UnshareFlags::NEWPID };
    let wanted = UnshareFlags::NEWNS | pids;
    let is_root = getuid().is_root();
    let is_user = match unshare(wanted) {
        Ok(()) => false,
        // A container's root may have no privilege, either.
        Err(_) => {
            let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
            unshare(wanted | UnshareFlags::NEWUSER).map_err(|source| refused(source, is_root))?;
            map(uid, gid).map_err(|source| refused(source, is_root))?;
            true
        }
    };
    // What is mounted from now on stays here. Mounts of the system still arrive, as those of automounters.
    let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", flags).map_err(|errno| refused(errno.into(), is_root))?;
    Ok(is_user)
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the table of descriptors stays shared.
    unsafe { unshare_unsafe(flags) }.map_err(io::Error::from)
}

/// Makes the user and the group of a new user namespace those of the old one.
fn map(uid: u32, gid: u32) -> io::Result<()> {
    // A user may map one group only without the power to leave others.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// Makes a copy of mounts, and all mounts below it, read-only.
///
/// # Errors
/// A kernel before Linux 5.12; missing privilege.
pub fn make_read_only(tree: &OwnedFd) -> io::Result<()> {
    let wanted = libc::mount_attr { attr_set: libc::MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    // SAFETY: the path ends with a zero, and the structure has the length that is named.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const wanted,
            size_of::<libc::mount_attr>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn refused(source: io::Error, is_root: bool) -> Failure {
    let help = match is_root {
        true => "the container must permit mounts, or user namespaces",
        false => {
            "this system permits users no namespaces (sysctl user.max_user_namespaces, \
                  kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns): kiln mount works \
                  without"
        }
    };
    Failure::Run { action: "make namespaces for the command", source, help }
}

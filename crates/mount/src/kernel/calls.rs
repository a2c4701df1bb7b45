//! System calls that rustix does not have.
#![allow(unsafe_code)]

use kiln_digest::Digest;
use rustix::io::Errno;
use rustix::ioctl::{Updater, ioctl, opcode};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Longest digest in bytes.
const DIGEST_MAX_LEN: usize = 64;

/// `struct fsverity_digest`, with room behind it.
#[derive(Clone, Copy)]
#[repr(C)]
struct MeasuredDigest {
    algorithm: u16,
    size: u16,
    bytes: [u8; DIGEST_MAX_LEN],
}

const _: () = assert!(size_of::<MeasuredDigest>() == 4 + DIGEST_MAX_LEN);

/// `FS_IOC_MEASURE_VERITY`: its number has the length of the structure without the room.
const MEASURE_VERITY: rustix::ioctl::Opcode = opcode::read_write::<[u8; 4]>(b'f', 134);

/// Returns the fs-verity digest that the kernel enforces for a file; `None` if it enforces none.
pub(super) fn measure_verity(file: &File) -> io::Result<Option<Digest>> {
    let mut measured = MeasuredDigest { algorithm: 0, size: DIGEST_MAX_LEN as u16, bytes: [0; DIGEST_MAX_LEN] };
    // SAFETY: FS_IOC_MEASURE_VERITY reads and writes one `struct fsverity_digest`, and as many bytes behind it as its
    // `size` says: those that `MeasuredDigest` has there.
    match unsafe { ioctl(file, Updater::<MEASURE_VERITY, MeasuredDigest>::new(&mut measured)) } {
        Ok(()) => Ok(Digest::from_bytes(measured.bytes.get(..measured.size.into()).unwrap_or_default())),
        Err(Errno::NODATA | Errno::NOTTY | Errno::OPNOTSUPP) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Maps the owners of a mount that is in no tree yet by a user namespace.
pub(super) fn set_idmap(mount: impl AsFd, user_namespace: &File) -> io::Result<()> {
    let attr = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        // An open descriptor is not negative.
        userns_fd: user_namespace.as_raw_fd() as u64,
    };
    let mount = mount.as_fd().as_raw_fd();
    // SAFETY: the call reads the path, which ends with a zero, and `size_of` bytes of the structure.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount,
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

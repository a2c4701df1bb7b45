//! fs-verity of objects: the kernel compares each block with the digest when it is read, and nobody can write to the
//! file any more.
#![allow(unsafe_code)]

use kiln_digest::Algorithm;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::ioctl::{Setter, ioctl, opcode};
use std::os::fd::AsFd;
use std::path::Path;

/// Block size in bytes of the trees: that of `fsverity-sha256-12`.
const BLOCK_LEN: u32 = 4096;

/// `struct fsverity_enable_arg`.
#[derive(Clone, Copy)]
#[repr(C)]
struct EnableArg {
    version: u32,
    hash_algorithm: u32,
    block_size: u32,
    salt_size: u32,
    salt_ptr: u64,
    signature_size: u32,
    reserved_1: u32,
    signature_ptr: u64,
    reserved_2: [u64; 11],
}

const _: () = assert!(size_of::<EnableArg>() == 128);

/// `FS_IOC_ENABLE_VERITY`
const ENABLE_VERITY: rustix::ioctl::Opcode = opcode::write::<EnableArg>(b'f', 133);

/// Enables fs-verity for the object `name` below a store's directory `dir`, which nobody has open for writing. An
/// object that has it already stays as it is.
///
/// # Errors
/// `NOTTY` and `OPNOTSUPP` from a kernel or a filesystem without fs-verity; other errors of the system.
pub(crate) fn enable(dir: impl AsFd, name: &Path, algorithm: Algorithm) -> Result<(), Errno> {
    let file = openat(dir, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let arg = EnableArg {
        version: 1,
        hash_algorithm: match algorithm {
            Algorithm::Sha256 => 1,
            Algorithm::Sha512 => 2,
        },
        block_size: BLOCK_LEN,
        salt_size: 0,
        salt_ptr: 0,
        signature_size: 0,
        reserved_1: 0,
        signature_ptr: 0,
        reserved_2: [0; 11],
    };
    // SAFETY: FS_IOC_ENABLE_VERITY reads one `struct fsverity_enable_arg`, whose two pointers have lengths of 0.
    match unsafe { ioctl(&file, Setter::<ENABLE_VERITY, EnableArg>::new(arg)) } {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

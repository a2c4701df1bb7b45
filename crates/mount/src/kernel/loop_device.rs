//! Loop devices: files as block devices, see loop(4).
#![allow(unsafe_code)]

use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl};
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const CONTROL: &str = "/dev/loop-control";
const LOOP_CTL_GET_FREE: Opcode = 0x4C82;
const LOOP_CONFIGURE: Opcode = 0x4C0A;

const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// Number of tries to get a free device: another process may take it first, but not that often in a
/// row.
const ATTEMPTS: usize = 16;

/// `struct loop_info64`.
#[derive(Clone, Copy)]
#[repr(C)]
struct LoopInfo64 {
    lo_device: u64,
    lo_inode: u64,
    lo_rdevice: u64,
    lo_offset: u64,
    lo_sizelimit: u64,
    lo_number: u32,
    lo_encrypt_type: u32,
    lo_encrypt_key_size: u32,
    lo_flags: u32,
    lo_file_name: [u8; 64],
    lo_crypt_name: [u8; 64],
    lo_encrypt_key: [u8; 32],
    lo_init: [u64; 2],
}

/// `struct loop_config`.
#[derive(Clone, Copy)]
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInfo64>() == 232 && size_of::<LoopConfig>() == 304);

/// Read-only loop device. The kernel frees it when neither this value nor a mount holds it.
pub(super) struct LoopDevice {
    path: PathBuf,
    _held: File,
}

impl LoopDevice {
    /// Makes the file or block device `backing`, from byte `offset` on, a loop device.
    pub(super) fn attach(backing: &Path, offset: u64) -> io::Result<LoopDevice> {
        let file = File::open(backing)?;
        let control = File::options().read(true).write(true).open(CONTROL)?;
        let mut last = io::Error::from(Errno::BUSY);
        for _ in 0..ATTEMPTS {
            let number = free_number(&control)?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = File::open(&path)?;
            match configure(&device, &file, backing, offset) {
                Ok(()) => return Ok(LoopDevice { path, _held: device }),
                Err(error @ Errno::BUSY) => last = error.into(),
                Err(error) => return Err(error.into()),
            }
        }
        Err(last)
    }

    /// Returns `/dev/loopN`.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Configures the device. Direct I/O saves the second copy in the page cache, but not every
/// filesystem supports it, nor every offset.
fn configure(device: &File, file: &File, name: &Path, offset: u64) -> rustix::io::Result<()> {
    let flags = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR;
    match configure_with(device, file, name, offset, flags | LO_FLAGS_DIRECT_IO) {
        Err(Errno::INVAL) => configure_with(device, file, name, offset, flags),
        result => result,
    }
}

fn configure_with(device: &File, file: &File, name: &Path, lo_offset: u64, lo_flags: u32) -> rustix::io::Result<()> {
    let mut lo_file_name = [0; 64];
    // The name is informative, and zero-terminated.
    let name = name.as_os_str().as_bytes();
    let len = name.len().min(lo_file_name.len() - 1);
    lo_file_name[..len].copy_from_slice(&name[..len]);
    let info = LoopInfo64 {
        lo_device: 0,
        lo_inode: 0,
        lo_rdevice: 0,
        lo_offset,
        lo_sizelimit: 0,
        lo_number: 0,
        lo_encrypt_type: 0,
        lo_encrypt_key_size: 0,
        lo_flags,
        lo_file_name,
        lo_crypt_name: [0; 64],
        lo_encrypt_key: [0; 32],
        lo_init: [0; 2],
    };
    // An open descriptor is not negative.
    let config = LoopConfig { fd: file.as_raw_fd() as u32, block_size: 0, info, reserved: [0; 8] };
    // SAFETY: LOOP_CONFIGURE reads one `struct loop_config`, which has the layout of `LoopConfig`,
    // and writes nothing to it.
    unsafe { ioctl(device, Setter::<LOOP_CONFIGURE, LoopConfig>::new(config)) }
}

fn free_number(control: &File) -> rustix::io::Result<u32> {
    // SAFETY: the call has no argument, see `GetFree`.
    unsafe { ioctl(control, GetFree) }
}

/// `LOOP_CTL_GET_FREE`: the number is the return value.
struct GetFree;

// SAFETY: the call reads and writes no memory of ours; its argument is ignored.
unsafe impl Ioctl for GetFree {
    type Output = u32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        LOOP_CTL_GET_FREE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<u32> {
        u32::try_from(out).map_err(|_| Errno::RANGE)
    }
}

//! Images: opening, names, metadata, contents.
#![allow(non_camel_case_types)] // names of C

use super::error::{give, kiln_error};
use kilnfs::Threads;
use kilnfs::read::{DirEntries, FileRangeMut, FollowLast, Image, Inode};
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::slice;

use kilnfs::format::Nid;

/// An open image.
pub struct kiln_image(Image);

/// Metadata of a file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct kiln_stat {
    /// Number by which functions name the file.
    pub nid: u64,
    /// Length in bytes.
    pub size: u64,
    /// Modification time in seconds since 1970.
    pub mtime: i64,
    /// Nanoseconds of the modification time.
    pub mtime_nsec: u32,
    /// Type and permissions, as `st_mode` has them.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names.
    pub nlink: u32,
    /// Numbers of a device.
    pub rdev_major: u32,
    /// As `rdev_major`.
    pub rdev_minor: u32,
}

/// Function that gets an entry of a directory: its name, which ends with a zero byte, and its nid. Any other result
/// than 0 ends the listing.
pub type kiln_entry_fn = Option<unsafe extern "C" fn(user: *mut c_void, name: *const c_char, nid: u64) -> c_int>;

/// Function that gets a file of a tree: its path and its metadata. Any other result than 0 ends the walk.
pub type kiln_walk_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, path: *const c_char, stat: *const kiln_stat) -> c_int>;

/// A read of a batch.
#[repr(C)]
pub struct kiln_read_request {
    /// The file.
    pub nid: u64,
    /// First byte of the file.
    pub off: u64,
    /// Buffer of `len` bytes.
    pub buf: *mut u8,
    /// Length of the buffer.
    pub len: usize,
    /// Result: bytes that were read, up to the end of the file; -1 after an error.
    pub read: i64,
    /// Result: the error, to be freed, or null.
    pub error: *mut kiln_error,
}

impl kiln_stat {
    fn of(inode: &Inode) -> Self {
        let rdev = inode.rdev();
        Self {
            nid: inode.nid.0,
            size: inode.size(),
            mtime: inode.mtime(),
            mtime_nsec: inode.mtime_nsec(),
            mode: inode.mode().into(),
            uid: inode.uid(),
            gid: inode.gid(),
            nlink: inode.nlink(),
            rdev_major: rdev.major,
            rdev_minor: rdev.minor,
        }
    }
}

/// Returns the bytes of a string.
///
/// # Safety
/// `text` is null, or ends with a zero byte.
pub(crate) unsafe fn bytes<'a>(text: *const c_char, what: &str) -> Result<&'a [u8], kiln_error> {
    if text.is_null() {
        return Err(kiln_error::invalid(&format!("{what} is null")));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Returns the path of a string.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn path<'a>(text: *const c_char, what: &str) -> Result<&'a Path, kiln_error> {
    // SAFETY: the caller's promise.
    Ok(Path::new(OsStr::from_bytes(unsafe { bytes(text, what) }?)))
}

/// # Safety
/// `image` is null, or an open image.
unsafe fn of<'a>(image: *const kiln_image) -> Result<&'a Image, kiln_error> {
    // SAFETY: the caller's promise.
    let image = unsafe { image.as_ref() };
    image.map(|image| &image.0).ok_or_else(|| kiln_error::invalid("the image is null"))
}

fn inode(image: &Image, nid: u64) -> Result<Inode, kiln_error> {
    image.inode(Nid(nid)).map_err(|error| kiln_error::of_read(&error))
}

/// Opens an image in a file or a block device. Returns null after an error.
///
/// # Safety
/// `path` ends with a zero byte; `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_open(path: *const c_char, error: *mut *mut kiln_error) -> *mut kiln_image {
    // SAFETY: the caller's promises.
    unsafe {
        let opened = self::path(path, "the path").and_then(|path| Ok(kilnfs::open(path)?));
        give(opened.map(|image| Box::into_raw(Box::new(kiln_image(image)))), error, ptr::null_mut())
    }
}

/// Closes an image. Null is allowed.
///
/// # Safety
/// `image` comes from `kiln_open`, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_close(image: *mut kiln_image) {
    if !image.is_null() {
        // SAFETY: it was made by `kiln_open`.
        drop(unsafe { Box::from_raw(image) });
    }
}

/// Returns the nid of the root directory.
///
/// # Safety
/// `image` is an open image.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_root(image: *const kiln_image) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { of(image) }.map_or(0, |image| image.root_nid().0)
}

/// Finds the file at a path, and writes its metadata to `stat`. Symbolic links on the way are followed within the
/// image; one at the end only if `follow` is true. Returns 0, or -1 after an error.
///
/// # Safety
/// `image` is open; `path` ends with a zero byte; `stat` may be written to; `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_lookup(
    image: *const kiln_image,
    path: *const c_char,
    follow: bool,
    stat: *mut kiln_stat,
    error: *mut *mut kiln_error,
) -> c_int {
    // SAFETY: the caller's promises.
    unsafe {
        let last = if follow { FollowLast::Follow } else { FollowLast::Keep };
        let found = of(image).and_then(|image| {
            let path = bytes(path, "the path")?;
            image.resolve(path, last).map_err(|error| kiln_error::of_read(&error.at_path(path)))
        });
        give(found.map(|inode| put(stat, &inode)), error, -1)
    }
}

/// Writes the metadata of the file `nid` to `stat`. Returns 0, or -1 after an error.
///
/// # Safety
/// As `kiln_lookup`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_stat_of(
    image: *const kiln_image,
    nid: u64,
    stat: *mut kiln_stat,
    error: *mut *mut kiln_error,
) -> c_int {
    // SAFETY: the caller's promises.
    unsafe {
        let found = of(image).and_then(|image| inode(image, nid));
        give(found.map(|inode| put(stat, &inode)), error, -1)
    }
}

/// # Safety
/// `stat` is null or may be written to.
unsafe fn put(stat: *mut kiln_stat, inode: &Inode) -> c_int {
    if !stat.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *stat = kiln_stat::of(inode) };
    }
    0
}

/// Reads up to `len` bytes of the file `nid` from byte `off` on. Returns their number, which is less only at the end of
/// the file, or -1 after an error.
///
/// # Safety
/// `image` is open; `buf` has room for `len` bytes; `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_read(
    image: *const kiln_image,
    nid: u64,
    buf: *mut u8,
    len: usize,
    off: u64,
    error: *mut *mut kiln_error,
) -> i64 {
    // SAFETY: the caller's promises.
    unsafe {
        let read = of(image).and_then(|image| {
            let file = image.file(&inode(image, nid)?).map_err(|error| kiln_error::of_read(&error))?;
            let buf = buffer(buf, len)?;
            file.read_at(buf, off).map_err(|error| kiln_error::of_read(&error))
        });
        give(read.map(|count| count as i64), error, -1)
    }
}

/// # Safety
/// `buf` has room for `len` bytes, or is null.
unsafe fn buffer<'a>(buf: *mut u8, len: usize) -> Result<&'a mut [u8], kiln_error> {
    match (buf.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(kiln_error::invalid("the buffer is null")),
        // SAFETY: the caller's promise.
        (false, _) => Ok(unsafe { slice::from_raw_parts_mut(buf, len) }),
    }
}

/// Reads many ranges at once, on `threads` threads (0: one for each processor), in the order in which they are stored.
/// Each request gets its result. Returns the number of requests that failed.
///
/// # Safety
/// `image` is open; `requests` has `count` requests, whose buffers have room and do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_read_batch(
    image: *const kiln_image,
    requests: *mut kiln_read_request,
    count: usize,
    threads: u32,
) -> usize {
    if requests.is_null() || count == 0 {
        return 0;
    }
    // SAFETY: the caller's promise.
    let requests = unsafe { slice::from_raw_parts_mut(requests, count) };
    let threads = if threads == 0 { Threads::PROCESSORS } else { Threads::at_least_one(threads as usize) };
    let mut reads = Vec::with_capacity(count);
    let mut places = Vec::with_capacity(count);
    for (place, request) in requests.iter_mut().enumerate() {
        (request.read, request.error) = (-1, ptr::null_mut());
        // SAFETY: the caller's promises.
        let read =
            unsafe { of(image).and_then(|image| Ok((inode(image, request.nid)?, buffer(request.buf, request.len)?))) };
        match read {
            Ok((inode, buf)) => {
                reads.push(FileRangeMut { inode, off: request.off, buf });
                places.push(place);
            }
            Err(error) => request.error = Box::into_raw(Box::new(error)),
        }
    }
    // SAFETY: the caller's promise.
    if let Ok(image) = unsafe { of(image) } {
        for (place, result) in places.into_iter().zip(image.read_many_into(&mut reads, threads)) {
            match result {
                Ok(read) => requests[place].read = read as i64,
                Err(error) => requests[place].error = Box::into_raw(Box::new(kiln_error::of_read(&error))),
            }
        }
    }
    requests.iter().filter(|request| request.read < 0).count()
}

/// Writes the target of the symbolic link `nid` to `buf`, without a zero byte. Returns its length, which may be more
/// than `len`: then `buf` has the first bytes. Returns -1 after an error.
///
/// # Safety
/// As `kiln_read`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_read_link(
    image: *const kiln_image,
    nid: u64,
    buf: *mut u8,
    len: usize,
    error: *mut *mut kiln_error,
) -> i64 {
    // SAFETY: the caller's promises.
    unsafe {
        let target = of(image).and_then(|image| {
            let target = image.read_link(&inode(image, nid)?).map_err(|error| kiln_error::of_read(&error))?;
            let buf = buffer(buf, len)?;
            let count = target.len().min(len);
            buf[..count].copy_from_slice(&target[..count]);
            Ok(target.len() as i64)
        });
        give(target, error, -1)
    }
}

/// Calls `each` for the entries of the directory `nid`, without "." and "..". Returns 0, the result of `each` that
/// ended the listing, or -1 after an error.
///
/// # Safety
/// `image` is open; `each` may be called with `user`; `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_list(
    image: *const kiln_image,
    nid: u64,
    each: kiln_entry_fn,
    user: *mut c_void,
    error: *mut *mut kiln_error,
) -> c_int {
    // SAFETY: the caller's promises.
    unsafe {
        let listed = of(image).and_then(|image| {
            let each = each.ok_or_else(|| kiln_error::invalid("the function is null"))?;
            let dir = inode(image, nid)?;
            if !dir.is_dir() {
                return Err(kiln_error::new(format!("nid {nid}: not a directory"), libc::ENOTDIR));
            }
            for entry in DirEntries::new(image, &dir) {
                let entry = entry.map_err(|error| kiln_error::of_read(&error))?;
                // Names have no zero byte.
                let name = CString::new(entry.name).unwrap_or_default();
                match each(user, name.as_ptr(), entry.nid.0) {
                    0 => {}
                    result => return Ok(result),
                }
            }
            Ok(0)
        });
        give(listed, error, -1)
    }
}

/// Calls `each` for the file at `path` and, if it is a directory, for all that is below it: directories before their
/// entries. Returns 0, the result of `each` that ended the walk, or -1 after an error.
///
/// # Safety
/// As `kiln_list`; `path` ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_walk(
    image: *const kiln_image,
    path: *const c_char,
    each: kiln_walk_fn,
    user: *mut c_void,
    error: *mut *mut kiln_error,
) -> c_int {
    // SAFETY: the caller's promises.
    unsafe {
        let walked = of(image).and_then(|image| {
            let each = each.ok_or_else(|| kiln_error::invalid("the function is null"))?;
            let path = bytes(path, "the path")?;
            let start = image.resolve(path, FollowLast::Follow).map_err(|error| kiln_error::of_read(&error))?;
            for entry in image.walk(&start, path) {
                let entry = entry.map_err(|error| kiln_error::of_read(&error))?;
                let path = CString::new(entry.path).unwrap_or_default();
                match each(user, path.as_ptr(), &kiln_stat::of(&entry.inode)) {
                    0 => {}
                    result => return Ok(result),
                }
            }
            Ok(0)
        });
        give(walked, error, -1)
    }
}

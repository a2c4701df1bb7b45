//! Errors.
#![allow(non_camel_case_types)] // names of C

use kilnfs::output::OutputError;
use kilnfs::read::ReadError;
use std::ffi::{CString, c_char, c_int};
use std::io;

/// An error. `kiln_error_free` frees it.
pub struct kiln_error {
    message: CString,
    errno: c_int,
}

impl kiln_error {
    pub(crate) fn new(message: impl ToString, errno: c_int) -> Self {
        let message = message.to_string().replace('\0', "\\0");
        Self { message: CString::new(message).unwrap_or_default(), errno }
    }

    pub(crate) fn of_read(error: &ReadError) -> Self {
        Self::new(error, error.errno())
    }

    pub(crate) fn invalid(message: &str) -> Self {
        Self::new(message, libc::EINVAL)
    }
}

impl From<kilnfs::Error> for kiln_error {
    fn from(error: kilnfs::Error) -> Self {
        let errno = match &error {
            kilnfs::Error::Read { source, .. } => source.errno(),
            kilnfs::Error::Output(OutputError::Exists { .. }) => libc::EEXIST,
            kilnfs::Error::Output(OutputError::File { source, .. }) => source.raw_os_error().unwrap_or(libc::EIO),
            kilnfs::Error::Output(_) | kilnfs::Error::Options(_) => libc::EINVAL,
            _ => libc::EIO,
        };
        Self::new(error, errno)
    }
}

impl From<io::Error> for kiln_error {
    fn from(error: io::Error) -> Self {
        Self::new(&error, error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// Returns the message of an error. It lives as long as the error.
///
/// # Safety
/// `error` comes from this library, and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_error_message(error: *const kiln_error) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { error.as_ref() }.map_or(c"no error".as_ptr(), |error| error.message.as_ptr())
}

/// Returns the number of an error, as in errno.h: EUCLEAN for damage of an image, ENOENT for a missing file.
///
/// # Safety
/// `error` comes from this library, and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_error_errno(error: *const kiln_error) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { error.as_ref() }.map_or(0, |error| error.errno)
}

/// Frees an error. Null is allowed.
///
/// # Safety
/// `error` comes from this library, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_error_free(error: *mut kiln_error) {
    if !error.is_null() {
        // SAFETY: it was made by `give`.
        drop(unsafe { Box::from_raw(error) });
    }
}

/// Gives the error of a result to the caller, and returns the value. `failed` stands for an error.
///
/// # Safety
/// `to` is null, or may be written to.
pub(crate) unsafe fn give<T>(result: Result<T, kiln_error>, to: *mut *mut kiln_error, failed: T) -> T {
    match result {
        Ok(value) => value,
        Err(error) => {
            if !to.is_null() {
                // SAFETY: the caller's promise.
                unsafe { *to = Box::into_raw(Box::new(error)) };
            }
            failed
        }
    }
}

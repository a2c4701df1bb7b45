//! Packing.
#![allow(non_camel_case_types)] // names of C

use super::error::{give, kiln_error};
use super::image::{bytes, path};
use kilnfs::{Packer, Threads};
use std::ffi::{c_char, c_int};

/// Choices of packing. Zeros and nulls are the defaults.
#[repr(C)]
pub struct kiln_pack_options {
    /// Name of a preset: "balanced", "plain", "fast", "archive", "dataset" or "backup".
    pub preset: *const c_char,
    /// Oldest kernel that must be able to mount the image, such as "5.15".
    pub kernel: *const c_char,
    /// Number of threads; 0: one for each processor.
    pub threads: u32,
    /// True to replace an image that exists.
    pub replace: bool,
}

/// Packs a directory, an archive or an image into the image `image`, which appears when it is complete. `options` may
/// be null. Returns 0, or -1 after an error.
///
/// # Safety
/// Strings end with a zero byte; `options` is null or points to options; `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_pack(
    source: *const c_char,
    image: *const c_char,
    options: *const kiln_pack_options,
    error: *mut *mut kiln_error,
) -> c_int {
    // SAFETY: the caller's promises.
    unsafe {
        let packed = packer(options.as_ref()).and_then(|packer| {
            packer.pack(path(source, "the source")?, path(image, "the image")?)?;
            Ok(0)
        });
        give(packed, error, -1)
    }
}

/// # Safety
/// Strings of `options` are null or end with a zero byte.
unsafe fn packer(options: Option<&kiln_pack_options>) -> Result<Packer, kiln_error> {
    let mut packer = Packer::new();
    let Some(options) = options else { return Ok(packer) };
    let text = |text: *const c_char, what: &str| -> Result<Option<&str>, kiln_error> {
        if text.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller's promise.
        let bytes = unsafe { bytes(text, what) }?;
        str::from_utf8(bytes).map(Some).map_err(|_| kiln_error::invalid(&format!("{what} is not UTF-8")))
    };
    if let Some(name) = text(options.preset, "the preset")? {
        let preset = name.parse().map_err(|error| kiln_error::invalid(&format!("preset {name}: {error}")))?;
        packer = packer.preset(preset);
    }
    if let Some(kernel) = text(options.kernel, "the kernel")? {
        let version = kernel.parse().map_err(|error| kiln_error::invalid(&format!("kernel {kernel}: {error}")))?;
        packer = packer.kernel(version);
    }
    if options.threads > 0 {
        packer = packer.threads(Threads::at_least_one(options.threads as usize));
    }
    Ok(if options.replace { packer.replace() } else { packer })
}

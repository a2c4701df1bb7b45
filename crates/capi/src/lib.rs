//! The library for C: `libkiln`, with the header `include/kiln.h`.
//!
//! Functions that can fail return -1 or a null pointer, and give an error to free through their last argument, which
//! may be null. Strings are bytes that end with a zero byte. An image may be used by any number of threads at once.
#![allow(unsafe_code)] // pointers from C
#![deny(unsafe_op_in_unsafe_fn)]

mod error;
mod image;
mod pack;

pub use error::{kiln_error, kiln_error_errno, kiln_error_free, kiln_error_message};
pub use image::{
    kiln_close, kiln_entry_fn, kiln_image, kiln_list, kiln_lookup, kiln_open, kiln_read, kiln_read_batch,
    kiln_read_link, kiln_read_request, kiln_root, kiln_stat, kiln_stat_of, kiln_walk, kiln_walk_fn,
};
pub use pack::{kiln_pack, kiln_pack_options};

use std::ffi::{CStr, c_char};

/// Returns the version of the library, such as "0.2.0".
#[unsafe(no_mangle)]
pub extern "C" fn kiln_version() -> *const c_char {
    const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version without a zero byte"),
    };
    VERSION.as_ptr()
}

//! The client of the ioctl that fetches a server's counters.

use super::{FETCH, TEXT_LEN};
use crate::MountError;
use rustix::io::Errno;
use rustix::ioctl::{Updater, ioctl};
use std::fs::File;
use std::path::Path;

/// Counters of the server that serves `dir`, which is its root, in the text format of Prometheus. [`Labels`](crate::fuse::Labels) tell them
/// from those of other mounts.
///
/// # Errors
/// `dir` cannot be opened, or is not the root of a mount of [`serve`](crate::fuse::serve).
#[allow(unsafe_code)]
pub fn query_stats(dir: &Path) -> Result<String, MountError> {
    let failed = |source| MountError::Stats { path: dir.to_path_buf(), source };
    let root = File::open(dir).map_err(failed)?;
    let mut text = [0; TEXT_LEN];
    // SAFETY: the number of the call says that it writes so many bytes to its argument, which is as long; the bytes are initialised,
    // whatever is written.
    let called = unsafe { ioctl(&root, Updater::<FETCH, [u8; TEXT_LEN]>::new(&mut text)) };
    match called {
        Ok(()) => {}
        Err(Errno::NOTTY | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL) => {
            return Err(MountError::NoStats { path: dir.to_path_buf() });
        }
        Err(error) => return Err(failed(error.into())),
    }
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    match String::from_utf8(text[..end].to_vec()) {
        Ok(text) if text.starts_with("# HELP kiln_") => Ok(text),
        _ => Err(MountError::NoStats { path: dir.to_path_buf() }),
    }
}

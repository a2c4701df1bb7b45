//! A check, before anything is written, that a filesystem has room for it.

use crate::console::size::Human;
use crate::exit::Failure;
use rustix::fs::{StatFs, fstatfs};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::path::Path;

/// ext2 to ext4: room that other files have reserved, but not yet written, may turn out smaller. So a part of the
/// filesystem counts as free.
const EXT: u64 = 0xEF53;
const EXT_MAY_COME_FREE: u64 = 64;
/// A filesystem in memory.
const TMPFS: u64 = 0x0102_1994;

/// Refuses to write `len` more bytes to the filesystem of `file`, which the user knows as `path`, if they certainly
/// do not fit.
/// # Errors
/// Too little room.
pub(super) fn check(path: &Path, file: impl AsFd, len: u64) -> Result<(), Failure> {
    // If the room is unknown, writing is tried.
    match fstatfs(file).ok().and_then(|stat| free(&stat)) {
        Some(free) if free < len => {
            let what = format!("{} are needed, but there is room for {}", Human(len), Human(free));
            let source = io::Error::new(ErrorKind::StorageFull, what);
            Err(Failure::File { path: path.to_owned(), action: "write", source })
        }
        _ => Ok(()),
    }
}

/// Returns the most bytes that may fit, including room for root alone; `None` if that is unknown: some filesystems
/// compress data, share it, or, like XFS, take back room that files got ahead of their growth.
fn free(stat: &StatFs) -> Option<u64> {
    let may_come_free = match stat.f_type as u64 & 0xFFFF_FFFF {
        EXT => stat.f_blocks / EXT_MAY_COME_FREE,
        // A tmpfs without a limit has no blocks.
        TMPFS if stat.f_blocks > 0 => 0,
        _ => return None,
    };
    let block_len = u64::try_from(stat.f_bsize).ok()?;
    Some(stat.f_bfree.saturating_add(may_come_free).saturating_mul(block_len))
}

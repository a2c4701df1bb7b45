//! The C library's allocator, in a process that only serves an image.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Length in bytes from which on a block has its own pages, which go back to the system when it is
/// freed. Most extents are shorter: their memory is in the processor's caches, and is reused.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MMAP_THRESHOLD: i32 = 512 << 10;
/// Bytes that may be free at the end of the heap.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const TRIM_THRESHOLD: i32 = 1 << 20;
/// Bytes of answers after which free pages in the middle of the heap go back to the system: extents
/// of many lengths leave gaps. For that the allocator goes through all free memory, which takes a
/// few milliseconds; the answers took a hundred times as long.
const TRIM_INTERVAL: u64 = 256 << 20;

/// True if the allocator was told to return memory.
static RETURNS_MEMORY: AtomicBool = AtomicBool::new(false);
/// Number of bytes answered so far.
static ANSWERED_LEN: AtomicU64 = AtomicU64::new(0);

/// Makes the allocator of this process return freed memory. Call this before threads are started.
///
/// By default, glibc gives each thread its own heap, whose free memory other threads cannot use,
/// and raises its thresholds to the longest block that was ever freed: with FUSE's buffers of 16
/// MiB, it returns nothing. Cached extents, which come and go in many lengths, then take several
/// times the size of the cache. Other C libraries have no such parameters, and need none.
pub fn return_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for (knob, value) in
        [(libc::M_ARENA_MAX, 1), (libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD), (libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD)]
    {
        // SAFETY: mallopt takes two numbers, and the lock of the allocator. If it rejects a value,
        // the old one stays.
        unsafe { libc::mallopt(knob, value) };
    }
    RETURNS_MEMORY.store(true, Ordering::Relaxed);
}

/// Records that `len` bytes were answered, and returns free memory from time to time if
/// [`return_freed_memory`] was called.
pub(crate) fn answered(len: usize) {
    let before = ANSWERED_LEN.fetch_add(len as u64, Ordering::Relaxed);
    let is_due = before / TRIM_INTERVAL != (before + len as u64) / TRIM_INTERVAL;
    if is_due && RETURNS_MEMORY.load(Ordering::Relaxed) {
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        // SAFETY: malloc_trim takes a number, and the lock of the allocator.
        unsafe {
            libc::malloc_trim(TRIM_THRESHOLD as usize)
        };
    }
}

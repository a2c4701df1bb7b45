//! The C library's allocator, in a process that does nothing but serve an image.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes. A longer block has pages of its own, which go back to the system when it is freed. Most extents are shorter: their memory is in
/// the processor's caches, and is used again.
const MMAP_THRESHOLD: i32 = 512 << 10;
/// Bytes that may be free at the end of the heap.
const TRIM_THRESHOLD: i32 = 1 << 20;
/// After so many bytes of answers, free pages in the middle of the heap go back to the system: extents of many lengths leave gaps. The
/// allocator looks at all that is free for that, which takes a few milliseconds; the answers took a hundred times as long.
const TRIM_INTERVAL: u64 = 256 << 20;

/// Whether the allocator was told to return memory.
static RETURNS_MEMORY: AtomicBool = AtomicBool::new(false);
/// Bytes of answers so far.
static ANSWERED_LEN: AtomicU64 = AtomicU64::new(0);

/// Make the allocator of this process return freed memory: to be called before threads are started.
///
/// By default, glibc gives each thread a heap of its own, whose free memory other threads cannot use, and raises its thresholds with the
/// longest block that was ever freed: with FUSE's buffers of 16 MiB, it returns nothing. Cached extents, which come and go in many
/// lengths, then take several times the size of the cache. Other C libraries have no such parameters, and need none.
pub fn return_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for (knob, value) in
        [(libc::M_ARENA_MAX, 1), (libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD), (libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD)]
    {
        // SAFETY: mallopt takes two numbers, and the lock of the allocator. If it refuses a value, the old one stays.
        unsafe { libc::mallopt(knob, value) };
    }
    RETURNS_MEMORY.store(true, Ordering::Relaxed);
}

/// Note that so many bytes were answered, and return free memory from time to time, if [`return_freed_memory`] was called.
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

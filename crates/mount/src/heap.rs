//! The C library's allocator, in a process that does nothing but serve.
#![allow(unsafe_code)]

/// What is this long has pages of its own, which go back to the system when it is freed. Most extents are shorter: their memory is warm,
/// and used again.
const MMAP_THRESHOLD: i32 = 512 << 10;
/// As much may be free at the end of the heap.
const TRIM_THRESHOLD: i32 = 1 << 20;

/// Make the allocator of this process return freed memory: to be called before threads are started.
///
/// Left alone, glibc gives each thread a heap of its own, in which others cannot use what is free, and raises its thresholds with
/// the longest block that was ever freed: with FUSE's buffers of 16 MiB, it returns nothing. Cached extents, which come and
/// go in many lengths, then take several times the cache. Other C libraries have no such knobs, and need none.
pub fn return_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for (knob, value) in
        [(libc::M_ARENA_MAX, 1), (libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD), (libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD)]
    {
        // SAFETY: it takes two numbers, and the lock of the allocator. If it refuses one, all stays as it is.
        unsafe { libc::mallopt(knob, value) };
    }
}

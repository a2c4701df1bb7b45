//! The program's allocator: all threads share its free memory, and the program ends when memory runs out, with a
//! message that says what would help and exit code 1 instead of an abort.
//!
//! Nothing is left behind then: outputs have no names until they are complete. On file systems that require names,
//! those are removed.
#![allow(unsafe_code)] // an allocator is unsafe to implement

use std::alloc::{GlobalAlloc, Layout};
use std::fmt::Write;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

#[cfg(target_env = "musl")]
use super::kept_blocks::KeptBlocks;

/// The words of the message.
#[derive(Clone, Copy)]
pub struct Advice {
    /// The beginning of all errors of this program.
    pub prefix: &'static str,
    /// Advice that reduces memory.
    pub help: &'static str,
}

static ADVICE: OnceLock<Advice> = OnceLock::new();

/// Sets the words of the message. Only the first call has an effect.
pub fn advise(advice: Advice) {
    let _ = ADVICE.set(advice);
}

/// Returns the advice that reduces memory.
pub fn help() -> &'static str {
    advice().help
}

fn advice() -> Advice {
    ADVICE.get().copied().unwrap_or(Advice { prefix: "kiln: ", help: "" })
}

/// The system's allocator, except that the program ends with a message when memory runs out. It is for the program
/// `kiln`, not for programs that call [`main`](crate::main) among other things.
pub struct EndingAllocator;

// SAFETY: every call is passed on to the system's allocator unchanged, and a null pointer is never returned.
unsafe impl GlobalAlloc for EndingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises.
        given(unsafe { INNER.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises.
        given(unsafe { INNER.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's promises.
        given(unsafe { INNER.realloc(ptr, layout, new_size) }, new_size)
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises.
        unsafe { INNER.dealloc(ptr, layout) }
    }
}

/// The allocator that is asked: that of the C library, unless it is musl's, whose threads wait for one another.
#[cfg(target_env = "musl")]
static INNER: KeptBlocks<mimalloc::MiMalloc> = KeptBlocks::new(mimalloc::MiMalloc, KEPT_LEN);
#[cfg(not(target_env = "musl"))]
static INNER: std::alloc::System = std::alloc::System;

/// Bytes of long free blocks that are kept, as glibc keeps about that much at the end of its heap.
#[cfg(target_env = "musl")]
const KEPT_LEN: usize = 16 << 20;

/// `mi_option_purge_delay` of mimalloc.h: milliseconds after which free pages go back to the system. With the usual 10 a
/// build of a system tree takes twice the memory. The variable MIMALLOC_PURGE_DELAY says otherwise.
#[cfg(target_env = "musl")]
const MI_OPTION_PURGE_DELAY: libc::c_int = 15;
#[cfg(target_env = "musl")]
unsafe extern "C" {
    fn mi_option_set_default(option: libc::c_int, value: libc::c_long);
}

/// Bytes that a command may take, up to which long blocks go back to the system at once.
const LITTLE: u64 = 128 << 20;
/// Length in bytes from which on a block is long then. Windows of packed files are in such blocks, as are the tables
/// of an index, which would keep the free memory around them. With 256 KiB a system tree takes 15 MB less, and a tenth
/// more CPU time.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LONG_LEN: i32 = 4 << 20;
/// Bytes that may be free at the end of the heap then.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const TRIM_THRESHOLD: i32 = 8 << 20;

/// True if the allocator belongs to this program alone.
static IS_OURS: AtomicBool = AtomicBool::new(false);

impl EndingAllocator {
    /// Lets all threads of the program use the same free memory. Call this before threads are started.
    ///
    /// By default, glibc gives each thread an arena, whose free memory other threads cannot use. Text that one thread
    /// reads and another one drops then takes up to twice its length. Other C libraries have no arenas.
    pub fn share_free_memory() {
        IS_OURS.store(true, Ordering::Relaxed);
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        set(libc::M_ARENA_MAX, 1);
        // SAFETY: the option exists, and takes any number.
        #[cfg(target_env = "musl")]
        unsafe {
            mi_option_set_default(MI_OPTION_PURGE_DELAY, 0);
        }
    }
}

/// Returns long blocks to the system when they are freed, if the command is to take little memory: `limit` bytes.
///
/// By default, glibc keeps blocks as long as the longest that was ever freed, up to 32 MiB. Getting their pages from
/// the system again takes CPU time, so this is only for commands that are to take little.
pub fn limit(limit: u64) {
    if limit <= LITTLE && IS_OURS.load(Ordering::Relaxed) {
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        for (parameter, value) in [(libc::M_MMAP_THRESHOLD, LONG_LEN), (libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD)] {
            set(parameter, value);
        }
        #[cfg(target_env = "musl")]
        INNER.keep_nothing();
    }
}

/// Sets a parameter of the C library's allocator.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn set(parameter: i32, value: i32) {
    // SAFETY: mallopt takes two numbers, and the lock of the allocator. If it rejects a value, the old one stays.
    unsafe { libc::mallopt(parameter, value) };
}

#[inline]
fn given(ptr: *mut u8, len: usize) -> *mut u8 {
    if ptr.is_null() { end(len) } else { ptr }
}

/// Ends the program, which cannot get `len` bytes, without allocating anything.
#[cold]
fn end(len: usize) -> ! {
    static ENDING: AtomicBool = AtomicBool::new(false);
    while ENDING.swap(true, Ordering::Relaxed) {
        // Another thread is about to end the process.
        thread::sleep(Duration::from_secs(1));
    }
    kiln_output::remove_unfinished();
    let Advice { prefix, help } = advice();
    let mut line = Line::default();
    let _ = writeln!(
        line,
        "{prefix}out of memory: {len} more bytes are not to be had{}{help}",
        if help.is_empty() { "" } else { ": " }
    );
    let _ = rustix::io::write(io::stderr(), line.bytes());
    // SAFETY: ends the process, and runs nothing on the way.
    unsafe { libc::_exit(1) }
}

/// Text without an allocation. Excess is cut off.
struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self { bytes: [0; 512], len: 0 }
    }
}

impl Line {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = &mut self.bytes[self.len..];
        let len = text.len().min(room.len());
        room[..len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        Ok(())
    }
}

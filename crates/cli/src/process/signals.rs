//! SIGINT, SIGTERM and SIGHUP as a flag or a pipe: the first signal asks for a clean end, a second one kills.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};
use std::fs;
use std::io::{self, PipeReader, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A flag that signals set.
pub struct Signals {
    stop: Arc<AtomicBool>,
    number: Arc<AtomicUsize>,
}

impl Signals {
    /// Starts to catch signals. Ignored ones (`nohup` ignores SIGHUP) stay ignored.
    pub fn catch() -> io::Result<Self> {
        let signals = Self { stop: Arc::default(), number: Arc::default() };
        for signal in caught_signals() {
            // Actions run in this order: the first signal finds the flag unset.
            flag::register_conditional_default(signal, Arc::clone(&signals.stop))?;
            flag::register_usize(signal, Arc::clone(&signals.number), signal as usize)?;
            flag::register(signal, Arc::clone(&signals.stop))?;
        }
        Ok(signals)
    }

    /// Returns the flag, which is set once a signal has come.
    pub fn stop(&self) -> &Arc<AtomicBool> {
        &self.stop
    }

    /// Returns a pipe that can be read once a signal has come, for threads that sleep until then.
    pub fn pipe(&self) -> io::Result<PipeReader> {
        let (reader, mut writer) = io::pipe()?;
        for signal in caught_signals() {
            low_level::pipe::register(signal, writer.try_clone()?)?;
        }
        // A signal may have come before.
        if self.stop.load(Ordering::Relaxed) {
            writer.write_all(b"x")?;
        }
        Ok(reader)
    }

    /// Returns the signal that has come.
    pub fn caught(&self) -> Option<u8> {
        u8::try_from(self.number.load(Ordering::Relaxed)).ok().filter(|&number| number != 0)
    }
}

/// Returns the signals that are not ignored.
fn caught_signals() -> impl Iterator<Item = i32> {
    [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal))
}

/// Returns whether this process ignores a signal, counted from 1.
pub fn is_ignored(signal: i32) -> bool {
    ignored() >> (signal - 1) & 1 == 1
}

/// Returns the mask of ignored signals, bit 0 for signal 1; an empty one if it is unknown.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

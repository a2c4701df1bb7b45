//! SIGINT, SIGTERM and SIGHUP as a flag, or a pipe: the first asks for a clean end, a second kills.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};
use std::fs;
use std::io::{self, PipeReader, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The flag.
pub struct Signals {
    stop: Arc<AtomicBool>,
    number: Arc<AtomicUsize>,
}

impl Signals {
    /// Catch them from now on. One that is ignored (as `nohup` does with SIGHUP) stays so.
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

    /// Set once a signal has come.
    pub fn stop(&self) -> &Arc<AtomicBool> {
        &self.stop
    }

    /// A pipe that can be read once a signal has come, for what sleeps until then.
    pub fn pipe(&self) -> io::Result<PipeReader> {
        let (reader, mut writer) = io::pipe()?;
        for signal in caught_signals() {
            low_level::pipe::register(signal, writer.try_clone()?)?;
        }
        // One may have come before.
        if self.stop.load(Ordering::Relaxed) {
            writer.write_all(b"x")?;
        }
        Ok(reader)
    }

    /// The signal that has come.
    pub fn caught(&self) -> Option<u8> {
        u8::try_from(self.number.load(Ordering::Relaxed)).ok().filter(|&number| number != 0)
    }
}

/// Those that are not ignored.
fn caught_signals() -> impl Iterator<Item = i32> {
    [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal))
}

/// Whether this process ignores a signal, from 1 on.
pub fn is_ignored(signal: i32) -> bool {
    ignored() >> (signal - 1) & 1 == 1
}

/// The mask of ignored signals, bit 0 for signal 1; none where it is not known.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

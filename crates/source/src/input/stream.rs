//! Blocking streams that can be interrupted: pipes, FIFOs, character devices, standard input.
//!
//! A read of such a file blocks until another process writes, and so does opening a FIFO. A signal
//! handler does not end the wait, because the system restarts the call. So this module waits in
//! short intervals and checks a flag between them.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Interval between checks of the flag.
const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// A stream whose reads fail with [`Stopped`] once `stop` is set.
pub(super) struct Stream {
    file: File,
    stop: Arc<AtomicBool>,
}

/// Error of a stream that was asked to stop.
#[derive(Debug, thiserror::Error)]
#[error("asked to stop")]
struct Stopped;

/// Returns true if an error means that a stream was asked to stop.
pub(crate) fn is_stopped(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Stopped>())
}

impl Stream {
    /// Opens a FIFO or a character device. The first read waits for a writer, not this call.
    pub(super) fn open(path: &Path, stop: Arc<AtomicBool>) -> io::Result<Self> {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        Ok(Self { file, stop })
    }

    /// Wraps an open file without changing its flags, since other processes may share it.
    pub(super) fn of(file: File, stop: Arc<AtomicBool>) -> Self {
        Self { file, stop }
    }

    /// Waits until a read would return bytes or the end.
    fn wait(&self) -> io::Result<()> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(io::Error::other(Stopped));
            }
            match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&TURN)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            self.wait()?;
            match self.file.read(buf) {
                // Another reader of the FIFO was faster.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }
}

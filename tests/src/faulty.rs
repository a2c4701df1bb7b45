//! Outputs that fail, that write less than they are given, or that lose unsynced data.

use crate::rng::Rng;
use kiln_output::{MemoryOutput, Output, Unpublished};
use std::cell::{Cell, RefCell};
use std::io;

/// Message of the error of [`FailingOutput`].
pub const FULL: &str = "the simulated disk is full";

/// An output whose calls fail from the n-th on.
pub struct FailingOutput<'a> {
    inner: &'a dyn Output,
    /// Number of calls that will still succeed.
    left: Cell<u64>,
}

impl<'a> FailingOutput<'a> {
    /// Creates an output whose first `count` calls succeed.
    pub fn new(inner: &'a dyn Output, count: u64) -> Self {
        Self { inner, left: Cell::new(count) }
    }

    /// Returns the number of calls that would still succeed.
    pub fn left(&self) -> u64 {
        self.left.get()
    }

    fn check(&self) -> io::Result<()> {
        let left = self.left.get().checked_sub(1);
        self.left.set(left.ok_or_else(|| io::Error::other(FULL))?);
        Ok(())
    }
}

impl Output for FailingOutput<'_> {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.check().and_then(|()| self.inner.write_at(bytes, offset))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.check().and_then(|()| self.inner.read_at(buf, offset))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check().and_then(|()| self.inner.set_len(len))
    }

    fn sync(&self) -> io::Result<()> {
        self.check().and_then(|()| self.inner.sync())
    }
}

/// An output in memory that transfers a few bytes at a time, and is interrupted between them.
#[derive(Default)]
pub struct ShortOutput {
    inner: MemoryOutput,
    calls: Cell<usize>,
}

impl ShortOutput {
    /// Returns the written bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.inner.into_bytes()
    }

    /// Returns how many of `len` bytes this call transfers.
    fn cut(&self, len: usize) -> io::Result<usize> {
        let call = self.calls.replace(self.calls.get() + 1);
        match call % 3 {
            0 => Err(io::ErrorKind::Interrupted.into()),
            rest => Ok(len.min(rest * 1000 - 1)),
        }
    }
}

impl Output for ShortOutput {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.inner.write_at(&bytes[..self.cut(bytes.len())?], offset)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let len = self.cut(buf.len())?;
        self.inner.read_at(&mut buf[..len], offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }
}

/// Number of bytes that a simulated disk writes atomically.
const SECTOR_LEN: usize = 512;

enum Event {
    Write { bytes: Vec<u8>, offset: u64 },
    SetLen(u64),
    Sync,
    Publish,
    SyncName,
}

/// A disk that may lose anything not synced. It records all changes, and computes what a power cut
/// at any moment leaves.
#[derive(Default)]
pub struct SimulatedDisk {
    now: MemoryOutput,
    events: RefCell<Vec<Event>>,
}

impl SimulatedDisk {
    /// Returns the number of recorded events.
    pub fn len(&self) -> usize {
        self.events.borrow().len()
    }

    /// Returns the contents of the final name after a power cut after the first `count` events;
    /// `None` if the name still refers to the previous file. Unsynced sectors survive or not, as
    /// `rng` decides.
    pub fn after_power_cut(&self, count: usize, rng: &mut Rng) -> Option<Vec<u8>> {
        let events = self.events.borrow();
        let events = &events[..count];
        let last = |is: fn(&Event) -> bool| events.iter().rposition(is);
        let synced = last(|event| matches!(event, Event::Sync)).unwrap_or(0);
        let published = last(|event| matches!(event, Event::Publish))?;
        let is_durable = last(|event| matches!(event, Event::SyncName)).is_some_and(|at| at > published);
        if !is_durable && rng.below(2) == 0 {
            return None;
        }
        let disk = MemoryOutput::default();
        for (idx, event) in events.iter().enumerate() {
            let mut survives = || idx < synced || rng.below(2) == 0;
            match event {
                Event::Write { bytes, offset } => {
                    for (sector, start) in bytes.chunks(SECTOR_LEN).zip((*offset..).step_by(SECTOR_LEN)) {
                        if survives() {
                            disk.write_at(sector, start).expect("memory takes bytes");
                        }
                    }
                }
                Event::SetLen(len) if survives() => disk.set_len(*len).expect("memory has any length"),
                _ => {}
            }
        }
        Some(disk.into_bytes())
    }

    fn record(&self, event: Event) {
        self.events.borrow_mut().push(event);
    }
}

impl Output for SimulatedDisk {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.record(Event::Write { bytes: bytes.to_vec(), offset });
        self.now.write_at(bytes, offset)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.now.read_at(buf, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.record(Event::SetLen(len));
        self.now.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.record(Event::Sync);
        Ok(())
    }
}

impl Unpublished for SimulatedDisk {
    fn publish(&mut self) -> io::Result<()> {
        self.record(Event::Publish);
        Ok(())
    }

    fn sync_name(&self) -> io::Result<()> {
        self.record(Event::SyncName);
        Ok(())
    }
}

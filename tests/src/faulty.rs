//! Outputs that fail, that take less than they are given, or that lose what was not synced.

use crate::rng::Rng;
use kiln_output::{MemoryOutput, Output, Unpublished};
use std::cell::{Cell, RefCell};
use std::io;

/// The error of [`FailingOutput`].
pub const FULL: &str = "the simulated disk is full";

/// An output whose calls fail from the n-th on.
pub struct FailingOutput<'a> {
    inner: &'a dyn Output,
    /// Calls that will still succeed.
    left: Cell<u64>,
}

impl<'a> FailingOutput<'a> {
    /// One of whose calls the first `count` succeed.
    pub fn new(inner: &'a dyn Output, count: u64) -> Self {
        Self { inner, left: Cell::new(count) }
    }

    /// Calls that would still have succeeded.
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

/// An output in memory that takes and gives a few bytes at a time, and is interrupted between them.
#[derive(Default)]
pub struct ShortOutput {
    inner: MemoryOutput,
    calls: Cell<usize>,
}

impl ShortOutput {
    /// What was written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.inner.into_bytes()
    }

    /// How many of `len` bytes this call takes.
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

/// Bytes that a simulated disk writes as a whole or not at all.
const SECTOR_LEN: usize = 512;

enum Event {
    Write { bytes: Vec<u8>, offset: u64 },
    SetLen(u64),
    Sync,
    Publish,
    SyncName,
}

/// A disk of which anything not synced may be lost: it records what is done, and says what a power cut at any moment leaves.
#[derive(Default)]
pub struct SimulatedDisk {
    now: MemoryOutput,
    events: RefCell<Vec<Event>>,
}

impl SimulatedDisk {
    /// How many things were done.
    pub fn len(&self) -> usize {
        self.events.borrow().len()
    }

    /// What the final name leads to after a power cut behind the first `count` events; `None`: to what was there before. What was
    /// not synced by then survives or not, sector by sector, as `rng` has it.
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

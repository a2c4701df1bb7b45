//! Simulated disks whose power fails.

use crate::rng::Rng;
use kiln_output::Output;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of bytes that a disk writes atomically.
const SECTOR_LEN: usize = 512;

/// A change to a disk that may be lost.
enum Event {
    Write(u64, Vec<u8>),
    SetLen(u64),
}

/// A disk that fails after some writes and syncs, and then loses unsynced data.
pub struct Disk {
    /// Contents while the power is on.
    now: Mutex<Vec<u8>>,
    durable: Mutex<Vec<u8>>,
    pending: Mutex<Vec<Event>>,
    /// Number of writes and syncs until the power fails, of all disks together.
    left: Arc<AtomicU64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk {
    /// Creates a disk with contents `bytes`. The power fails after `left` writes and syncs, counted
    /// over all disks that share it.
    pub fn new(bytes: Vec<u8>, left: &Arc<AtomicU64>) -> Arc<Self> {
        let (now, durable) = (Mutex::new(bytes.clone()), Mutex::new(bytes));
        Arc::new(Self { now, durable, pending: Mutex::default(), left: left.clone() })
    }

    /// Returns the contents while the power is on, or after a crash of the program alone.
    pub fn now(&self) -> Vec<u8> {
        lock(&self.now).clone()
    }

    /// Returns the synced contents.
    pub fn durable(&self) -> Vec<u8> {
        lock(&self.durable).clone()
    }

    /// Returns the contents after a power failure: any of the unsynced sectors may be lost.
    pub fn after_power_cut(&self, rng: &mut Rng) -> Vec<u8> {
        self.after_power_cut_by(SECTOR_LEN, rng)
    }

    /// Does the same for a disk that writes `unit_len` bytes atomically.
    pub fn after_power_cut_by(&self, unit_len: usize, rng: &mut Rng) -> Vec<u8> {
        let mut bytes = self.durable();
        for event in &*lock(&self.pending) {
            done(&mut bytes, event, unit_len, &mut || rng.below(2) == 0);
        }
        bytes
    }

    fn spend(&self) -> io::Result<()> {
        let spent = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        spent.map(drop).map_err(|_| io::Error::other("the power has failed"))
    }

    fn act(&self, event: Event) -> io::Result<()> {
        self.spend()?;
        done(&mut lock(&self.now), &event, SECTOR_LEN, &mut || true);
        lock(&self.pending).push(event);
        Ok(())
    }
}

fn done(bytes: &mut Vec<u8>, event: &Event, unit_len: usize, survives: &mut dyn FnMut() -> bool) {
    match event {
        Event::Write(off, data) => {
            for (sector, at) in data.chunks(unit_len).zip((*off as usize..).step_by(unit_len)) {
                if survives() {
                    let len = bytes.len().max(at + sector.len());
                    bytes.resize(len, 0);
                    bytes[at..at + sector.len()].copy_from_slice(sector);
                }
            }
        }
        Event::SetLen(len) if survives() => bytes.resize(*len as usize, 0),
        Event::SetLen(_) => {}
    }
}

impl Output for Disk {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.act(Event::Write(offset, bytes.to_vec())).map(|()| bytes.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let now = lock(&self.now);
        let rest = now.get(offset as usize..).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.act(Event::SetLen(len))
    }

    fn sync(&self) -> io::Result<()> {
        self.spend()?;
        *lock(&self.durable) = self.now();
        lock(&self.pending).clear();
        Ok(())
    }
}

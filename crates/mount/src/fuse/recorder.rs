//! Recorder of a server: the bytes of files that the kernel requests, for hot lists.
//!
//! A client starts a recording, fetches the records again and again, and stops it, all by ioctls
//! ([`super::ask`]). Meanwhile the server pushes nothing into the page cache, and the kernel reads
//! no more than programs do, if this process may set its readahead. The client has dropped the
//! cached pages before. A client that is killed stops nothing: a recording without requests for a
//! while ends with the next read.

pub(crate) mod answer;
mod ring;

use super::mount_identity::MountIdentity;
use super::read_ahead::ReadAhead;
use answer::{Answer, ReadRecord};
use parking_lot::Mutex;
use ring::Ring;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Time without requests after which a recording is abandoned. A client asks many times a second,
/// unless it is stopped or swapped out.
const LEASE: Duration = Duration::from_secs(60);

/// Recorder of reads, idle until a client starts a recording.
pub(super) struct Recorder {
    /// Separate flag, so that a read costs nothing while nothing is recorded.
    is_recording: AtomicBool,
    recording: Mutex<Option<Recording>>,
    /// Set once the mount answers.
    read_ahead: OnceLock<ReadAhead>,
    /// Tells the thread that reads in advance to end.
    interrupt: Arc<AtomicBool>,
}

/// Recording in progress.
struct Recording {
    ring: Ring,
    begun: Instant,
    /// Time of the client's last request.
    asked: Instant,
    /// Previous readahead in bytes, if it was changed.
    read_ahead_before: Option<u64>,
    /// Bytes that the kernel reads ahead meanwhile.
    read_ahead: u64,
}

impl Recorder {
    /// Creates an idle recorder. A recording sets `interrupt`.
    pub(super) fn new(interrupt: Arc<AtomicBool>) -> Self {
        Self {
            is_recording: AtomicBool::new(false),
            recording: Mutex::default(),
            read_ahead: OnceLock::new(),
            interrupt,
        }
    }

    /// Sets the mount of this server.
    pub(super) fn set_mount(&self, mount: MountIdentity) {
        let _ = self.read_ahead.set(ReadAhead::of(mount));
    }

    /// Returns true if reads are recorded: nothing may be prefetched then.
    pub(super) fn is_recording(&self) -> bool {
        self.is_recording.load(Ordering::Relaxed)
    }

    /// Records that `len` bytes of a file are read, before the reader gets them.
    pub(super) fn note(&self, ino: u64, offset: u64, len: usize) {
        if len > 0 && self.is_recording() {
            self.note_at(Instant::now(), ino, offset, len as u64);
        }
    }

    fn note_at(&self, now: Instant, ino: u64, offset: u64, len: u64) {
        let mut recording = self.recording.lock();
        match &mut *recording {
            Some(current) if !current.is_abandoned(now) => {
                let micros = now.saturating_duration_since(current.begun).as_micros() as u64;
                current.ring.push(ReadRecord { ino, offset, len, micros });
            }
            _ => self.end(&mut recording),
        }
    }

    /// Starts a recording. The answer has no records.
    ///
    /// # Errors
    /// `EBUSY` if another recording is in progress.
    pub(super) fn start(&self) -> Result<Answer, Errno> {
        self.start_at(Instant::now())
    }

    fn start_at(&self, now: Instant) -> Result<Answer, Errno> {
        let mut recording = self.recording.lock();
        if recording.as_ref().is_some_and(|current| !current.is_abandoned(now)) {
            return Err(Errno::BUSY);
        }
        self.end(&mut recording);
        self.interrupt.store(true, Ordering::Relaxed);
        let setting = self.read_ahead.get();
        let before = setting.and_then(|setting| setting.get().ok());
        // Without root, the kernel continues to read ahead.
        let is_set = setting.is_some_and(|setting| setting.set(0).is_ok());
        let current = Recording {
            ring: Ring::default(),
            begun: now,
            asked: now,
            read_ahead_before: before.filter(|_| is_set),
            read_ahead: if is_set { 0 } else { before.unwrap_or(0) },
        };
        let answer = Answer { records: Vec::new(), lost: 0, read_ahead: current.read_ahead };
        *recording = Some(current);
        self.is_recording.store(true, Ordering::Relaxed);
        Ok(answer)
    }

    /// Returns the oldest records that fit in an answer.
    ///
    /// # Errors
    /// `ENODATA` if nothing is recorded: the recording was abandoned or stopped.
    pub(super) fn drain(&self) -> Result<Answer, Errno> {
        let mut recording = self.recording.lock();
        let current = recording.as_mut().ok_or(Errno::NODATA)?;
        current.asked = Instant::now();
        Ok(current.take())
    }

    /// Does the same as [`Recorder::drain`], and stops recording; with the last records, the
    /// recording ends.
    ///
    /// # Errors
    /// Same as [`Recorder::drain`].
    pub(super) fn stop(&self) -> Result<Answer, Errno> {
        let mut recording = self.recording.lock();
        let current = recording.as_mut().ok_or(Errno::NODATA)?;
        self.is_recording.store(false, Ordering::Relaxed);
        let answer = current.take();
        if recording.as_ref().is_some_and(|current| current.ring.is_empty()) {
            self.end(&mut recording);
        }
        Ok(answer)
    }

    fn end(&self, recording: &mut Option<Recording>) {
        self.is_recording.store(false, Ordering::Relaxed);
        let before = recording.take().and_then(|ended| ended.read_ahead_before);
        if let (Some(setting), Some(before)) = (self.read_ahead.get(), before)
            && let Err(error) = setting.set(before)
        {
            log::warn!("{error}");
        }
    }
}

impl Recording {
    fn is_abandoned(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.asked) > LEASE
    }

    fn take(&mut self) -> Answer {
        Answer { records: self.ring.pop(answer::RECORDS_MAX), lost: self.ring.lost(), read_ahead: self.read_ahead }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_at_a_time_until_it_is_gone() {
        let interrupt = Arc::<AtomicBool>::default();
        let recorder = Recorder::new(Arc::clone(&interrupt));
        recorder.note(7, 0, 4096);
        assert_eq!((recorder.drain().err(), recorder.stop().err()), (Some(Errno::NODATA), Some(Errno::NODATA)));
        let begun = Instant::now();
        recorder.start_at(begun).unwrap();
        assert!(interrupt.load(Ordering::Relaxed) && recorder.is_recording());
        assert_eq!(recorder.start_at(begun + LEASE).err(), Some(Errno::BUSY));
        // The client has asked nothing for longer than it may: a read ends the recording, or
        // another start does.
        recorder.note_at(begun + LEASE, 7, 0, 1);
        assert!(recorder.is_recording());
        recorder.note_at(begun + LEASE + Duration::from_micros(1), 7, 0, 1);
        assert!(!recorder.is_recording());
        recorder.start_at(begun).unwrap();
        recorder.note_at(begun, 7, 0, 1);
        recorder.start_at(begun + 2 * LEASE).unwrap();
        assert!(recorder.drain().unwrap().records.is_empty());
    }

    #[test]
    fn records_come_in_order_and_stop_gives_the_rest() {
        let recorder = Recorder::new(Arc::default());
        let begun = Instant::now();
        recorder.start_at(begun).unwrap();
        let count = answer::RECORDS_MAX as u64 + 10;
        (0..count).for_each(|ino| recorder.note_at(begun + Duration::from_micros(ino), ino, 0, 1));
        recorder.note(7, 0, 0);
        let first = recorder.stop().unwrap();
        assert_eq!((first.records.len(), first.lost), (answer::RECORDS_MAX, 0));
        assert!(!recorder.is_recording() && recorder.start_at(begun).is_err());
        recorder.note(7, 0, 1);
        let rest = recorder.stop().unwrap();
        assert_eq!(recorder.stop().err(), Some(Errno::NODATA));
        let micros = first.records.iter().chain(&rest.records).map(|record| (record.ino, record.micros));
        assert!(micros.eq((0..count).map(|ino| (ino, ino))));
    }
}

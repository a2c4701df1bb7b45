//! A patch applied over the old image: cut short at every write, and with writes lost that were not synced.

use crate::common::{files, image, make, next, preset};
use kiln_builder::{Output, Preset};
use kiln_delta::in_place::{self, InPlace, Resize, Target};
use kiln_delta::{DeltaError, Patch};
use kiln_tests::rng::Rng;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes that a disk writes as a whole or not at all.
const SECTOR_LEN: usize = 512;

/// What was done to a disk and may be lost.
enum Event {
    Write(u64, Vec<u8>),
    SetLen(u64),
}

/// A disk that loses what is not synced when the power fails.
struct Disk {
    /// What is there as long as the power is.
    now: Mutex<Vec<u8>>,
    durable: Mutex<Vec<u8>>,
    pending: Mutex<Vec<Event>>,
    /// Writes and syncs until the power fails, of all disks together.
    left: Arc<AtomicU64>,
}

impl Disk {
    fn new(bytes: Vec<u8>, left: &Arc<AtomicU64>) -> Arc<Self> {
        let (now, durable) = (Mutex::new(bytes.clone()), Mutex::new(bytes));
        Arc::new(Self { now, durable, pending: Mutex::default(), left: left.clone() })
    }

    fn spend(&self) -> io::Result<()> {
        let spent = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        spent.map(drop).map_err(|_| io::Error::other("the power has failed"))
    }

    fn done(bytes: &mut Vec<u8>, event: &Event, survives: &mut dyn FnMut() -> bool) {
        match event {
            Event::Write(off, data) => {
                for (sector, at) in data.chunks(SECTOR_LEN).zip((*off as usize..).step_by(SECTOR_LEN)) {
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

    /// What is left after a power failure: of what was not synced, any part.
    fn after_power_cut(&self, rng: &mut Rng) -> Vec<u8> {
        let mut bytes = self.durable.lock().unwrap().clone();
        for event in &*self.pending.lock().unwrap() {
            Self::done(&mut bytes, event, &mut || rng.below(2) == 0);
        }
        bytes
    }

    fn act(&self, event: Event) -> io::Result<()> {
        self.spend()?;
        Self::done(&mut self.now.lock().unwrap(), &event, &mut || true);
        self.pending.lock().unwrap().push(event);
        Ok(())
    }
}

impl Output for Disk {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.act(Event::Write(offset, bytes.to_vec())).map(|()| bytes.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let now = self.now.lock().unwrap();
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
        *self.durable.lock().unwrap() = self.now.lock().unwrap().clone();
        self.pending.lock().unwrap().clear();
        Ok(())
    }
}

/// The images, and a patch. The new one is longer, or shorter.
fn case(grows: bool) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let files: Vec<_> = files(1).into_iter().skip(55).filter(|(_, bytes)| bytes.len() < 250_000).collect();
    let (a, b) = (image(&files, &preset(Preset::Fast)), image(&next(&files, 2), &preset(Preset::Fast)));
    let (old, new) = if (a.len() < b.len()) == grows { (a, b) } else { (b, a) };
    let (patch, _) = make(&old, &new, false);
    (old, new, patch)
}

fn run(patch: &[u8], device: &Arc<Disk>, journal: &Disk, resize: Resize) -> Result<InPlace, DeltaError> {
    let len = device.now.lock().unwrap().len() as u64;
    let target = Target { device: device.clone(), len, resize };
    in_place::apply(Patch::open(patch)?, &target, journal, &AtomicBool::new(false))
}

/// Cut the power behind each write and sync, and once more while the run after that completes.
fn cut_everywhere(grows: bool, resize: Resize) {
    let (mut old, new, patch) = case(grows);
    if resize == Resize::Never {
        let room = old.len().max(new.len()) + 8192;
        old.resize(room, 0xEE);
    }
    let is_new = |bytes: &[u8]| match resize {
        Resize::ToImage => *bytes == new,
        Resize::Never => bytes[..new.len()] == new && bytes.len() == old.len(),
    };
    let mut rng = Rng::new(grows as u64);
    let mut resumed = 0;
    for count in 0.. {
        let left = Arc::new(AtomicU64::new(count));
        let (device, journal) = (Disk::new(old.clone(), &left), Disk::new(Vec::new(), &left));
        let is_done = run(&patch, &device, &journal, resize).is_ok();
        if is_done {
            assert!(is_new(&device.durable.lock().unwrap()), "done, but not durable");
            break;
        }
        // The power fails once more, somewhere.
        let mut state = (device.after_power_cut(&mut rng), journal.after_power_cut(&mut rng));
        let left = Arc::new(AtomicU64::new(rng.below(count + 3)));
        let (device, journal) = (Disk::new(state.0.clone(), &left), Disk::new(state.1.clone(), &left));
        let again = run(&patch, &device, &journal, resize);
        resumed += matches!(again, Ok(InPlace::Resumed)) as u32;
        if again.is_err() {
            state = (device.after_power_cut(&mut rng), journal.after_power_cut(&mut rng));
            let left = Arc::new(AtomicU64::new(u64::MAX));
            let (device, journal) = (Disk::new(state.0, &left), Disk::new(state.1, &left));
            let done = run(&patch, &device, &journal, resize).unwrap_or_else(|error| panic!("{count}: {error}"));
            resumed += (done == InPlace::Resumed) as u32;
            assert!(is_new(&device.now.lock().unwrap()), "cut behind {count}");
        } else {
            assert!(is_new(&device.now.lock().unwrap()), "cut behind {count}");
        }
    }
    assert!(resumed > 0, "no journal was ever replayed");
}

#[test]
fn a_file_that_grows_survives_any_cut() {
    cut_everywhere(true, Resize::ToImage);
}

#[test]
fn a_file_that_shrinks_survives_any_cut() {
    cut_everywhere(false, Resize::ToImage);
}

#[test]
fn a_device_survives_any_cut() {
    cut_everywhere(true, Resize::Never);
}

#[test]
fn what_is_done_is_seen() {
    let (old, new, patch) = case(true);
    let left = Arc::new(AtomicU64::new(u64::MAX));
    let (device, journal) = (Disk::new(old, &left), Disk::new(Vec::new(), &left));
    assert!(matches!(run(&patch, &device, &journal, Resize::ToImage), Ok(InPlace::Applied(_))));
    assert!(matches!(run(&patch, &device, &journal, Resize::ToImage), Ok(InPlace::Resumed)));
    let journal = Disk::new(Vec::new(), &left);
    assert!(matches!(run(&patch, &device, &journal, Resize::ToImage), Ok(InPlace::WasThere)));
    assert!(*device.now.lock().unwrap() == new);
}

#[test]
fn a_device_that_is_too_small_and_a_journal_of_another_patch_are_refused() {
    let (old, new, patch) = case(true);
    let left = Arc::new(AtomicU64::new(u64::MAX));
    let (device, journal) = (Disk::new(old.clone(), &left), Disk::new(Vec::new(), &left));
    let error = run(&patch, &device, &journal, Resize::Never).unwrap_err();
    assert!(error.to_string().contains("are needed"), "{error}");
    let (other, _) = make(&new, &old, false);
    let there = Disk::new(new.clone(), &left);
    run(&other, &there, &journal, Resize::ToImage).unwrap();
    let error = run(&patch, &device, &journal, Resize::ToImage).unwrap_err();
    assert!(matches!(error, DeltaError::Journal { .. }), "{error}");
    assert!(*device.now.lock().unwrap() == old);
}

#[test]
fn a_damaged_journal_is_not_replayed() {
    let (old, _, patch) = case(true);
    let left = Arc::new(AtomicU64::new(u64::MAX));
    let (device, journal) = (Disk::new(old.clone(), &left), Disk::new(Vec::new(), &left));
    run(&patch, &device, &journal, Resize::ToImage).unwrap();
    let mut bytes = journal.now.lock().unwrap().clone();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let (device, journal) = (Disk::new(old.clone(), &left), Disk::new(bytes, &left));
    let error = run(&patch, &device, &journal, Resize::ToImage).unwrap_err();
    assert!(matches!(error, DeltaError::Journal { .. }), "{error}");
    assert!(*device.now.lock().unwrap() == old);
}

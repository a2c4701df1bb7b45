//! A directory whose files change while others read it, and which knows all that they have held.
//!
//! Contents consist of units of 4 KiB that name their text and their place in it. Each change writes
//! units of a text of its own, so a unit tells when, and for which file, it was written.

use crate::rng::Rng;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Length of a unit in bytes.
const UNIT: usize = 4096;
/// Length in bytes of a line; a unit consists of them.
const LINE: usize = 64;
/// Units that one call writes at most.
const CALL_UNITS: u64 = 16;
/// Units of a long file that one change rewrites at most.
const CHANGE_UNITS: u64 = 300;
/// Parts of which a unit may consist that is read while it is written: memory is copied without a lock, so that a reader
/// and a writer that run side by side may take turns at each line. (Nine parts were seen in 2,000 trees.)
const TORN_PARTS: usize = UNIT / LINE;

/// Returns unit `idx` of a text.
fn unit(text: u64, idx: u64) -> Vec<u8> {
    let mut rng = Rng::new(text ^ idx << 32);
    let mut out = Vec::with_capacity(UNIT);
    for line in 0..UNIT / LINE {
        write!(out, "{text:016x} {idx:08x} {line:02} ").expect("memory takes bytes");
        for _ in 0..2 {
            let word = rng.word();
            out.extend((0..16).map(|at| b'a' + (word >> (4 * at) & 15) as u8));
        }
        out.extend(b".. \n");
        out.truncate((line + 1) * LINE - 1);
        out.push(b'\n');
    }
    out
}

/// Units of a text at a place of a file.
#[derive(Clone)]
struct Stretch {
    /// First unit in the file.
    at: u64,
    count: u64,
    text: u64,
    /// First unit in the text.
    from: u64,
}

impl Stretch {
    /// Returns unit `idx` of the file if it is one of these.
    fn unit(&self, idx: u64) -> Option<Vec<u8>> {
        (self.at..self.at + self.count).contains(&idx).then(|| unit(self.text, self.from + idx - self.at))
    }
}

/// All that a file has held so far, and may hold soon.
#[derive(Clone, Default)]
struct Past {
    stretches: Vec<Stretch>,
    /// Some of its bytes were zeros, or behind its end.
    has_zeros: bool,
}

impl Past {
    /// Returns the contents of a file that nothing has overwritten.
    fn bytes(&self, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        for stretch in &self.stretches {
            for idx in stretch.at..stretch.at + stretch.count {
                let start = idx as usize * UNIT;
                let to = bytes.get_mut(start..).unwrap_or_default();
                let there = to.len().min(UNIT);
                to[..there].copy_from_slice(&stretch.unit(idx).unwrap_or_default()[..there]);
            }
        }
        bytes
    }
}

/// A name in the tree.
struct Spot {
    path: String,
    /// Files that have had the name, the latest one last, by index.
    files: Vec<usize>,
    is_there: bool,
    scanned: Vec<u8>,
}

/// Files that one thread changes.
struct Hand {
    rng: Rng,
    root: PathBuf,
    /// Directory for files that will be renamed into place.
    aside: PathBuf,
    /// Longest pause between changes in microseconds.
    pause: u64,
    spots: Vec<Spot>,
    pasts: Vec<Past>,
}

/// A directory with files that change.
pub struct Restless {
    hands: Vec<Hand>,
    /// Files that do not change.
    still: Hand,
}

/// Contents that a file was found to have.
pub struct Found {
    /// They are those that it had in the beginning.
    pub is_first: bool,
    /// Number of units that were read while they were written or cut off.
    pub torn: u64,
}

impl Restless {
    /// Fills the empty directory `root`. Equal seeds give equal files. `aside` is an empty directory of
    /// the same filesystem.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn make(root: &Path, aside: &Path, seed: u64) -> io::Result<Self> {
        let mut rng = Rng::new(seed);
        let mut hand = |nth: u64| Hand {
            rng: Rng::new(seed ^ (nth + 1) << 48),
            root: root.to_owned(),
            aside: aside.join(nth.to_string()),
            pause: *rng.pick(&[1, 50, 400, 2000]),
            spots: Vec::new(),
            pasts: Vec::new(),
        };
        let (mut hands, mut still) = (vec![hand(0), hand(1)], hand(2));
        let texts: Vec<u64> = (0..6).map(|_| rng.word()).collect();
        let long = (4 << 20) + 1 + rng.below(6 << 20);
        let (count, long_count) = (4 + rng.below(24), rng.below(3) * rng.below(3));
        let mut made: Vec<(u64, Past)> = Vec::new();
        for nth in 0..count + long_count {
            let len = match rng.below(8) {
                _ if nth >= count => long,
                0 => rng.below(3) * UNIT as u64,
                1 => 1 + rng.below(1 << 20),
                2 | 3 => 1 + rng.below(100_000),
                _ => 1 + rng.below(20_000),
            };
            let (len, past) = match rng.below(4) {
                0 if nth < count && !made.is_empty() => rng.pick(&made).clone(),
                _ => (len, recipe(&mut rng, &texts, len)),
            };
            made.push((len, past.clone()));
            let dir = format!("d{}", rng.below(3));
            fs::create_dir_all(root.join(&dir))?;
            let owner = match rng.below(5) {
                0 => &mut still,
                choice => &mut hands[choice as usize % 2],
            };
            owner.begin(format!("{dir}/f{nth}"), len, past)?;
        }
        wait_for_later_times(aside)?;
        Ok(Self { hands, still })
    }

    /// Runs `work` while threads change files.
    ///
    /// # Panics
    /// If a change fails.
    pub fn change_during<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for hand in self.hands.iter_mut().filter(|hand| !hand.spots.is_empty()) {
                let stop = &stop;
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        hand.change().expect("a change of a file");
                        thread::sleep(Duration::from_micros(hand.rng.below(hand.pause)));
                    }
                });
            }
            // Threads end in any case, or the scope would wait for ever.
            let _guard = SetOnDrop(&stop);
            work()
        })
    }

    /// Returns the paths of all files that there were in the beginning, and true for those that change.
    pub fn paths(&self) -> impl Iterator<Item = (&str, bool)> {
        let moving = self.hands.iter().flat_map(|hand| &hand.spots).map(|spot| (&spot.path[..], true));
        moving.chain(self.still.spots.iter().map(|spot| (&spot.path[..], false)))
    }

    /// Finds out how `bytes` can have been read from `path`.
    ///
    /// # Errors
    /// Bytes that the file had at no time.
    pub fn explain(&self, path: &str, bytes: &[u8]) -> Result<Found, String> {
        let hands = self.hands.iter().chain([&self.still]);
        let found = hands.flat_map(|hand| hand.spots.iter().map(move |spot| (hand, spot)));
        let (hand, spot) = found.into_iter().find(|(_, spot)| spot.path == path).ok_or("no such file")?;
        if bytes.len() != spot.scanned.len() {
            return Err(format!("{} bytes instead of {}", bytes.len(), spot.scanned.len()));
        }
        let pasts: Vec<&Past> = spot.files.iter().map(|&file| &hand.pasts[file]).collect();
        let mut torn = 0;
        for (idx, part) in (0..).zip(bytes.chunks(UNIT)) {
            match parts(&pasts, idx, part) {
                1 => {}
                2..=TORN_PARTS => torn += 1,
                count => {
                    let front = part[..part.len().min(LINE)].escape_ascii();
                    return Err(format!("unit {idx} has {count} parts, it begins with {front}"));
                }
            }
        }
        Ok(Found { is_first: bytes == spot.scanned, torn })
    }
}

/// Sets a flag when it is dropped.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until a new file has a later time than those before: a change that has the same time as the
/// scan cannot be seen.
fn wait_for_later_times(dir: &Path) -> io::Result<()> {
    let time_of = |name: &str| {
        fs::write(dir.join(name), "x")?;
        fs::metadata(dir.join(name))?.modified()
    };
    let before = time_of("before")?;
    while time_of("after")? <= before {
        thread::yield_now();
    }
    Ok(())
}

/// Returns contents of `len` bytes that share stretches with others: at the same places and elsewhere.
fn recipe(rng: &mut Rng, texts: &[u64], len: u64) -> Past {
    let (mut past, mut at, end) = (Past::default(), 0, len.div_ceil(UNIT as u64));
    while at < end {
        let count = if rng.below(2) == 0 { end - at } else { 1 + rng.below(end - at) };
        match rng.below(8) {
            0 => past.has_zeros = true,
            choice => {
                let text = if choice < 5 { texts[0] } else { *rng.pick(texts) };
                let from = if choice < 6 { at } else { rng.below(20) };
                past.stretches.push(Stretch { at, count, text, from });
            }
        }
        at += count;
    }
    past
}

/// Returns the number of parts that unit `idx` of a file consists of, each of which it has had at that
/// place; `usize::MAX` if it consists of none.
fn parts(pasts: &[&Past], idx: u64, part: &[u8]) -> usize {
    let stretches = pasts.iter().flat_map(|past| &past.stretches);
    let named = part.get(..16).and_then(|text| u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok());
    let is_whole = |one: &Stretch| one.unit(idx).is_some_and(|unit| unit[..part.len()] == *part);
    if stretches.clone().filter(|one| named == Some(one.text)).any(is_whole) {
        return 1;
    }
    let mut choices: BTreeSet<Vec<u8>> = stretches.filter_map(|one| one.unit(idx)).collect();
    if pasts.iter().any(|past| past.has_zeros) {
        choices.insert(vec![0; UNIT]);
    }
    let (mut done, mut count) = (0, 0);
    while done < part.len() {
        let equal = |choice: &Vec<u8>| part[done..].iter().zip(&choice[done..]).take_while(|(a, b)| a == b).count();
        match choices.iter().map(equal).max() {
            None | Some(0) => return usize::MAX,
            Some(len) => (done, count) = (done + len, count + 1),
        }
    }
    count
}

impl Hand {
    /// Adds a file to the tree.
    fn begin(&mut self, path: String, len: u64, past: Past) -> io::Result<()> {
        let scanned = past.bytes(len);
        let file = File::create_new(self.root.join(&path))?;
        for stretch in &past.stretches {
            let (start, end) = (stretch.at * UNIT as u64, ((stretch.at + stretch.count) * UNIT as u64).min(len));
            file.write_all_at(&scanned[start as usize..end as usize], start)?;
        }
        file.set_len(len)?;
        self.pasts.push(past);
        self.spots.push(Spot { path, files: vec![self.pasts.len() - 1], is_there: true, scanned });
        Ok(())
    }

    /// Makes one change. All that it writes is recorded before.
    fn change(&mut self) -> io::Result<()> {
        let nth = self.rng.below(self.spots.len() as u64) as usize;
        let path = self.root.join(&self.spots[nth].path);
        let len = self.spots[nth].scanned.len() as u64;
        let end = len.div_ceil(UNIT as u64);
        if !self.spots[nth].is_there {
            let file = self.add_file(nth, true);
            self.spots[nth].is_there = true;
            return self.write(&File::create_new(path)?, file, (0, end), len);
        }
        let latest = *self.spots[nth].files.last().expect("a file that is there");
        let open = || File::options().write(true).open(&path);
        match self.rng.below(12) {
            0..=2 if end <= CHANGE_UNITS => self.write(&open()?, latest, (0, end), len),
            0..=4 => {
                let at = self.rng.below(end + 1);
                let count = self.rng.below((end - at).min(CHANGE_UNITS) + 1);
                self.write(&open()?, latest, (at, count), len)
            }
            5 => {
                self.pasts[latest].has_zeros = true;
                open()?.set_len(self.rng.below(len + 1))
            }
            6 => {
                self.pasts[latest].has_zeros = true;
                let count = self.rng.below(4);
                self.write(&open()?, latest, (end, count), u64::MAX)
            }
            7 | 8 => {
                self.pasts[latest].has_zeros = true;
                open()?.set_len(len)
            }
            9 => {
                let file = self.add_file(nth, false);
                self.write(&File::create(&self.aside)?, file, (0, end), len)?;
                fs::rename(&self.aside, path)
            }
            10 => {
                let to = self.rng.below(self.spots.len() as u64) as usize;
                if to == nth {
                    return Ok(());
                }
                self.spots[to].files.push(latest);
                // The file may be shorter than the one that had the name.
                self.pasts[latest].has_zeros = true;
                (self.spots[nth].is_there, self.spots[to].is_there) = (false, true);
                fs::rename(path, self.root.join(&self.spots[to].path))
            }
            _ => {
                self.spots[nth].is_there = false;
                fs::remove_file(path)
            }
        }
    }

    /// Adds a file that a name will have.
    fn add_file(&mut self, spot: usize, has_zeros: bool) -> usize {
        self.pasts.push(Past { has_zeros, ..Past::default() });
        self.spots[spot].files.push(self.pasts.len() - 1);
        self.pasts.len() - 1
    }

    /// Writes `count` units of a new text from unit `at` on, up to byte `max_len`.
    fn write(&mut self, to: &File, file: usize, (at, count): (u64, u64), max_len: u64) -> io::Result<()> {
        let text = self.rng.word();
        self.pasts[file].stretches.push(Stretch { at, count, text, from: at });
        let mut next = at;
        while next < at + count {
            let end = (next + 1 + self.rng.below(CALL_UNITS)).min(at + count);
            let mut bytes: Vec<u8> = (next..end).flat_map(|idx| unit(text, idx)).collect();
            let start = next * UNIT as u64;
            bytes.truncate((max_len - start) as usize);
            to.write_all_at(&bytes, start)?;
            next = end;
        }
        Ok(())
    }
}

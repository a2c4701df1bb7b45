//! Selection of the parts of streams that become references to earlier text: on one thread, in plan order.
//!
//! A *stream* is a run of data between the holes of one stored file, or of the packed inode. Streams have numbers in
//! plan order; all positions are bytes of plain text. Equal chunks nominate places, bytes decide, and a match is
//! extended both ways, so its ends lie anywhere:
//!
//! ```text
//! for each stream s, pos = 0; for each chunk x with x.off >= pos:
//!     y = first place with the hash of x; if there is none, or it lies in no stored run R: remember x, go on
//!     f = common prefix of y.. and x.., not past the end of R nor of s
//!     r = common suffix before y and x, not before the start of R nor pos
//!     if f == 0 or f + r < min_match: remember x, go on
//!     Stored(pos .. x.off - r)   Ref(x.off - r .. x.off + f, from y.off - r)   pos = x.off + f
//! Stored(pos .. end of s)
//! ```
//!
//! Laws of the outcome:
//! * The runs of a stream cover it, in order, without gaps; none is empty.
//! * A source lies in one Stored run, before its target: there are no chains, and within a stream no overlap.
//! * The bytes of source and target were compared and equal.
//! * It depends on chunks, text, `min_match`, the budget, and on where streams are sealed.
//!
//! The text of long streams arrives in pieces. What is decided about a piece is *sealed* before its text is dropped:
//! later matches lie behind it.

mod extend;
mod index;

use crate::plan::dedupe::chunker::ChunkHash;
use extend::Extender;
use index::Index;
use std::ops::Range;

/// Gives the plain text of streams for comparison.
pub(crate) trait Text {
    /// Error of a source.
    type Error;

    /// Fills `buf` with the bytes of `stream` from `off` on. Only called for streams that were begun.
    ///
    /// # Errors
    /// Errors of the source.
    fn read(&mut self, stream: u32, off: u64, buf: &mut [u8]) -> Result<(), Self::Error>;

    /// Prepares the text around some places, which [`Text::read`] will probably be asked for. Returns the number of
    /// places, from the first on, for which that was done: at least one.
    ///
    /// # Errors
    /// Errors of the source.
    fn prepare(&mut self, places: &[Place]) -> Result<usize, Self::Error> {
        Ok(places.len())
    }

    /// Returns whether storing these `len` bytes once instead of twice gains anything.
    ///
    /// # Errors
    /// Errors of the source.
    fn gains(&mut self, place: Place, len: u64) -> Result<bool, Self::Error>;
}

/// Most chunks whose sources are prepared at once.
const AHEAD_MAX: usize = 256;

/// A place in the plain text of all streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Number of the stream.
    pub stream: u32,
    /// Bytes from its start.
    pub off: u64,
}

/// Text that is a reference to stored text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ref {
    /// Place of the reference.
    pub target: Place,
    /// Length in bytes.
    pub len: u64,
    /// Place of the stored text: a part starts here in the end, and the rest is in the parts behind it.
    pub source: Place,
}

impl Ref {
    /// Returns the byte of the target's stream behind the last.
    pub(crate) fn end(&self) -> u64 {
        self.target.off + self.len
    }
}

/// A chunk of a stream; it starts where the one before it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Hash of its bytes.
    pub hash: ChunkHash,
    /// Length in bytes.
    pub len: u32,
}

/// Consecutive bytes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// First byte, from the start of the stream.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// Source of the bytes.
    pub kind: RunKind,
}

impl Run {
    /// Returns the byte behind the last.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.len
    }
}

/// Source of a run's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunKind {
    /// The run itself.
    Stored,
    /// Equal bytes from this place on.
    Ref(Place),
}

/// The runs of all streams.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    runs: Vec<Run>,
    /// Index of the first run of each stream.
    firsts: Vec<usize>,
    /// Number of runs that do not change any more, but for a Stored run that grows at its end.
    sealed: usize,
}

impl Runs {
    /// Returns the number of streams.
    pub(crate) fn len(&self) -> usize {
        self.firsts.len()
    }

    /// Returns the runs of a stream, in order.
    pub(crate) fn stream(&self, stream: u32) -> &[Run] {
        let idx = stream as usize;
        let end = self.firsts.get(idx + 1).copied().unwrap_or(self.runs.len());
        &self.runs[self.firsts[idx]..end]
    }

    /// Starts the next stream.
    pub(crate) fn begin(&mut self) {
        self.firsts.push(self.runs.len());
    }

    /// Appends a run to the last stream. Empty ones are left out, and Stored ones join a Stored one before them.
    pub(crate) fn push(&mut self, run: Run) {
        let first = self.firsts.last().copied().unwrap_or(0);
        match self.runs[first..].last_mut() {
            _ if run.len == 0 => {}
            Some(last) if last.kind == RunKind::Stored && run.kind == RunKind::Stored => last.len += run.len,
            _ => self.runs.push(run),
        }
    }

    /// Returns the Refs that are not sealed, in order of targets. They are in streams from number `first` on.
    pub(crate) fn unsealed_refs(&self, first: u32) -> Vec<Ref> {
        let mut refs = Vec::new();
        for stream in first..self.len() as u32 {
            for run in &self.runs[self.unsealed(stream)] {
                if let RunKind::Ref(source) = run.kind {
                    refs.push(Ref { target: Place { stream, off: run.start }, len: run.len, source });
                }
            }
        }
        refs
    }

    /// Stores text of a stream after all, where it is not sealed: nothing refers to its references.
    fn forget_refs(&mut self, stream: u32) {
        let unsealed = self.unsealed(stream);
        self.runs[unsealed].iter_mut().for_each(|run| run.kind = RunKind::Stored);
    }

    /// Returns the indexes of the runs of a stream that are not sealed.
    fn unsealed(&self, stream: u32) -> Range<usize> {
        let start = self.firsts[stream as usize];
        let end = start + self.stream(stream).len();
        start.max(self.sealed).min(end)..end
    }

    /// Returns the Stored run that holds a place.
    fn stored_at(&self, place: Place) -> Option<Range<u64>> {
        let runs = self.stream(place.stream);
        let run = &runs[runs.partition_point(|run| run.end() <= place.off)..].first()?;
        (run.kind == RunKind::Stored && run.start <= place.off).then(|| run.start..run.end())
    }
}

/// Counts of matching.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MatchStats {
    /// Bytes of all streams.
    pub text_bytes: u64,
    /// Bytes of Refs.
    pub matched_bytes: u64,
    /// Bytes compared, counted once for both sides.
    pub compared_bytes: u64,
    /// Chunks that were not remembered, or forgotten, for want of memory.
    pub dropped_chunks: u64,
}

/// Finds matches, stream by stream.
pub(crate) struct Matcher {
    min_match: u64,
    index: Index,
    extender: Extender,
    runs: Runs,
    /// Group of each stream.
    groups: Vec<u32>,
    /// Length of the current stream.
    len: u64,
    /// Start of its next chunk.
    off: u64,
    /// End of the text that is decided.
    pos: u64,
    /// The last match that was too short.
    too_short: Option<TooShort>,
    stats: MatchStats,
}

/// A match that was too short: its other chunks need no comparison.
#[derive(Clone, Copy)]
struct TooShort {
    source: Place,
    target: u64,
    end: u64,
}

/// Bytes that a match may have behind and before a place.
struct Room {
    ahead: u64,
    back: u64,
    /// The source lies in the run that the target would end.
    is_open: bool,
}

/// Equal bytes of an earlier place and of the current stream.
struct Match {
    source: Place,
    target: Range<u64>,
}

impl Matcher {
    /// Creates a matcher for matches of at least `min_match` bytes, with an index of at most `budget` bytes.
    pub(crate) fn new(min_match: u64, budget: usize) -> Self {
        Self {
            min_match,
            index: Index::new(budget),
            extender: Extender::default(),
            runs: Runs::default(),
            groups: Vec::new(),
            len: 0,
            off: 0,
            pos: 0,
            too_short: None,
            stats: MatchStats::default(),
        }
    }

    /// Begins the next stream, which shares text only with others of its group. Its number is the count of those
    /// before it, at most `u32::MAX - 1`.
    pub(crate) fn begin(&mut self, group: u32) {
        assert!(self.runs.len() < u32::MAX as usize, "more streams than numbers");
        self.runs.begin();
        self.groups.push(group);
        (self.len, self.off, self.pos, self.too_short) = (0, 0, 0, None);
    }

    /// Adds the next `len` bytes of text to the current stream. Their chunks follow.
    pub(crate) fn grow(&mut self, len: u64) {
        self.len += len;
        self.stats.text_bytes += len;
    }

    /// Decides about all text of the current stream that was pushed.
    pub(crate) fn settle(&mut self) {
        debug_assert_eq!(self.off, self.len, "chunks do not cover their stream");
        self.store(self.len);
    }

    /// Returns the runs of all streams so far.
    pub(crate) fn runs(&self) -> &Runs {
        &self.runs
    }

    /// Stores text of a stream after all, where it is not sealed.
    pub(crate) fn forget_refs(&mut self, stream: u32) {
        self.runs.forget_refs(stream);
    }

    /// Seals all decisions so far. The current stream, if it goes on, must be settled.
    pub(crate) fn seal(&mut self) {
        self.runs.sealed = self.runs.runs.len();
        self.too_short = None;
    }

    /// Takes the next chunks of the current stream.
    ///
    /// # Errors
    /// Text that cannot be read.
    pub(crate) fn push<T: Text>(&mut self, chunks: &[Chunk], text: &mut T) -> Result<(), T::Error> {
        let mut prepared = 0;
        for (idx, chunk) in chunks.iter().enumerate() {
            if idx == prepared {
                prepared += self.prepare(&chunks[idx..], text)?;
            }
            let off = self.off;
            self.off += u64::from(chunk.len);
            debug_assert!(self.off <= self.len, "chunks are longer than their stream");
            // A chunk within a match is not remembered: its bytes are not stored here.
            if off < self.pos {
                continue;
            }
            let hash = chunk.hash.in_group(self.groups[self.stream() as usize]);
            match self.matched(off, hash, text)? {
                Some(found) => self.refer(found),
                None => self.index.insert(hash, Place { stream: self.stream(), off }),
            }
        }
        Ok(())
    }

    /// Prepares the text that the next chunks will be compared with. Returns the number of chunks for which that was
    /// done.
    fn prepare<T: Text>(&self, chunks: &[Chunk], text: &mut T) -> Result<usize, T::Error> {
        let group = self.groups[self.stream() as usize];
        let chunks = &chunks[..chunks.len().min(AHEAD_MAX)];
        let (mut off, mut places, mut numbers) = (self.off, Vec::new(), Vec::new());
        for (idx, chunk) in chunks.iter().enumerate() {
            // A chunk within a match is not compared.
            let hash = chunk.hash.in_group(group);
            let found = if off < self.pos { None } else { self.nominated(off, hash) };
            if let Some((source, _)) = found {
                places.push(source);
                numbers.push(idx);
            }
            off += u64::from(chunk.len);
        }
        if places.is_empty() {
            return Ok(chunks.len());
        }
        let count = text.prepare(&places)?;
        Ok(numbers.get(count).copied().unwrap_or(chunks.len()))
    }

    /// Returns the counts so far.
    pub(crate) fn stats(&self) -> MatchStats {
        let (compared_bytes, dropped_chunks) = (self.extender.compared_bytes(), self.index.dropped());
        MatchStats { compared_bytes, dropped_chunks, ..self.stats }
    }

    /// Returns the number of the current stream.
    fn stream(&self) -> u32 {
        (self.runs.len() - 1) as u32
    }

    /// Returns a match that is long enough, around the chunk at `off`.
    fn matched<T: Text>(&mut self, off: u64, hash: ChunkHash, text: &mut T) -> Result<Option<Match>, T::Error> {
        let Some((source, room)) = self.nominated(off, hash) else { return Ok(None) };
        if self.is_too_short(source, off) {
            return Ok(None);
        }
        let places = [source, Place { stream: self.stream(), off }];
        let mut ahead = self.extender.forward(text, places, room.ahead)?;
        if ahead == 0 {
            return Ok(None);
        }
        let mut back = 0;
        if ahead + room.back >= self.min_match {
            back = self.extender.backward(text, places, room.back)?;
        }
        if room.is_open {
            ahead = ahead.min(off - source.off - back);
        }
        let source = Place { off: source.off - back, ..source };
        if ahead + back < self.min_match || !text.gains(source, ahead + back)? {
            let source = Place { off: source.off + back, ..source };
            self.too_short = (!room.is_open).then_some(TooShort { source, target: off, end: off + ahead });
            return Ok(None);
        }
        Ok(Some(Match { source, target: off - back..off + ahead }))
    }

    /// Returns the first place of the chunk at `off`, if there is room for a match that is long enough around both.
    fn nominated(&self, off: u64, hash: ChunkHash) -> Option<(Place, Room)> {
        let source = self.index.find(hash)?;
        let room = self.room(source, off).filter(|room| room.ahead + room.back >= self.min_match)?;
        Some((source, room))
    }

    /// Returns the room to extend a match of the stored `source` and of the current stream at `off`.
    fn room(&self, source: Place, off: u64) -> Option<Room> {
        // Hashes distinguish groups, but not reliably.
        if self.groups[source.stream as usize] != self.groups[self.stream() as usize] {
            return None;
        }
        let is_open = source.stream == self.stream() && source.off >= self.pos;
        let stored = if is_open { self.pos..off } else { self.runs.stored_at(source)? };
        let ahead = (stored.end - source.off).min(self.len - off);
        let back = (source.off - stored.start).min(off - self.pos);
        // In the open run, what the target gains at its start the source loses at its end: the target must not
        // reach it.
        let back = if is_open { back.min((off - source.off) / 2) } else { back };
        Some(Room { ahead, back, is_open })
    }

    /// Returns whether the chunk lies in a match that was too short before. Not used for sources in the open run,
    /// which grows.
    fn is_too_short(&self, source: Place, target: u64) -> bool {
        self.too_short.is_some_and(|known| {
            let same_distance = target.wrapping_sub(known.target) == source.off.wrapping_sub(known.source.off);
            source.stream == known.source.stream && same_distance && (known.target..known.end).contains(&target)
        })
    }

    /// Makes a match a reference.
    fn refer(&mut self, found: Match) {
        let Match { source, target } = found;
        self.store(target.start);
        let len = target.end - target.start;
        if !self.join(source, &target) {
            self.runs.push(Run { start: target.start, len, kind: RunKind::Ref(source) });
        }
        self.pos = target.end;
        self.stats.matched_bytes += len;
    }

    /// Stores all text from `pos` up to `end`.
    fn store(&mut self, end: u64) {
        self.runs.push(Run { start: self.pos, len: end - self.pos, kind: RunKind::Stored });
        self.pos = end;
    }

    /// Lengthens the Ref before a match, if one continues the other. Then both lie in one Stored run: between two of
    /// these there is always a Ref.
    fn join(&mut self, source: Place, target: &Range<u64>) -> bool {
        let first = self.runs.firsts[self.stream() as usize].max(self.runs.sealed);
        let Some(run) = self.runs.runs[first..].last_mut() else { return false };
        let RunKind::Ref(before) = run.kind else { return false };
        let continued = Place { off: before.off + run.len, ..before };
        let joins = run.end() == target.start && continued == source;
        if joins {
            run.len += target.end - target.start;
        }
        joins
    }
}

#[cfg(test)]
pub(crate) mod tests;

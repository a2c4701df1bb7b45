//! Parts of files that occur several times: found in plain text, while it is in memory.
//!
//! The *streams* of an image are the runs of data between the holes of its compressed files, and the windows of the
//! packed stream, in the order in which they are stored. Text arrives in portions; some portions form a *segment*,
//! which is decided as a whole. Their chunks indicate equal text. This module decides which text is a reference to
//! earlier text, and where text of the segment is cut so that a reference can name it. Text of earlier segments is
//! cut when all data has been read; a match must save more for that.

use kiln_codec::probe;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use crate::error::BuildError;
use crate::format::Format;
use crate::plan::dedupe::matching::{Chunk, MatchStats, Matcher, Place, Ref, Text};
use crate::plan::dedupe::split_points::{IndexRules, Portion, StoredPart, plan_parts};
use crate::plan::file::{ReadCompat, read_compat};
use crate::plan::fragments::FragmentStream;
use crate::plan::text::TextSource;

/// Bytes of a match that are compressed to estimate its worth.
const SAMPLE_LEN: u64 = 64 << 10;
/// Bytes that an lcluster takes more in the full index than in the compact one, by the measure of
/// [`probe::estimated_len`].
const FULL_INDEX_COST: u64 = 10;
/// Eighths of the least saving that a match must save if stored text must be decoded and encoded again for it. Between
/// 8 and 16, this value makes the smallest image of one system tree; 16 that of one source tree, by a thousandth.
const LATE_CUT_COST: u64 = 11;

/// Text that is no longer in memory.
pub(crate) trait OlderText {
    /// Fills `buf` with text that was stored, from byte `off` of its source on.
    ///
    /// # Errors
    /// Text that cannot be read.
    fn read(&mut self, source: TextSource, off: u64, buf: &mut [u8], packed: &FragmentStream)
    -> Result<(), BuildError>;

    /// Prepares text that will probably be read, given its places. Returns the number of places, from the first on,
    /// for which that was done: at least one.
    ///
    /// # Errors
    /// Text that cannot be read.
    fn prepare(&mut self, places: &[(TextSource, u64)]) -> Result<usize, BuildError> {
        Ok(places.len())
    }
}

/// A stream: some bytes of a file, or of the packed stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TextRun {
    /// Source of its text.
    pub stream: TextSource,
    /// Its first byte there.
    pub start: u64,
    /// Its length in bytes, so far.
    pub len: u64,
    /// Only streams of the same group share text: they are read alike.
    pub group: u32,
}

/// Text to be matched.
pub(crate) struct NewText {
    /// Source of the text.
    pub source: TextSource,
    /// Its bytes there.
    pub range: Range<u64>,
    /// The text.
    pub text: Arc<Vec<u8>>,
    /// Its chunks.
    pub chunks: Box<[Chunk]>,
    /// Its compression, as readers see it.
    pub compat: ReadCompat,
    /// It begins a stream.
    pub begins_stream: bool,
    /// It ends its stream.
    pub ends_stream: bool,
}

/// Division of a portion.
pub(crate) enum Cut {
    /// All of it, and nothing refers to it so far.
    Whole,
    /// These ranges of its source, each filled on its own, and whether each ends its stream.
    Parts(Vec<(Range<u64>, bool)>),
}

/// All streams, and the references between them.
pub(crate) struct Deduplication {
    /// Streams by number.
    pub sources: Vec<TextRun>,
    /// References, in order of targets.
    pub refs: Vec<Ref>,
    /// Limits on extents from the maps of files.
    pub rules: IndexRules,
    /// Counts of matches.
    pub stats: MatchStats,
    /// Number of first streams that are not cut late.
    ordered_streams: u32,
    /// Sources that have, or are the sources of, references.
    shared: HashSet<TextSource>,
}

impl Deduplication {
    /// Returns true if a file has bytes of others, or others have bytes of it.
    pub(crate) fn is_shared(&self, source: TextSource) -> bool {
        self.shared.contains(&source)
    }

    /// Returns the source of a place in a stream: file or packed stream, and offset.
    pub(crate) fn locate(&self, place: Place) -> (TextSource, u64) {
        locate(&self.sources, place)
    }

    /// Returns true if the source of a Ref must not be cut any more.
    pub(crate) fn is_fixed(&self, one: &Ref) -> bool {
        one.source.stream < self.ordered_streams
    }

    /// Returns true if a Ref ends its stream.
    pub(crate) fn ends_stream(&self, one: &Ref) -> bool {
        one.end() == self.sources[one.target.stream as usize].len
    }
}

fn locate(sources: &[TextRun], place: Place) -> (TextSource, u64) {
    let source = &sources[place.stream as usize];
    (source.stream, source.start + place.off)
}

/// Decides about text as it arrives.
pub(crate) struct PartFinder<'a> {
    format: &'a Format,
    matcher: Matcher,
    sources: Vec<TextRun>,
    refs: Vec<Ref>,
    rules: IndexRules,
    /// Compression of each group.
    groups: Vec<ReadCompat>,
    /// Portions of the segment, with their text.
    segment: Vec<(Portion, Arc<Vec<u8>>)>,
    /// Flag: the last stream goes on.
    is_open: bool,
    worth: Worth,
    shared: HashSet<TextSource>,
    /// Streams that are not cut late: all of what comes first in the image must stay there.
    ordered_streams: u32,
}

/// Savings, and the prices to be paid for them.
struct Worth {
    /// Least estimated bytes for which text is cut.
    min_saving: u64,
    /// Bytes that an lcluster of a full index costs, 0 if there is no such index.
    lcluster_cost: u64,
    block_len: u64,
    /// Estimated bytes that matches of a source would save, whether they were taken or not.
    potential: HashMap<TextSource, u64>,
    /// Sources that have the full index.
    has_full_index: HashSet<TextSource>,
}

impl Worth {
    /// Adds the savings of a match to those of `source`, and returns true if these are worth a full index for `len`
    /// bytes of it. From then on they are.
    fn pays_index(&mut self, source: TextSource, saved: u64, len: u64) -> bool {
        if self.lcluster_cost == 0 || self.has_full_index.contains(&source) {
            return true;
        }
        let potential = self.potential.entry(source).or_default();
        *potential += saved;
        let pays = *potential >= len.div_ceil(self.block_len) * self.lcluster_cost;
        if pays {
            self.has_full_index.insert(source);
        }
        pays
    }
}

impl<'a> PartFinder<'a> {
    /// Creates a finder without text. `has_order` tells whether streams come that must stay first in the image, up to
    /// [`PartFinder::end_order`].
    pub(crate) fn new(format: &'a Format, has_order: bool) -> Self {
        let encoded = format.compression.encoded_extents;
        let rules = if encoded { IndexRules::encoded_extents() } else { IndexRules::lclusters(format.block_bits) };
        Self {
            format,
            matcher: Matcher::new(format.min_match(), format.work.index_budget()),
            sources: Vec::new(),
            refs: Vec::new(),
            rules,
            // Packed files share text with those that are compressed as they would be alone, in whatever pclusters.
            groups: vec![read_compat(format.compression.spec)],
            segment: Vec::new(),
            is_open: false,
            worth: Worth {
                min_saving: format.min_saving(),
                lcluster_cost: if encoded { 0 } else { FULL_INDEX_COST },
                block_len: format.block_bits.len(),
                potential: HashMap::new(),
                has_full_index: HashSet::new(),
            },
            shared: HashSet::new(),
            ordered_streams: if has_order { u32::MAX } else { 0 },
        }
    }

    /// Ends the streams that come first in the image: their pclusters are not cut any more.
    pub(crate) fn end_order(&mut self) {
        self.ordered_streams = self.sources.len() as u32;
    }

    fn group(&mut self, compat: ReadCompat) -> u32 {
        let group = self.groups.iter().position(|group| *group == compat).unwrap_or(self.groups.len());
        if group == self.groups.len() {
            self.groups.push(compat);
        }
        group as u32
    }

    /// Matches text against all before it.
    ///
    /// # Errors
    /// Older text that cannot be read.
    pub(crate) fn push(
        &mut self,
        new: NewText,
        (older, packed): (&mut dyn OlderText, &FragmentStream),
    ) -> Result<(), BuildError> {
        let NewText { source, range, text, chunks, compat, begins_stream, ends_stream } = new;
        if begins_stream {
            let group = self.group(compat);
            self.matcher.begin(group);
            self.sources.push(TextRun { stream: source, start: range.start, len: 0, group });
        }
        let number = self.sources.len() as u32 - 1;
        let run = &mut self.sources[number as usize];
        let portion = Portion { stream: number, range: run.len..run.len + (range.end - range.start), ends_stream };
        run.len = portion.range.end;
        self.matcher.grow(range.end - range.start);
        self.segment.push((portion, text));
        let mut text = SegmentText {
            segment: &self.segment,
            sources: &self.sources,
            worth: &mut self.worth,
            ordered_streams: self.ordered_streams,
            saved: 0,
            older,
            packed,
        };
        self.matcher.push(&chunks, &mut text)?;
        let saved = text.saved;
        self.matcher.settle();
        let so_far = self.sources[number as usize].start + self.sources[number as usize].len;
        if saved > 0 && !self.worth.pays_index(source, saved, so_far) {
            self.matcher.forget_refs(number);
        }
        self.is_open = !ends_stream;
        Ok(())
    }

    /// Decides about the segment, whose text can be dropped then. Returns what is stored of each portion, in order.
    pub(crate) fn finish_segment(&mut self) -> Vec<Cut> {
        let segment = std::mem::take(&mut self.segment);
        let Some((first, _)) = segment.first() else { return Vec::new() };
        let portions: Vec<Portion> = segment.iter().map(|(portion, _)| portion.clone()).collect();
        let refs = self.matcher.runs().unsealed_refs(first.stream);
        self.matcher.seal();
        let (refs, parts) = plan_parts(refs, &portions, self.rules);
        for one in &refs {
            self.shared.insert(locate(&self.sources, one.source).0);
            self.shared.insert(locate(&self.sources, one.target).0);
        }
        for one in refs {
            self.add(one);
        }
        let cut = |(portion, parts): (&Portion, Vec<StoredPart>)| {
            let TextRun { stream: source, start, .. } = self.sources[portion.stream as usize];
            match &parts[..] {
                [all] if all.range == portion.range && !self.shared.contains(&source) => Cut::Whole,
                _ => {
                    let range = |part: StoredPart| (start + part.range.start..start + part.range.end, part.ends_stream);
                    Cut::Parts(parts.into_iter().map(range).collect())
                }
            }
        };
        portions.iter().zip(parts).map(cut).collect()
    }

    /// Adds a Ref, which may continue the last one.
    fn add(&mut self, one: Ref) {
        if let Some(last) = self.refs.last_mut() {
            let continues = |from: Place, len: u64, next: Place| Place { off: from.off + len, ..from } == next;
            if continues(last.target, last.len, one.target) && continues(last.source, last.len, one.source) {
                last.len += one.len;
                return;
            }
        }
        self.refs.push(one);
    }

    /// Returns all decisions.
    pub(crate) fn finish(self) -> Deduplication {
        let stats = self.matcher.stats();
        let Self { sources, refs, rules, ordered_streams, shared, .. } = self;
        Deduplication { sources, refs, rules, stats, ordered_streams, shared }
    }

    /// Returns true if text of this length takes part.
    pub(crate) fn takes(&self, len: u64) -> bool {
        len >= self.format.min_match()
    }
}

/// The text of all streams: that of the segment from memory, other text from where it is stored.
struct SegmentText<'a> {
    segment: &'a [(Portion, Arc<Vec<u8>>)],
    sources: &'a [TextRun],
    worth: &'a mut Worth,
    /// Streams that are not cut late.
    ordered_streams: u32,
    /// Estimated bytes of all matches that are worth a cut.
    saved: u64,
    older: &'a mut dyn OlderText,
    packed: &'a FragmentStream,
}

impl SegmentText<'_> {
    /// Returns the first place of the segment.
    fn first(&self) -> Option<Place> {
        self.segment.first().map(|(portion, _)| portion.start())
    }

    /// Returns text of the segment from a place on, up to the end of a portion.
    fn held(&self, place: Place) -> Option<&[u8]> {
        let at = self.segment.partition_point(|(portion, _)| portion.start() <= place).checked_sub(1)?;
        let (portion, text) = &self.segment[at];
        let off = place.off.checked_sub(portion.range.start)?;
        (portion.stream == place.stream).then(|| text.get(off as usize..)).flatten().filter(|text| !text.is_empty())
    }
}

impl Text for SegmentText<'_> {
    type Error = BuildError;

    fn read(&mut self, stream: u32, mut off: u64, mut buf: &mut [u8]) -> Result<(), BuildError> {
        while !buf.is_empty() {
            let place = Place { stream, off };
            let len = match self.held(place) {
                Some(text) => {
                    let len = text.len().min(buf.len());
                    buf[..len].copy_from_slice(&text[..len]);
                    len
                }
                None => {
                    // Up to the segment.
                    let first = self.first().filter(|first| first.stream == stream && first.off > off);
                    let len = first.map_or(buf.len(), |first| buf.len().min((first.off - off) as usize));
                    let (source, at) = locate(self.sources, place);
                    self.older.read(source, at, &mut buf[..len], self.packed)?;
                    len
                }
            };
            (off, buf) = (off + len as u64, &mut buf[len..]);
        }
        Ok(())
    }

    fn prepare(&mut self, places: &[Place]) -> Result<usize, BuildError> {
        // Text of the segment is in memory.
        let first = self.first();
        let is_older = |at: &usize| first.is_none_or(|first| places[*at] < first);
        let older: Vec<usize> = (0..places.len()).filter(is_older).collect();
        if older.is_empty() {
            return Ok(places.len());
        }
        let located: Vec<_> = older.iter().map(|&at| locate(self.sources, places[at])).collect();
        let count = self.older.prepare(&located)?;
        Ok(older.get(count).copied().unwrap_or(places.len()))
    }

    /// Returns true if a reference pays: text that compresses well is worth less than the pclusters that are cut for
    /// it, and more if they must be encoded again.
    fn gains(&mut self, place: Place, len: u64) -> Result<bool, BuildError> {
        let mut sample = vec![0; len.min(SAMPLE_LEN) as usize];
        self.read(place.stream, place.off, &mut sample)?;
        let saved = probe::estimated_len(&sample) as u64 * len / sample.len() as u64;
        let is_cut_late = place.off > 0 && self.first().is_some_and(|first| place < first);
        let pays = if is_cut_late {
            let TextRun { stream: source, start, len, .. } = self.sources[place.stream as usize];
            let len = if source == TextSource::Fragments { self.packed.len() } else { start + len };
            place.stream >= self.ordered_streams
                && 8 * saved >= LATE_CUT_COST * self.worth.min_saving
                && self.worth.pays_index(source, saved, len)
        } else {
            saved >= self.worth.min_saving
        };
        self.saved += if pays { saved } else { 0 };
        Ok(pays)
    }
}

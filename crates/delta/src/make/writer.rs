//! The new image front to back, as items of a patch.

use kiln_builder::RefillForm;
use kiln_read::{Image, ReadAt};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::sync::atomic::AtomicBool;

use crate::apply::check_stop;
use crate::error::{DeltaError, Side as ErrorSide};
use crate::format::body::{BodyWriter, Item, RAW_MAX_LEN};
use crate::format::header::TextFile;
use crate::make::chunks::{ChunkIndex, chunks};
use crate::make::made::Made;
use crate::make::map::{ImageMap, Span, Stored};
use crate::make::matcher::{Matcher, Part};
use crate::make::prover::{Proof, Prover};
use crate::make::region::{Haystack, OldText, RAW, Region, merged};
use crate::make::stored::StoredIndex;
use crate::make::texts::TextTable;

/// Text of the old image that one text is compared with, at most, in bytes.
const HAY_MAX_LEN: u64 = 32 << 20;
/// Text around what is at the same place in a file, in bytes.
const AROUND: u64 = 2 << 20;
/// Text around a chunk that both images have, in bytes.
const CHUNK_AROUND: u64 = 8 << 10;
/// Regions that are not further apart become one, in bytes.
const REGION_GAP: u64 = 16 << 10;
/// Nothing is looked for that resembles less than this many bytes.
const MATCHED_MIN_LEN: usize = 64;

/// One of the images.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    pub source: &'a dyn ReadAt,
    pub image: &'a Image,
    pub map: &'a ImageMap,
}

/// The body of a patch, and what its header says about it.
pub(crate) struct Written {
    pub texts: Vec<TextFile>,
    pub forms: Vec<RefillForm>,
    pub made: Made,
}

/// Makes the body of a patch.
pub(crate) struct Maker<'a> {
    old: OldText<'a>,
    new: Side<'a>,
    stored: StoredIndex,
    chunks: ChunkIndex,
    old_gaps: Vec<Range<u64>>,
    prover: Option<Prover<'a>>,
    matcher: Matcher,
    hay: Haystack,
    texts: TextTable,
    body: BodyWriter<BufWriter<&'a File>>,
    /// Stored bytes of the old image that are copied next.
    pending: Option<(u64, u64)>,
    made: Made,
    stop: &'a AtomicBool,
}

impl<'a> Maker<'a> {
    pub(crate) fn new(
        old: Side<'a>,
        new: Side<'a>,
        body: &'a File,
        portable: bool,
        stop: &'a AtomicBool,
    ) -> Result<Self, DeltaError> {
        let check = || check_stop(stop);
        let stored = StoredIndex::new(old.source, old.map, &check)?;
        // Encoded bytes resemble nothing: text is of use where it is not carried encoded.
        let chunks = ChunkIndex::new(old.image, old.map, &check)?;
        let body = BodyWriter::new(BufWriter::new(body)).map_err(write_failed)?;
        Ok(Self {
            old: OldText { source: old.source, image: old.image, map: old.map },
            new,
            stored,
            chunks,
            old_gaps: old.map.gaps(),
            prover: (!portable).then(|| Prover::new(new.image, new.source, new.map)),
            matcher: Matcher::default(),
            hay: Haystack::default(),
            texts: TextTable::new(old.map.len),
            body,
            pending: None,
            made: Made::default(),
            stop,
        })
    }

    pub(crate) fn run(mut self) -> Result<Written, DeltaError> {
        let spans: &'a [Span] = &self.new.map.spans;
        let (mut at, mut idx) = (0, 0);
        while idx < spans.len() {
            check_stop(self.stop)?;
            self.gap(at..spans[idx].pa)?;
            let follows = |pair: &[Span]| {
                let (a, b) = (&pair[0], &pair[1]);
                let is_raw = [a, b].map(|span| span.stored == Stored::Raw);
                a.file == b.file && a.bytes().end == b.pa && a.text_end() == b.la && is_raw[0] == is_raw[1]
            };
            let count = spans[idx..].windows(2).take_while(|pair| follows(pair)).count() + 1;
            let run = &spans[idx..idx + count];
            self.spans(run)?;
            at = run[count - 1].bytes().end;
            idx += count;
        }
        self.gap(at..self.new.map.len)?;
        self.flush()?;
        let forms = self.prover.map_or_else(Vec::new, |prover| prover.forms);
        self.body.finish().and_then(|mut out| out.flush()).map_err(write_failed)?;
        Ok(Written { texts: self.texts.files, forms, made: self.made })
    }

    /// Spans of one file that lie one behind the other.
    fn spans(&mut self, run: &[Span]) -> Result<(), DeltaError> {
        let mut found = Vec::with_capacity(run.len());
        for span in run {
            found.push(self.stored.find(span, self.new.source, self.old.source)?);
        }
        let mut at = 0;
        while at < run.len() {
            check_stop(self.stop)?;
            let algorithm = run[at..].iter().find_map(|span| match span.stored {
                Stored::Encoded(algorithm) => Some(algorithm),
                _ => None,
            });
            let (Some(prover), Some(algorithm)) = (&mut self.prover, algorithm) else {
                self.span(&run[at], found[at].as_deref())?;
                at += 1;
                continue;
            };
            // What the old image has, too, is copied, as far as filling may begin behind it.
            let there = found[at..].iter().take_while(|found| found.is_some()).count();
            let skipped = match () {
                () if at + there == run.len() || prover.starts_anywhere(algorithm) => there,
                () => run[at..at + there].iter().rposition(|span| prover.may_end_with(span)).map_or(0, |idx| idx + 1),
            };
            if skipped > 0 {
                for idx in at..at + skipped {
                    self.span(&run[idx], found[idx].as_deref())?;
                }
                at += skipped;
                continue;
            }
            match prover.prove(&run[at..])? {
                Some(proof) if found[at..at + proof.spans].iter().all(Option::is_some) => {
                    for idx in at..at + proof.spans {
                        self.span(&run[idx], found[idx].as_deref())?;
                    }
                    at += proof.spans;
                }
                Some(proof) => {
                    self.unit(&run[at..at + proof.spans], &proof)?;
                    at += proof.spans;
                }
                None => {
                    self.span(&run[at], found[at].as_deref())?;
                    at += 1;
                }
            }
        }
        Ok(())
    }

    /// A span as it is stored.
    fn span(&mut self, span: &Span, found: Option<&[(u64, u64)]>) -> Result<(), DeltaError> {
        if let Some(found) = found {
            return found.iter().try_for_each(|(pos, len)| self.copy(*pos, *len));
        }
        let regions = match span.stored {
            Stored::Encoded(_) => {
                self.made.carried += span.plen;
                None
            }
            Stored::Plain | Stored::Raw => Some(span.la..span.text_end()),
        };
        let mut at = 0;
        while at < span.plen {
            let len = RAW_MAX_LEN.min(span.plen - at);
            let bytes = self.read_new(span.pa + at, len)?;
            let regions = match &regions {
                Some(text) => {
                    let part = text.start + at..(text.start + at + len).min(text.end.max(text.start + at));
                    self.regions_of(span.file, part, &bytes)
                }
                None => Vec::new(),
            };
            self.flush()?;
            self.body.item(Item::Raw { len }).map_err(write_failed)?;
            self.text(&bytes, regions)?;
            at += len;
        }
        Ok(())
    }

    /// Spans that are encoded again.
    fn unit(&mut self, spans: &[Span], proof: &Proof) -> Result<(), DeltaError> {
        let file = spans[0].file;
        let inode = &self.new.map.files[file as usize].inode;
        let mut text = vec![0; (proof.text.end - proof.text.start) as usize];
        let read = self.new.image.read_at(inode, &mut text, proof.text.start);
        read.map_err(DeltaError::image(ErrorSide::New))?;
        let regions = self.regions_of(file, proof.text.clone(), &text);
        self.flush()?;
        let stored_len = spans.iter().map(|span| span.plen).sum();
        let item = Item::Unit { encoder: proof.encoder, text_len: text.len() as u64, stored_len, end: proof.end };
        self.body.item(item).map_err(write_failed)?;
        self.made.encoded += stored_len;
        self.text(&text, regions)
    }

    /// Bytes that are no file's.
    fn gap(&mut self, range: Range<u64>) -> Result<(), DeltaError> {
        let mut at = range.start;
        while at < range.end {
            check_stop(self.stop)?;
            let len = RAW_MAX_LEN.min(range.end - at);
            let bytes = self.read_new(at, len)?;
            let regions = if len as usize >= MATCHED_MIN_LEN { self.gap_regions(at, len) } else { Vec::new() };
            self.flush()?;
            self.body.item(Item::Raw { len }).map_err(write_failed)?;
            self.text(&bytes, regions)?;
            at += len;
        }
        Ok(())
    }

    /// Metadata of the old image for that of the new one: the whole, or what is about as far from the end.
    fn gap_regions(&self, at: u64, len: u64) -> Vec<Region> {
        let old_len = self.old.map.len;
        let whole = |range: &Range<u64>| Region { source: RAW, range: range.clone() };
        let total: u64 = self.old_gaps.iter().map(|range| range.end - range.start).sum();
        let large = self.old_gaps.iter().filter(|range| range.end - range.start >= MATCHED_MIN_LEN as u64);
        if total <= HAY_MAX_LEN {
            return merged(large.map(whole).collect(), 0, HAY_MAX_LEN);
        }
        // Images end with their metadata.
        let from_end = self.new.map.len - at;
        let middle = old_len.saturating_sub(from_end) + len / 2;
        let reach = middle.saturating_sub(HAY_MAX_LEN / 2)..middle + HAY_MAX_LEN / 2;
        let clipped = large.map(|range| range.start.max(reach.start)..range.end.min(reach.end));
        merged(clipped.filter(|range| range.start < range.end).map(|range| whole(&range)).collect(), 0, HAY_MAX_LEN)
    }

    /// What may resemble a text of a file of the new image: the same file of the old one, and what has the same chunks.
    fn regions_of(&self, file: u32, range: Range<u64>, text: &[u8]) -> Vec<Region> {
        let mut regions = Vec::new();
        if self.new.map.packed == Some(file) {
            let fragments = &self.new.map.fragments;
            let first = fragments.partition_point(|fragment| fragment.off < range.start).saturating_sub(1);
            let here = fragments[first..].iter().take_while(|fragment| fragment.off < range.end);
            for fragment in here {
                let from = range.start.saturating_sub(fragment.off).min(fragment.len);
                let to = (range.end - fragment.off.min(range.end)).min(fragment.len);
                if from < to {
                    self.same_file(fragment.file, fragment.la + from..fragment.la + to, 4096, &mut regions);
                }
            }
        } else {
            self.same_file(file, range, AROUND, &mut regions);
        }
        for chunk in chunks(text) {
            if let Some(place) = self.chunks.find(&text[chunk.clone()]) {
                let start = place.off.saturating_sub(CHUNK_AROUND);
                let end = (place.off + chunk.len() as u64 + CHUNK_AROUND).min(self.old.len(place.source));
                regions.push(Region { source: place.source, range: start..end });
            }
        }
        merged(regions, REGION_GAP, HAY_MAX_LEN)
    }

    /// The part of the same file of the old image, as it is stored there, and what is around it.
    fn same_file(&self, file: u32, range: Range<u64>, around: u64, regions: &mut Vec<Region>) {
        let old = self.old.map;
        let Some(idx) = old.counterpart(&self.new.map.files[file as usize]) else { return };
        let there = &old.files[idx as usize];
        let size = there.inode.size();
        let (start, end) = (range.start.saturating_sub(around).min(size), range.end.saturating_add(around).min(size));
        let (source, start, end) = match (there.tail, old.packed) {
            // Read where it is stored, together with its neighbours.
            (crate::make::map::Tail::Fragment(off), Some(packed)) if there.in_spans == 0 => {
                (packed, off + start, off + end)
            }
            _ => (idx, start, end),
        };
        if start < end {
            regions.push(Region { source, range: start..end });
        }
    }

    /// What makes a text, as pieces.
    fn text(&mut self, text: &[u8], regions: Vec<Region>) -> Result<(), DeltaError> {
        if regions.is_empty() {
            return self.literal(text);
        }
        self.old.load(regions, &mut self.hay)?;
        let parts = self.matcher.find(text, &self.hay);
        let (mut at, mut differences) = (0, Vec::new());
        for part in parts {
            match part {
                Part::New { len } => {
                    self.literal(&text[at..at + len])?;
                    at += len;
                }
                Part::Like { at: from, len } => {
                    let (new, old) = (&text[at..at + len], from..from + len);
                    match self.texts.position(self.hay.place(from), self.old.map) {
                        Some(pos) if *new == self.hay.bytes[old.clone()] => {
                            self.body.copy(pos, len).map_err(write_failed)?;
                        }
                        Some(pos) => {
                            let pairs = new.iter().zip(&self.hay.bytes[old]);
                            differences.clear();
                            differences.extend(pairs.map(|(new, old)| new.wrapping_sub(*old)));
                            self.body.add(pos, &differences).map_err(write_failed)?;
                        }
                        None => self.literal(new)?,
                    }
                    at += len;
                }
            }
        }
        Ok(())
    }

    fn literal(&mut self, bytes: &[u8]) -> Result<(), DeltaError> {
        self.made.literal += bytes.len() as u64;
        self.body.literal(bytes).map_err(write_failed)
    }

    /// Stored bytes of the old image, later: what follows may join them.
    fn copy(&mut self, pos: u64, len: u64) -> Result<(), DeltaError> {
        self.made.copied += len;
        match &mut self.pending {
            Some((start, pending)) if *start + *pending == pos => *pending += len,
            _ => {
                self.flush()?;
                self.pending = Some((pos, len));
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DeltaError> {
        match self.pending.take() {
            Some((pos, len)) => self.body.item(Item::Old { pos, len }).map_err(write_failed),
            None => Ok(()),
        }
    }

    fn read_new(&self, off: u64, len: u64) -> Result<Vec<u8>, DeltaError> {
        let mut bytes = vec![0; len as usize];
        let failed = |source| DeltaError::ImageBytes { side: ErrorSide::New, off, len, source };
        self.new.source.read_exact_at(&mut bytes, off).map_err(failed)?;
        Ok(bytes)
    }
}

fn write_failed(source: std::io::Error) -> DeltaError {
    DeltaError::Write { action: "write the patch's body", source }
}

//! Description of the new image, front to back, as items of a patch.

use kiln_builder::RefillForm;
use kiln_read::{Image, ReadAt};
use std::fs::File;
use std::ops::Range;
use std::sync::atomic::AtomicBool;

use crate::error::{DeltaError, Side as ErrorSide};
use crate::format::body::{Item, RAW_MAX_LEN};
use crate::format::header::TextFile;
use crate::make::ahead::Ahead;
use crate::make::chunks::ChunkIndex;
use crate::make::group::Group;
use crate::make::made::{MakeOptions, MakeReport};
use crate::make::map::{ImageMap, Span, SpanStorage};
use crate::make::neighbours::{self, Neighbours};
use crate::make::prover::{Proof, Prover};
use crate::make::region::OldText;
use crate::make::stored::StoredIndex;
use crate::stop::check_stop;

/// Maximum number of bytes of stored extents' text that are compared with the old image, to
/// estimate how much of it is there.
const COMPARED_MAX_LEN: u64 = 64 << 20;

/// One of the images.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    pub source: &'a dyn ReadAt,
    pub image: &'a Image,
    pub map: &'a ImageMap,
}

/// Body of a patch, and the parts of its header that it determines.
pub(crate) struct Written {
    pub texts: Vec<TextFile>,
    pub forms: Vec<RefillForm>,
    pub made: MakeReport,
}

/// Writer of the body of a patch.
pub(crate) struct Maker<'a> {
    old: Side<'a>,
    new: Side<'a>,
    stored: StoredIndex,
    neighbours: Neighbours<'a>,
    prover: Option<Prover<'a>>,
    group: Group<'a>,
    stop: &'a AtomicBool,
}

impl<'a> Maker<'a> {
    pub(crate) fn new(
        old: Side<'a>,
        new: Side<'a>,
        body: &'a File,
        options: &MakeOptions,
        stop: &'a AtomicBool,
    ) -> Result<Self, DeltaError> {
        let check = || check_stop(stop);
        let stored = StoredIndex::new(old.source, old.map, &check)?;
        let chunks = ChunkIndex::new(old.image, old.map, &check)?;
        let metadata = neighbours::metadata(old.map);
        let neighbours = Neighbours::new(old.map, new.map, chunks, &metadata);
        let search_cost_max = options.search_cost_max;
        let prover = (!options.portable).then(|| Prover::new(new.image, new.source, new.map, search_cost_max));
        let group = Group::new(OldText { source: old.source, image: old.image, map: old.map, metadata }, body)?;
        Ok(Self { old, new, stored, neighbours, prover, group, stop })
    }

    /// Describes the whole new image. Calls `told` with the number of bytes done.
    pub(crate) fn run(mut self, told: &dyn Fn(u64)) -> Result<Written, DeltaError> {
        let spans: &'a [Span] = &self.new.map.spans;
        let (mut at, mut idx) = (0, 0);
        while idx < spans.len() {
            check_stop(self.stop)?;
            told(at);
            self.gap(at..spans[idx].pa)?;
            let count = spans[idx..].windows(2).take_while(|pair| follows(&pair[0], &pair[1])).count() + 1;
            let run = &spans[idx..idx + count];
            self.spans(run)?;
            at = run[count - 1].bytes().end;
            idx += count;
        }
        self.gap(at..self.new.map.len)?;
        told(self.new.map.len);
        let (forms, search_cost) =
            self.prover.map_or_else(Default::default, |prover| (prover.forms, prover.search_cost));
        let (texts, mut made) = self.group.finish()?;
        made.search_cost = search_cost;
        Ok(Written { texts, forms, made })
    }

    /// Writes contiguous spans of one file.
    fn spans(&mut self, run: &[Span]) -> Result<(), DeltaError> {
        let mut found = Vec::with_capacity(run.len());
        for span in run {
            found.push(self.stored.find(span, self.new.source, self.old.source)?);
        }
        let ahead = Ahead::new(run, |idx| found[idx].is_some(), self.prover.as_ref());
        let mut at = 0;
        while at < run.len() {
            check_stop(self.stop)?;
            let copied = ahead.copied(at);
            let proof = match (&mut self.prover, ahead.algorithm(at)) {
                (Some(prover), Some(algorithm)) if copied == 0 => prover.prove(&run[at..], algorithm)?,
                _ => None,
            };
            let count = match &proof {
                Some(proof) => proof.spans,
                None => copied.max(1),
            };
            match proof {
                Some(proof) if found[at..at + count].iter().any(Option::is_none) => {
                    self.unit(&run[at..at + count], &proof)?;
                }
                _ => {
                    for idx in at..at + count {
                        self.span(&run[idx], found[idx].as_deref())?;
                    }
                }
            }
            at += count;
        }
        Ok(())
    }

    /// Writes a span as it is stored.
    fn span(&mut self, span: &Span, found: Option<&[(u64, u64)]>) -> Result<(), DeltaError> {
        if let Some(found) = found {
            return found.iter().try_for_each(|(pos, len)| self.group.copy(*pos, *len));
        }
        if matches!(span.stored, SpanStorage::Encoded(_)) {
            self.compare(span)?;
        }
        let mut at = 0;
        while at < span.plen {
            let len = RAW_MAX_LEN.min(span.plen - at);
            let bytes = self.read_new(span.pa + at, len)?;
            let likely = match span.stored {
                SpanStorage::Encoded(_) | SpanStorage::Tail(_) => {
                    self.group.made.carried += len;
                    self.neighbours.of_carried(span)
                }
                SpanStorage::Plain | SpanStorage::Raw => {
                    let text = (span.la + at).min(span.text_end())..(span.la + at + len).min(span.text_end());
                    self.neighbours.of_text(span.file, text, &bytes)
                }
            };
            self.group.push(Item::Raw { len }, &bytes, likely)?;
            at += len;
        }
        Ok(())
    }

    /// Counts the text of a stored span that a build over the old image would have reused.
    fn compare(&mut self, span: &Span) -> Result<(), DeltaError> {
        if self.group.made.compared >= COMPARED_MAX_LEN {
            return Ok(());
        }
        let mut text = vec![0; span.llen.min(COMPARED_MAX_LEN) as usize];
        let inode = &self.new.map.files[span.file as usize].inode;
        let read = self.new.image.read_at(inode, &mut text, span.la).map_err(DeltaError::image(ErrorSide::New))?;
        self.group.made.compared += read as u64;
        self.group.made.known += self.neighbours.reused_len(span.file, span.la, &text[..read]);
        Ok(())
    }

    /// Writes spans that are encoded again.
    fn unit(&mut self, spans: &[Span], proof: &Proof) -> Result<(), DeltaError> {
        let file = spans[0].file;
        let inode = &self.new.map.files[file as usize].inode;
        let mut text = vec![0; (proof.text.end - proof.text.start) as usize];
        let read = self.new.image.read_at(inode, &mut text, proof.text.start);
        read.map_err(DeltaError::image(ErrorSide::New))?;
        let likely = self.neighbours.of_text(file, proof.text.clone(), &text);
        let stored_len = spans.iter().map(|span| span.plen).sum();
        let (encoder, text_len) = (proof.encoder, text.len() as u64);
        let item = match proof.room {
            Some(room) => Item::Tail { encoder, text_len, stored_len, room },
            None => Item::Unit { encoder, text_len, stored_len, end: proof.end },
        };
        self.group.made.encoded += stored_len;
        self.group.push(item, &text, likely)
    }

    /// Writes bytes that belong to no file.
    fn gap(&mut self, range: Range<u64>) -> Result<(), DeltaError> {
        let mut at = range.start;
        while at < range.end {
            check_stop(self.stop)?;
            let len = RAW_MAX_LEN.min(range.end - at);
            let bytes = self.read_new(at, len)?;
            let likely = self.neighbours.of_metadata(at, len);
            self.group.push(Item::Raw { len }, &bytes, likely)?;
            at += len;
        }
        Ok(())
    }

    fn read_new(&self, off: u64, len: u64) -> Result<Vec<u8>, DeltaError> {
        let mut bytes = vec![0; len as usize];
        let failed = |source| DeltaError::ImageBytes { side: ErrorSide::New, off, len, source };
        self.new.source.read_exact_at(&mut bytes, off).map_err(failed)?;
        Ok(bytes)
    }
}

/// Returns true if span `b` continues span `a` in its file and in the image.
fn follows(a: &Span, b: &Span) -> bool {
    let is_among_extents = |span: &Span| matches!(span.stored, SpanStorage::Encoded(_) | SpanStorage::Plain);
    let is_alike =
        is_among_extents(a) && is_among_extents(b) || a.stored == SpanStorage::Raw && b.stored == SpanStorage::Raw;
    a.file == b.file && a.bytes().end == b.pa && a.text_end() == b.la && is_alike
}

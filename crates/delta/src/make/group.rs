//! Groups of consecutive items, whose text is matched together.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;

use crate::error::DeltaError;
use crate::format::body::{GROUP_ITEMS_MAX, Item};
use crate::format::header::TextFile;
use crate::format::writer::BodyWriter;
use crate::make::made::MakeReport;
use crate::make::matcher::{Matcher, Part};
use crate::make::neighbours::Likely;
use crate::make::region::{Haystack, OldText, Region, first_of, merged};
use crate::make::texts::TextTable;

/// Maximum length in bytes of a group's text, unless it has one item.
const TEXT_LEN: usize = 4 << 20;
/// Maximum length in bytes of the old image's text that a group is compared with.
const HAY_MAX_LEN: u64 = 32 << 20;
/// Maximum gap in bytes between regions that are merged.
const REGION_GAP: u64 = 16 << 10;

/// The current group, and the body that it is written to.
pub(crate) struct Group<'a> {
    old: OldText<'a>,
    items: Vec<Item>,
    text: Vec<u8>,
    near: Vec<Region>,
    chunks: Vec<Region>,
    /// Ranges of the old image with similar metadata.
    metadata: Vec<Range<u64>>,
    matcher: Matcher,
    hay: Haystack,
    texts: TextTable,
    body: BodyWriter<BufWriter<&'a File>>,
    pub made: MakeReport,
}

impl<'a> Group<'a> {
    pub(crate) fn new(old: OldText<'a>, body: &'a File) -> Result<Self, DeltaError> {
        let texts = TextTable::new(old.map.len);
        let body = BodyWriter::new(BufWriter::new(body)).map_err(write_failed)?;
        let (items, text, near, chunks, metadata) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (matcher, hay, made) = (Matcher::default(), Haystack::default(), MakeReport::default());
        Ok(Self { old, items, text, near, chunks, metadata, matcher, hay, texts, body, made })
    }

    /// Adds stored bytes of the old image, which may extend the last item.
    pub(crate) fn copy(&mut self, pos: u64, len: u64) -> Result<(), DeltaError> {
        self.made.copied += len;
        match self.items.last_mut() {
            Some(Item::Old { pos: start, len: before }) if *start + *before == pos => *before += len,
            _ => self.add(Item::Old { pos, len })?,
        }
        Ok(())
    }

    /// Adds an item and its text.
    pub(crate) fn push(&mut self, item: Item, text: &[u8], likely: Likely) -> Result<(), DeltaError> {
        if !self.text.is_empty() && self.text.len() + text.len() > TEXT_LEN {
            self.flush()?;
        }
        self.add(item)?;
        self.text.extend_from_slice(text);
        self.near.extend(likely.near);
        self.chunks.extend(likely.chunks);
        // Padding between files would add the same metadata again and again.
        match (likely.metadata, self.metadata.last_mut()) {
            (Some(range), Some(last)) if (last.start..=last.end).contains(&range.start) => {
                last.end = last.end.max(range.end);
            }
            (range, _) => self.metadata.extend(range),
        }
        Ok(())
    }

    /// Writes the last group. Returns the files whose text is used, and the report.
    pub(crate) fn finish(mut self) -> Result<(Vec<TextFile>, MakeReport), DeltaError> {
        self.flush()?;
        self.body.finish().and_then(|mut out| out.flush()).map_err(write_failed)?;
        Ok((self.texts.files, self.made))
    }

    fn add(&mut self, item: Item) -> Result<(), DeltaError> {
        if self.items.len() == GROUP_ITEMS_MAX {
            self.flush()?;
        }
        self.items.push(item);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DeltaError> {
        if self.items.is_empty() {
            return Ok(());
        }
        self.body.group(&self.items).map_err(write_failed)?;
        self.items.clear();
        let text = std::mem::take(&mut self.text);
        let mut near = std::mem::take(&mut self.near);
        near.extend(self.metadata.drain(..).flat_map(|range| self.old.metadata_in(range)));
        let (mut regions, len) = first_of(merged(near, REGION_GAP), HAY_MAX_LEN);
        regions.extend(first_of(merged(std::mem::take(&mut self.chunks), REGION_GAP), HAY_MAX_LEN - len).0);
        self.pieces(&text, merged(regions, REGION_GAP))?;
        self.text = text;
        self.text.clear();
        Ok(())
    }

    /// Writes the pieces that make a text.
    fn pieces(&mut self, text: &[u8], regions: Vec<Region>) -> Result<(), DeltaError> {
        if regions.is_empty() {
            return self.literal(text);
        }
        self.old.load(regions, &mut self.hay)?;
        let (mut at, mut differences) = (0, Vec::new());
        for part in self.matcher.find(text, &self.hay) {
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
        if bytes.is_empty() {
            return Ok(());
        }
        self.made.literal += bytes.len() as u64;
        self.body.literal(bytes).map_err(write_failed)
    }
}

fn write_failed(source: std::io::Error) -> DeltaError {
    DeltaError::Write { action: "write the patch's body", source }
}

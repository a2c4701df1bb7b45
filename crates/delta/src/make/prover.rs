//! Search for the encoder that reproduces the new image's pclusters, verified by comparing bytes.
//!
//! The image itself reveals the algorithm, the window and the length of pclusters. The level is
//! found by filling one pcluster with each. A build cuts text at known places (multiples of a
//! segment's length, gaps), and at others that must be found: where filling begins to differ from
//! the stored bytes, text that was filled together ends nearby.

use kiln_builder::{RefillEnd, RefillForm, RefilledExtent, Refiller, Spec};
use kiln_codec::Method;
use kiln_format::Algorithm;
use kiln_read::{Image, ReadAt};
use std::ops::Range;

use crate::error::{DeltaError, Side};
use crate::make::map::{ImageMap, Span, SpanStorage, Tail};

/// Maximum number of encoders that are kept ready.
const READY_MAX: usize = 3;
/// Maximum number of searches over all levels that find nothing.
const SEARCHES_MAX: u32 = 12;
/// Cost of reading and comparing a byte of text, in picoseconds as [`Spec::cost`] counts.
const TEXT_COST: u64 = 2000;
/// Numbers of pclusters after the last correct one at which the text is tried to end.
const ENDS_TRIED: [usize; 3] = [1, 2, 0];
/// Maximum number of ends tried with one form.
const ENDS_MAX: usize = 8;

/// Pclusters that encoding reproduces.
#[derive(Clone, Debug)]
pub(crate) struct Proof {
    /// Number of spans.
    pub spans: usize,
    /// Index of the form.
    pub encoder: usize,
    /// Range of the file's text that is encoded; longer than the spans' text if the end of the text
    /// is stored elsewhere.
    pub text: Range<u64>,
    pub end: RefillEnd,
    /// Maximum length in bytes of the pcluster, if the text is encoded as a single one.
    pub room: Option<u64>,
}

/// Search for proofs of the new image.
pub(crate) struct Prover<'a> {
    image: &'a Image,
    source: &'a dyn ReadAt,
    map: &'a ImageMap,
    /// Forms that have reproduced pclusters, which are the encoders of the patch.
    pub forms: Vec<RefillForm>,
    ready: Vec<(RefillForm, Refiller)>,
    /// Per algorithm, the lengths of the longest pcluster and of the longest text of a pcluster in
    /// bytes.
    longest: [(u64, u64); Algorithm::ALL.len()],
    encoded_extents: bool,
    searches: u32,
    /// Limit on the cost of failed attempts, beyond the cost of successful ones, and both costs so
    /// far, in picoseconds as [`Spec::cost`] counts.
    search_cost_max: u64,
    pub search_cost: u64,
    proved_cost: u64,
}

/// Pclusters that filling must reproduce, and the stored bytes from the first of them on.
#[derive(Clone, Copy)]
struct ExpectedSpans<'a> {
    spans: &'a [Span],
    stored: &'a [u8],
    /// Cost of encoding a byte, in picoseconds as [`Spec::cost`] counts.
    cost: u64,
}

/// Extent to which filling was correct.
struct Attempt {
    spans: usize,
    is_whole: bool,
}

impl<'a> Prover<'a> {
    pub(crate) fn new(image: &'a Image, source: &'a dyn ReadAt, map: &'a ImageMap, search_cost_max: u64) -> Self {
        let mut longest = [(0, 0); Algorithm::ALL.len()];
        let block_bits = image.superblock().block_bits;
        let mut encoded_extents = false;
        for span in &map.spans {
            if let SpanStorage::Encoded(algorithm) = span.stored {
                let (plen, llen) = &mut longest[algorithm as usize];
                (*plen, *llen) = ((*plen).max(span.plen), (*llen).max(span.llen));
                encoded_extents |= block_bits.within(span.pa) != 0 || block_bits.within(span.plen) != 0;
            }
        }
        Self {
            image,
            source,
            map,
            forms: Vec::new(),
            ready: Vec::new(),
            longest,
            encoded_extents,
            searches: 0,
            search_cost_max,
            search_cost: 0,
            proved_cost: 0,
        }
    }

    /// Returns true if pclusters can be filled from any extent on, regardless of earlier ones.
    pub(crate) fn starts_anywhere(&self, algorithm: Algorithm) -> bool {
        self.encoded_extents || matches!(algorithm, Algorithm::Lz4 | Algorithm::Lzma)
    }

    /// Returns true if text may end with a span because it does not fill its pcluster.
    pub(crate) fn may_end_with(&self, span: &Span) -> bool {
        match span.stored {
            SpanStorage::Encoded(algorithm) => span.plen < self.longest[algorithm as usize].0,
            SpanStorage::Plain | SpanStorage::Raw | SpanStorage::Tail(_) => false,
        }
    }

    /// Returns a proof for the first of `spans`, which are contiguous in one file and in the image.
    /// `algorithm` is that of the first encoded span.
    pub(crate) fn prove(&mut self, spans: &[Span], algorithm: Algorithm) -> Result<Option<Proof>, DeltaError> {
        let known: Vec<RefillForm> =
            self.forms.iter().copied().filter(|form| form.spec.method.algorithm() == algorithm).collect();
        for form in known {
            if let Some(proof) = self.prove_by(spans, form)? {
                return Ok(Some(proof));
            }
        }
        if self.searches >= SEARCHES_MAX {
            return Ok(None);
        }
        self.searches += 1;
        for form in self.candidates(spans, algorithm) {
            if self.forms.contains(&form) {
                continue;
            }
            if let Some(proof) = self.prove_by(spans, form)? {
                self.searches -= 1;
                return Ok(Some(proof));
            }
        }
        Ok(None)
    }

    /// Returns true if the budget for failed attempts is spent.
    fn is_spent(&self) -> bool {
        self.search_cost > self.search_cost_max.saturating_add(self.proved_cost)
    }

    /// Returns forms with which the image may have been packed, the most likely first.
    fn candidates(&self, spans: &[Span], algorithm: Algorithm) -> Vec<RefillForm> {
        let here = spans.iter().filter(|span| span.stored == SpanStorage::Encoded(algorithm));
        let (image_plen, image_llen) = self.longest[algorithm as usize];
        let mut lens: Vec<u64> = match self.encoded_extents {
            true => vec![here.map(|span| span.llen).max().unwrap_or(0), image_llen],
            false => vec![here.map(|span| span.plen).max().unwrap_or(0), image_plen],
        };
        lens.reverse();
        lens.dedup();
        let cfgs = self.image.compr_cfgs();
        let window = match algorithm {
            Algorithm::Lz4 => None,
            Algorithm::Lzma => cfgs.lzma_dict_size,
            Algorithm::Deflate => cfgs.deflate_windowbits.map(|bits| 1 << bits.min(31)),
            Algorithm::Zstd => cfgs.zstd_windowlog.map(|log| 1 << log.min(31)),
        };
        let methods = Method::ALL.into_iter().filter(|method| method.algorithm() == algorithm);
        let ways = methods.flat_map(|method| {
            let default = method.default_level();
            let extra = method.info().extra_levels.clone().into_iter().flatten();
            let others = method.levels().chain(extra).filter(move |level| *level != default);
            std::iter::once(default).chain(others).map(move |level| (method, level))
        });
        let block_bits = self.image.superblock().block_bits;
        let mut forms = Vec::new();
        for (method, level) in ways {
            for len in &lens {
                let Ok(spec) = Spec::new(method, Some(level), (*len).min(u32::MAX.into()) as u32) else { continue };
                let windowed = window.and_then(|len| spec.with_window(len).ok());
                for spec in std::iter::once(spec).chain(windowed) {
                    let encoded_extents = self.encoded_extents;
                    forms.push(RefillForm { spec, block_bits, encoded_extents, extent_max_len: None });
                }
            }
        }
        forms
    }

    fn prove_by(&mut self, spans: &[Span], form: RefillForm) -> Result<Option<Proof>, DeltaError> {
        if self.is_spent() {
            return Ok(None);
        }
        let Some(mut refiller) = self.take(form)? else { return Ok(None) };
        let proof = self.prove_with(spans, form, &mut refiller);
        self.ready.insert(0, (form, refiller));
        self.ready.truncate(READY_MAX);
        let Some(mut proof) = proof? else { return Ok(None) };
        proof.encoder = self.forms.iter().position(|known| *known == form).unwrap_or_else(|| {
            self.forms.push(form);
            self.forms.len() - 1
        });
        self.proved_cost += (proof.text.end - proof.text.start) * form.spec.cost();
        Ok(Some(proof))
    }

    fn take(&mut self, form: RefillForm) -> Result<Option<Refiller>, DeltaError> {
        if let Some(idx) = self.ready.iter().position(|(ready, _)| *ready == form) {
            return Ok(Some(self.ready.remove(idx).1));
        }
        Ok(Refiller::new(form).ok())
    }

    fn prove_with(
        &mut self,
        spans: &[Span],
        form: RefillForm,
        refiller: &mut Refiller,
    ) -> Result<Option<Proof>, DeltaError> {
        let first = spans[0];
        if matches!(first.stored, SpanStorage::Tail(_)) {
            return self.prove_tail(&first, form, refiller);
        }
        let file = &self.map.files[first.file as usize];
        let segment = form.segment_len();
        // Text that is filled together ends a segment after its start, or at a multiple of the
        // segment length in the file. The rest of a file is at least two blocks.
        let rest = 2 * self.image.superblock().block_bits.len();
        let until = |limit: u64| {
            let count = spans.iter().take_while(|span| span.text_end() <= limit).count();
            let is_rest = spans.len() > count && spans[spans.len() - 1].text_end() < limit + rest;
            if is_rest { spans.len() } else { count }
        };
        let limit = first.la + segment;
        let count = until(limit);
        if count == 0 {
            return Ok(None);
        }
        let to_multiple = until((first.la / segment + 1) * segment);
        let spans = &spans[..count];
        let last = spans[count - 1];
        let (stored, tail) = (self.stored(spans)?, file.tail);
        // If the end of a whole file is stored elsewhere, it is part of the text.
        let is_all_spans = first.la == 0 && last.text_end() == file.in_spans;
        let is_whole = is_all_spans && file.inode.size() <= segment && !self.encoded_extents;
        let inline = || self.rooms(first.file).map(RefillEnd::Inline);
        let ends: Vec<RefillEnd> = match tail {
            _ if !is_whole => Vec::new(),
            Tail::Stored => [RefillEnd::Padded].into_iter().chain(inline()).chain([RefillEnd::Fragments]).collect(),
            Tail::Inline => inline().collect(),
            Tail::Fragment(_) => vec![RefillEnd::Fragments],
        };
        let mut right = 0;
        let text_len = file.inode.size().min(segment);
        let mut text = Vec::new();
        if !ends.is_empty() {
            text = self.text(first.file, first.la, text_len)?;
        }
        let cost = form.spec.cost();
        for end in ends {
            let attempt = self.attempt(refiller, &text, end, ExpectedSpans { spans, stored: &stored, cost })?;
            if attempt.is_whole {
                return Ok(Some(Proof { spans: count, encoder: 0, text: 0..text_len, end, room: None }));
            }
            right = right.max(attempt.spans);
        }
        let own_len = last.text_end() - first.la;
        if text.len() < own_len as usize {
            text = self.text(first.file, first.la, own_len)?;
        }
        // A pcluster that is not full ends the text, or precedes one that does not compress.
        let is_short = |span: &Span| span.plen < u64::from(form.spec.pcluster_len) && span.stored != SpanStorage::Plain;
        let mut counts = vec![to_multiple, count];
        if !self.encoded_extents {
            counts.insert(0, spans.iter().position(is_short).map_or(0, |idx| idx + 1));
        }
        let mut tried = Vec::new();
        while let Some(count) = counts.pop() {
            let is_enough = tried.len() >= ENDS_MAX || self.is_spent();
            if count == 0 || count > spans.len() || tried.contains(&count) || is_enough {
                continue;
            }
            tried.push(count);
            let len = (spans[count - 1].text_end() - first.la) as usize;
            for end in [RefillEnd::Padded, RefillEnd::Open] {
                let wanted = ExpectedSpans { spans: &spans[..count], stored: &stored, cost };
                let attempt = self.attempt(refiller, &text[..len], end, wanted)?;
                if attempt.is_whole {
                    let text = first.la..first.la + len as u64;
                    return Ok(Some(Proof { spans: count, encoder: 0, text, end, room: None }));
                }
                // The text ends near the last correct pcluster.
                if attempt.spans > right {
                    counts.extend(ENDS_TRIED.iter().rev().map(|more| attempt.spans + more));
                }
                right = right.max(attempt.spans);
                if self.encoded_extents {
                    break;
                }
            }
        }
        Ok(None)
    }

    /// Returns a proof for the end of a file beside its inode.
    fn prove_tail(
        &mut self,
        span: &Span,
        form: RefillForm,
        refiller: &mut Refiller,
    ) -> Result<Option<Proof>, DeltaError> {
        let stored = self.stored(std::slice::from_ref(span))?;
        let text = self.text(span.file, span.la, span.llen)?;
        // An end is stored encoded only if that is shorter than the text.
        let longest = span.llen.saturating_sub(1);
        let rooms: Vec<u64> = self.rooms(span.file).map(|room| longest.min(room.into())).collect();
        for room in rooms {
            if refiller.encode(&text, room as usize)?.is_some_and(|bytes| bytes == stored) {
                let (text, end) = (span.la..span.text_end(), RefillEnd::Padded);
                return Ok(Some(Proof { spans: 1, encoder: 0, text, end, room: Some(room) }));
            }
        }
        self.search_cost += span.llen * (TEXT_COST + form.spec.cost());
        Ok(None)
    }

    /// Returns the possible sizes in bytes of the room for a file's end beside its inode: what the
    /// inode and its index leave of a block.
    fn rooms(&self, file: u32) -> impl Iterator<Item = u32> + use<> {
        let inode = &self.map.files[file as usize].inode;
        kiln_builder::inline_room(inode.meta.size, inode.meta.body_off(), self.image.superblock().block_bits)
            .into_iter()
            .filter(|room| *room > 0)
    }

    fn attempt(
        &mut self,
        refiller: &mut Refiller,
        text: &[u8],
        end: RefillEnd,
        ExpectedSpans { spans, stored, cost }: ExpectedSpans<'_>,
    ) -> Result<Attempt, DeltaError> {
        let want: usize = spans.iter().map(|span| span.plen as usize).sum();
        let (mut checked, mut right, mut taken) = (0, 0, 0u64);
        let is_right = |bytes: &[u8], checked: usize| stored.get(checked..bytes.len()) == Some(&bytes[checked..]);
        let refilled = refiller.refill(text, end, spans[0].pa, &mut |bytes: &[u8], _: RefilledExtent| {
            if bytes.len() > want || !is_right(bytes, checked) {
                return false;
            }
            checked = bytes.len();
            while right < spans.len() && taken + spans[right].plen <= checked as u64 {
                taken += spans[right].plen;
                right += 1;
            }
            checked < want
        })?;
        let is_whole = refilled.bytes.len() >= checked && refilled.bytes.get(..want) == Some(&stored[..want]);
        if !is_whole {
            let len = text.len() as u64;
            self.search_cost += len * TEXT_COST + len * (right as u64 + 1) / spans.len() as u64 * cost;
        }
        Ok(Attempt { spans: right, is_whole })
    }

    fn stored(&self, spans: &[Span]) -> Result<Vec<u8>, DeltaError> {
        let off = spans[0].pa;
        let len = spans[spans.len() - 1].bytes().end - off;
        let mut stored = vec![0; len as usize];
        let failed = |source| DeltaError::ImageBytes { side: Side::New, off, len, source };
        self.source.read_exact_at(&mut stored, off).map_err(failed)?;
        Ok(stored)
    }

    fn text(&self, file: u32, la: u64, len: u64) -> Result<Vec<u8>, DeltaError> {
        let mut text = vec![0; len as usize];
        let inode = &self.map.files[file as usize].inode;
        let read = self.image.read_at(inode, &mut text, la).map_err(DeltaError::image(Side::New))?;
        text.truncate(read);
        Ok(text)
    }
}

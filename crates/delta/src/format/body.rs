//! The body of a patch: what makes the new image, in blocks of three streams each.
//!
//! The control stream has groups of items, which make bytes of the new image front to back, and behind each group how the text of its items is made.
//! The streams of differences and of literals have what the control stream counts. Each stream is one zstd frame over all blocks, flushed at
//! the end of each: so a reader needs no more of a patch than one block at a time.

use kiln_builder::RefillEnd;
use std::io::{self, ErrorKind, Read, Write};
use zstd::stream::raw::{CParameter, DParameter, Decoder, Encoder, InBuffer, Operation, OutBuffer};

use crate::error::{DeltaError, PatchDefect};
use crate::format::wire::{put, put_signed};

/// Text of one item that is encoded again, at most, in bytes: what a build fills front to back.
pub(crate) const UNIT_TEXT_MAX_LEN: u64 = (8 << 20) + (128 << 10);
/// Stored bytes of one such item, at most.
pub(crate) const UNIT_STORED_MAX_LEN: u64 = UNIT_TEXT_MAX_LEN + (1 << 20);
/// A block ends behind the item with which its text reaches this length, in bytes.
const BLOCK_TEXT_LEN: u64 = 8 << 20;
/// One compressed piece of a block, at most, in bytes: what literals of the longest items may take.
const PIECE_MAX_LEN: u32 = 24 << 20;
/// Text of an item that is not encoded, at most, in bytes. Longer text is several items.
pub(crate) const RAW_MAX_LEN: u64 = 4 << 20;
/// log2 of the windows of the streams in bytes.
const WINDOW_LOGS: [u32; STREAMS] = [20, 22, 23];
const STREAMS: usize = 3;
/// Bytes of the lengths in front of a block.
pub(crate) const FRAME_LENS_LEN: usize = 4 * STREAMS;
const CONTROL: usize = 0;
const DIFFERENCES: usize = 1;
const LITERALS: usize = 2;
/// Level of compression: more gains little and takes several times as long.
const LEVEL: i32 = 19;
/// Bytes that are decompressed at once.
const DECODED_LEN: usize = 64 << 10;
/// Bytes of a block's checksum.
const CHECK_LEN: usize = 8;

const END: u8 = 0;
const OLD: u8 = 1;
const RAW: u8 = 2;
const UNIT: u8 = 3;
const TAIL: u8 = 4;

/// Items of a group, at most.
pub(crate) const GROUP_ITEMS_MAX: usize = 1 << 14;

/// What makes the next bytes of the new image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// Bytes of the old image.
    Old { pos: u64, len: u64 },
    /// Text as it is.
    Raw { len: u64 },
    /// Text encoded again: the first `stored_len` bytes of what that gives.
    Unit { encoder: usize, text_len: u64, stored_len: u64, end: RefillEnd },
    /// Text encoded as one pcluster, which `room` bytes are left for.
    Tail { encoder: usize, text_len: u64, stored_len: u64, room: u64 },
}

impl Item {
    /// Bytes of the new image.
    pub(crate) fn len(&self) -> u64 {
        match *self {
            Item::Old { len, .. } | Item::Raw { len } => len,
            Item::Unit { stored_len, .. } | Item::Tail { stored_len, .. } => stored_len,
        }
    }

    /// Bytes of its text.
    pub(crate) fn text_len(&self) -> u64 {
        match *self {
            Item::Old { .. } => 0,
            Item::Raw { len } => len,
            Item::Unit { text_len, .. } | Item::Tail { text_len, .. } => text_len,
        }
    }
}

/// What makes the next bytes of text. Positions are in the [old space](crate::old_space).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Bytes of the patch.
    Literal { len: u64 },
    /// Bytes of the old space.
    Copy { pos: u64, len: u64 },
    /// Bytes of the old space, to each of which one of the patch is added.
    Add { pos: u64, len: u64 },
}

/// Writes a body.
pub(crate) struct BodyWriter<W> {
    out: W,
    streams: [(Encoder<'static>, Vec<u8>); STREAMS],
    text_len: u64,
    old_end: u64,
    piece_end: u64,
    is_empty: bool,
    fields: Vec<u8>,
}

impl<W: Write> BodyWriter<W> {
    pub(crate) fn new(out: W) -> io::Result<Self> {
        let stream = |idx: usize| -> io::Result<_> {
            let mut encoder = Encoder::new(LEVEL)?;
            encoder.set_parameter(CParameter::WindowLog(WINDOW_LOGS[idx]))?;
            Ok((encoder, Vec::new()))
        };
        let streams = [stream(CONTROL)?, stream(DIFFERENCES)?, stream(LITERALS)?];
        Ok(Self { out, streams, text_len: 0, old_end: 0, piece_end: 0, is_empty: true, fields: Vec::new() })
    }

    /// Write what makes the next bytes. Behind it, pieces of as much text as the items have follow.
    pub(crate) fn group(&mut self, items: &[Item]) -> io::Result<()> {
        if self.text_len >= BLOCK_TEXT_LEN {
            self.end_block()?;
        }
        let mut fields = std::mem::take(&mut self.fields);
        for item in items {
            self.item(item, &mut fields);
        }
        fields.push(END);
        self.write(CONTROL, &fields)?;
        // Control alone fills a block, too.
        self.text_len += fields.len() as u64;
        self.is_empty = false;
        fields.clear();
        self.fields = fields;
        Ok(())
    }

    fn item(&mut self, item: &Item, fields: &mut Vec<u8>) {
        match *item {
            Item::Old { pos, len } => {
                fields.push(OLD);
                put(fields, len);
                put_signed(fields, pos.wrapping_sub(self.old_end) as i64);
                self.old_end = pos + len;
            }
            Item::Raw { len } => {
                fields.push(RAW);
                put(fields, len);
            }
            Item::Unit { encoder, text_len, stored_len, end } => {
                fields.push(UNIT);
                put(fields, encoder as u64);
                put(fields, text_len);
                put(fields, stored_len);
                put(fields, number_of(end));
            }
            Item::Tail { encoder, text_len, stored_len, room } => {
                fields.push(TAIL);
                put(fields, encoder as u64);
                put(fields, text_len);
                put(fields, stored_len);
                put(fields, room);
            }
        }
    }

    pub(crate) fn literal(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.piece(0, bytes.len(), None)?;
        self.write(LITERALS, bytes)
    }

    pub(crate) fn copy(&mut self, pos: u64, len: usize) -> io::Result<()> {
        self.piece(1, len, Some(pos))
    }

    pub(crate) fn add(&mut self, pos: u64, differences: &[u8]) -> io::Result<()> {
        self.piece(2, differences.len(), Some(pos))?;
        self.write(DIFFERENCES, differences)
    }

    /// Write what is left, and the end.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        if !self.is_empty {
            self.end_block()?;
        }
        let lens = [0; FRAME_LENS_LEN];
        self.out.write_all(&lens)?;
        self.out.write_all(&check(&lens, &[]))?;
        Ok(self.out)
    }

    fn piece(&mut self, kind: u64, len: usize, pos: Option<u64>) -> io::Result<()> {
        let mut fields = std::mem::take(&mut self.fields);
        put(&mut fields, (len as u64) << 2 | kind);
        if let Some(pos) = pos {
            put_signed(&mut fields, pos.wrapping_sub(self.piece_end) as i64);
            self.piece_end = pos + len as u64;
        }
        self.write(CONTROL, &fields)?;
        fields.clear();
        self.fields = fields;
        self.text_len += len as u64;
        Ok(())
    }

    fn write(&mut self, stream: usize, bytes: &[u8]) -> io::Result<()> {
        let (encoder, out) = &mut self.streams[stream];
        let mut input = InBuffer::around(bytes);
        let mut buf = [0u8; 16 << 10];
        while input.pos() < bytes.len() {
            let mut output = OutBuffer::around(&mut buf[..]);
            encoder.run(&mut input, &mut output)?;
            out.extend_from_slice(output.as_slice());
        }
        Ok(())
    }

    fn end_block(&mut self) -> io::Result<()> {
        self.write(CONTROL, &[END])?;
        let (mut lens, mut pieces) = ([0; FRAME_LENS_LEN], Vec::new());
        for ((encoder, piece), len) in self.streams.iter_mut().zip(lens.chunks_exact_mut(4)) {
            let mut buf = [0u8; 16 << 10];
            loop {
                let mut output = OutBuffer::around(&mut buf[..]);
                let left = encoder.flush(&mut output)?;
                piece.extend_from_slice(output.as_slice());
                if left == 0 {
                    break;
                }
            }
            len.copy_from_slice(&(piece.len() as u32).to_le_bytes());
            pieces.append(piece);
        }
        self.out.write_all(&lens)?;
        self.out.write_all(&check(&lens, &pieces))?;
        self.out.write_all(&pieces)?;
        (self.text_len, self.is_empty) = (0, true);
        Ok(())
    }
}

/// The first bytes of BLAKE3 of a block: damage shows where it is.
pub(crate) fn check(lens: &[u8], pieces: &[u8]) -> [u8; CHECK_LEN] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(lens).update(pieces);
    let mut check = [0; CHECK_LEN];
    check.copy_from_slice(&hasher.finalize().as_bytes()[..CHECK_LEN]);
    check
}

fn number_of(end: RefillEnd) -> u64 {
    match end {
        RefillEnd::Padded => 0,
        RefillEnd::Open => 1,
        RefillEnd::Fragments => 2,
        RefillEnd::Inline(room) => 3 + u64::from(room),
    }
}

/// Reads a body, front to back.
pub(crate) struct BodyReader<R> {
    input: R,
    /// Byte in the patch.
    at: u64,
    streams: [StreamReader; STREAMS],
    in_block: bool,
    old_end: u64,
    piece_end: u64,
}

impl<R: Read> BodyReader<R> {
    /// A body that begins at byte `at` of its patch.
    pub(crate) fn new(input: R, at: u64) -> Result<Self, DeltaError> {
        let stream = |idx: usize| StreamReader::new(WINDOW_LOGS[idx]);
        let failed = |source| DeltaError::PatchRead { at, source };
        let streams =
            [stream(CONTROL).map_err(failed)?, stream(DIFFERENCES).map_err(failed)?, stream(LITERALS).map_err(failed)?];
        Ok(Self { input, at, streams, in_block: false, old_end: 0, piece_end: 0 })
    }

    /// What makes the next bytes; nothing at the end. The text of all items together is not longer than that of one can be.
    pub(crate) fn group(&mut self, items: &mut Vec<Item>) -> Result<(), DeltaError> {
        items.clear();
        let mut text_len = 0;
        loop {
            if !self.in_block {
                if !self.block()? {
                    return Ok(());
                }
                self.in_block = true;
            }
            match self.item()? {
                Some(item) => {
                    text_len += item.text_len();
                    if text_len > UNIT_TEXT_MAX_LEN || items.len() == GROUP_ITEMS_MAX {
                        return Err(self.defect("group", text_len, "longer than a group can be").into());
                    }
                    items.push(item);
                }
                None if items.is_empty() => self.in_block = false,
                None => return Ok(()),
            }
        }
    }

    /// The next item of a group; none behind the last one.
    fn item(&mut self) -> Result<Option<Item>, DeltaError> {
        Ok(Some(match self.byte()? {
            END => return Ok(None),
            OLD => {
                let (len, delta) = (self.number()?, self.signed()?);
                let pos = self.old_end.wrapping_add(delta as u64);
                let end = pos.checked_add(len).filter(|_| len > 0);
                self.old_end = end.ok_or_else(|| self.defect("old_len", len, "no range"))?;
                Item::Old { pos, len }
            }
            RAW => Item::Raw { len: self.len("raw_len", RAW_MAX_LEN)? },
            kind @ (UNIT | TAIL) => {
                let encoder = self.len("encoder", u32::MAX.into())? as usize;
                let text_len = self.len("text_len", UNIT_TEXT_MAX_LEN)?;
                let stored_len = self.len("stored_len", UNIT_STORED_MAX_LEN)?;
                let end = self.len("end", 3 + (1 << 20))?;
                match (kind, end) {
                    (TAIL, room) => Item::Tail { encoder, text_len, stored_len, room },
                    (_, 0) => Item::Unit { encoder, text_len, stored_len, end: RefillEnd::Padded },
                    (_, 1) => Item::Unit { encoder, text_len, stored_len, end: RefillEnd::Open },
                    (_, 2) => Item::Unit { encoder, text_len, stored_len, end: RefillEnd::Fragments },
                    (_, room) => {
                        Item::Unit { encoder, text_len, stored_len, end: RefillEnd::Inline((room - 3) as u32) }
                    }
                }
            }
            kind => return Err(self.defect("item", kind.into(), "an item that is not known").into()),
        }))
    }

    /// How the next bytes of text are made, of which `left` are missing.
    pub(crate) fn piece(&mut self, left: u64) -> Result<Piece, DeltaError> {
        let number = self.number()?;
        let (kind, len) = (number & 3, number >> 2);
        if len == 0 || len > left {
            return Err(self.defect("piece_len", len, "no part of its item").into());
        }
        if kind == 0 {
            return Ok(Piece::Literal { len });
        }
        let pos = self.piece_end.wrapping_add(self.signed()? as u64);
        let end = pos.checked_add(len);
        self.piece_end = end.ok_or_else(|| self.defect("piece_pos", pos, "behind all addresses"))?;
        match kind {
            1 => Ok(Piece::Copy { pos, len }),
            2 => Ok(Piece::Add { pos, len }),
            kind => Err(self.defect("piece", kind, "a piece that is not known").into()),
        }
    }

    pub(crate) fn literals(&mut self, out: &mut [u8]) -> Result<(), DeltaError> {
        self.read(LITERALS, out)
    }

    /// Add the next differences to `text`.
    pub(crate) fn add_differences(&mut self, text: &mut [u8]) -> Result<(), DeltaError> {
        let mut buf = [0; 4096];
        for part in text.chunks_mut(buf.len()) {
            let differences = &mut buf[..part.len()];
            self.read(DIFFERENCES, differences)?;
            part.iter_mut().zip(differences).for_each(|(byte, difference)| *byte = byte.wrapping_add(*difference));
        }
        Ok(())
    }

    /// An error about the control stream.
    pub(crate) fn defect(&self, field: &'static str, value: u64, reason: &'static str) -> PatchDefect {
        PatchDefect { record: "block that ends", at: self.at, field, value, reason }
    }

    fn block(&mut self) -> Result<bool, DeltaError> {
        let (mut lens, mut sum) = ([0; FRAME_LENS_LEN], [0; CHECK_LEN]);
        self.fill(&mut lens)?;
        self.fill(&mut sum)?;
        let mut pieces = [0; STREAMS];
        for (len, bytes) in pieces.iter_mut().zip(lens.chunks_exact(4)) {
            *len = bytes.iter().rev().fold(0, |len, byte| len << 8 | u32::from(*byte));
            if *len > PIECE_MAX_LEN {
                return Err(self.defect("piece_len", u64::from(*len), "longer than a piece can be").into());
            }
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&lens);
        for (idx, len) in pieces.into_iter().enumerate() {
            let mut piece = std::mem::take(&mut self.streams[idx].piece);
            piece.clear();
            let read = (&mut self.input).take(len.into()).read_to_end(&mut piece);
            let read = read.map_err(|source| DeltaError::PatchRead { at: self.at, source })?;
            self.at += read as u64;
            if read < len as usize {
                return Err(DeltaError::PatchRead { at: self.at, source: ErrorKind::UnexpectedEof.into() });
            }
            hasher.update(&piece);
            self.streams[idx].start(piece);
        }
        if hasher.finalize().as_bytes()[..CHECK_LEN] != sum {
            return Err(self.defect("check", u64::from_le_bytes(sum), "not that of the block's bytes").into());
        }
        Ok(pieces != [0; STREAMS])
    }

    fn fill(&mut self, buf: &mut [u8]) -> Result<(), DeltaError> {
        self.input.read_exact(buf).map_err(|source| DeltaError::PatchRead { at: self.at, source })?;
        self.at += buf.len() as u64;
        Ok(())
    }

    fn read(&mut self, stream: usize, out: &mut [u8]) -> Result<(), DeltaError> {
        let at = self.at;
        self.streams[stream].read(out).map_err(|reason| {
            let (record, value) = ("block that ends", stream as u64);
            PatchDefect { record, at, field: "stream", value, reason }.into()
        })
    }

    fn byte(&mut self) -> Result<u8, DeltaError> {
        let mut byte = [0];
        self.read(CONTROL, &mut byte)?;
        Ok(byte[0])
    }

    fn number(&mut self) -> Result<u64, DeltaError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.defect("number", value, "of more than 64 bits").into())
    }

    fn signed(&mut self) -> Result<i64, DeltaError> {
        let value = self.number()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn len(&mut self, field: &'static str, max: u64) -> Result<u64, DeltaError> {
        let len = self.number()?;
        if len > max { Err(self.defect(field, len, "more than can be").into()) } else { Ok(len) }
    }
}

/// One stream of a body.
struct StreamReader {
    decoder: Decoder<'static>,
    /// Of the block.
    piece: Vec<u8>,
    /// How much of it is decoded.
    piece_at: usize,
    decoded: Vec<u8>,
    /// How much of that is read.
    at: usize,
}

impl StreamReader {
    fn new(window_log: u32) -> io::Result<Self> {
        let mut decoder = Decoder::new()?;
        decoder.set_parameter(DParameter::WindowLogMax(window_log))?;
        Ok(Self { decoder, piece: Vec::new(), piece_at: 0, decoded: Vec::new(), at: 0 })
    }

    fn start(&mut self, piece: Vec<u8>) {
        (self.piece, self.piece_at) = (piece, 0);
    }

    fn read(&mut self, mut out: &mut [u8]) -> Result<(), &'static str> {
        while !out.is_empty() {
            if self.at == self.decoded.len() {
                self.decode()?;
            }
            let len = out.len().min(self.decoded.len() - self.at);
            let (front, rest) = out.split_at_mut(len);
            front.copy_from_slice(&self.decoded[self.at..][..len]);
            self.at += len;
            out = rest;
        }
        Ok(())
    }

    fn decode(&mut self) -> Result<(), &'static str> {
        self.decoded.resize(DECODED_LEN, 0);
        let mut input = InBuffer::around(&self.piece[self.piece_at..]);
        let mut output = OutBuffer::around(&mut self.decoded[..]);
        let decoded = self.decoder.run(&mut input, &mut output);
        let (taken, len) = (input.pos(), output.pos());
        self.piece_at += taken;
        self.decoded.truncate(len);
        self.at = 0;
        match decoded {
            Err(_) => Err("no zstd frame, or one with a longer window than it may have"),
            Ok(_) if len == 0 && taken == 0 => Err("ends before what the control stream counts"),
            Ok(_) => Ok(()),
        }
    }
}

//! Reading the body of a patch.

use kiln_builder::RefillEnd;
use std::io::{self, ErrorKind, Read};
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use crate::error::{DeltaError, PatchDefect};
use crate::format::body::{
    CHECK_LEN, CONTROL, DECODED_LEN, DIFFERENCES, END, FRAME_LENS_LEN, GROUP_ITEMS_MAX, Item, LITERALS, OLD,
    PIECE_MAX_LEN, Piece, RAW, RAW_MAX_LEN, STREAMS, TAIL, UNIT, UNIT_STORED_MAX_LEN, UNIT_TEXT_MAX_LEN, WINDOW_LOGS,
};

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

/// An error about what a block of the patch says, which ends at byte `at`.
pub(crate) fn block_defect(at: u64, field: &'static str, value: u64, reason: &'static str) -> PatchDefect {
    PatchDefect { record: "block that ends", at, field, value, reason }
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

    /// Byte in the patch up to which it was read.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// An error about the control stream.
    pub(crate) fn defect(&self, field: &'static str, value: u64, reason: &'static str) -> PatchDefect {
        block_defect(self.at, field, value, reason)
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
        let is_end = pieces == [0; STREAMS];
        if is_end {
            self.check_end()?;
        }
        Ok(!is_end)
    }

    /// Refuse what lies behind the last block.
    fn check_end(&mut self) -> Result<(), DeltaError> {
        let mut behind = Vec::with_capacity(1);
        let read = (&mut self.input).take(1).read_to_end(&mut behind);
        read.map_err(|source| DeltaError::PatchRead { at: self.at, source })?;
        match behind.first() {
            None => Ok(()),
            Some(&byte) => {
                let (record, at, value) = ("end", self.at, byte.into());
                let reason = "something lies behind the end of the patch";
                Err(PatchDefect { record, at, field: "byte", value, reason }.into())
            }
        }
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

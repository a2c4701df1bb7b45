//! Reader of the body of a patch.

use kiln_builder::RefillEnd;
use std::io::{self, ErrorKind, Read};
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use crate::error::{DeltaError, PatchDefect};
use crate::format::body::{
    CHECK_LEN, CONTROL, DECODED_LEN, DIFFERENCES, END, FRAME_LENS_LEN, GROUP_ITEMS_MAX, Item, LITERALS, OLD,
    PIECE_MAX_LEN, PatchPiece, RAW, RAW_MAX_LEN, STREAMS, TAIL, UNIT, UNIT_STORED_MAX_LEN, UNIT_TEXT_MAX_LEN,
    WINDOW_LOGS,
};

/// Reader of a body, front to back.
pub(crate) struct BodyReader<R> {
    input: R,
    /// Offset in the patch.
    at: u64,
    streams: [StreamReader; STREAMS],
    in_block: bool,
    old_end: u64,
    piece_end: u64,
}

/// Returns an error about the contents of the block that ends at byte `at` of the patch.
pub(crate) fn block_defect(at: u64, field: &'static str, value: u64, reason: &'static str) -> PatchDefect {
    PatchDefect { record: "block", at, field, value, reason }
}

impl<R: Read> BodyReader<R> {
    /// Creates a reader of a body that begins at byte `at` of its patch.
    pub(crate) fn new(input: R, at: u64) -> Result<Self, DeltaError> {
        let stream = |idx: usize| StreamReader::new(WINDOW_LOGS[idx]);
        let failed = |source| DeltaError::PatchRead { at, source };
        let streams =
            [stream(CONTROL).map_err(failed)?, stream(DIFFERENCES).map_err(failed)?, stream(LITERALS).map_err(failed)?];
        Ok(Self { input, at, streams, in_block: false, old_end: 0, piece_end: 0 })
    }

    /// Reads the next group of items into `items`, which is empty at the end. Their text is in
    /// total at most as long as the longest text of one item.
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
                        return Err(self.defect("group", text_len, "exceeds the maximum").into());
                    }
                    items.push(item);
                }
                None if items.is_empty() => self.in_block = false,
                None => return Ok(()),
            }
        }
    }

    /// Reads the next item of a group; `None` after the last one.
    fn item(&mut self) -> Result<Option<Item>, DeltaError> {
        Ok(Some(match self.byte()? {
            END => return Ok(None),
            OLD => {
                let (len, delta) = (self.number()?, self.signed()?);
                let pos = self.old_end.wrapping_add(delta as u64);
                let end = pos.checked_add(len).filter(|_| len > 0);
                self.old_end = end.ok_or_else(|| self.defect("old_len", len, "is not a valid range"))?;
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
            kind => return Err(self.defect("item", kind.into(), "is not a known item").into()),
        }))
    }

    /// Reads the next piece of text, of which `left` bytes are missing.
    pub(crate) fn piece(&mut self, left: u64) -> Result<PatchPiece, DeltaError> {
        let number = self.number()?;
        let (kind, len) = (number & 3, number >> 2);
        if len == 0 || len > left {
            return Err(self.defect("piece_len", len, "is 0, or exceeds its item").into());
        }
        if kind == 0 {
            return Ok(PatchPiece::Literal { len });
        }
        let pos = self.piece_end.wrapping_add(self.signed()? as u64);
        let end = pos.checked_add(len);
        self.piece_end = end.ok_or_else(|| self.defect("piece_pos", pos, "exceeds 64-bit offsets"))?;
        match kind {
            1 => Ok(PatchPiece::Copy { pos, len }),
            2 => Ok(PatchPiece::Add { pos, len }),
            kind => Err(self.defect("piece", kind, "is not a known piece").into()),
        }
    }

    pub(crate) fn literals(&mut self, out: &mut [u8]) -> Result<(), DeltaError> {
        self.read(LITERALS, out)
    }

    /// Adds the next differences to `text`.
    pub(crate) fn add_differences(&mut self, text: &mut [u8]) -> Result<(), DeltaError> {
        let mut buf = [0; 4096];
        for part in text.chunks_mut(buf.len()) {
            let differences = &mut buf[..part.len()];
            self.read(DIFFERENCES, differences)?;
            part.iter_mut().zip(differences).for_each(|(byte, difference)| *byte = byte.wrapping_add(*difference));
        }
        Ok(())
    }

    /// Returns the offset in the patch up to which it has been read.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Returns an error about the control stream.
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
                return Err(self.defect("piece_len", u64::from(*len), "exceeds the maximum").into());
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
            return Err(self.defect("check", u64::from_le_bytes(sum), "does not match the block").into());
        }
        let is_end = pieces == [0; STREAMS];
        if is_end {
            self.check_end()?;
        }
        Ok(!is_end)
    }

    /// Checks that nothing follows the last block.
    fn check_end(&mut self) -> Result<(), DeltaError> {
        let mut behind = Vec::with_capacity(1);
        let read = (&mut self.input).take(1).read_to_end(&mut behind);
        read.map_err(|source| DeltaError::PatchRead { at: self.at, source })?;
        match behind.first() {
            None => Ok(()),
            Some(&byte) => {
                let (record, at, value) = ("end", self.at, byte.into());
                let reason = "data follows the end of the patch";
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
            let (record, value) = ("block", stream as u64);
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
        Err(self.defect("number", value, "exceeds 64 bits").into())
    }

    fn signed(&mut self) -> Result<i64, DeltaError> {
        let value = self.number()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn len(&mut self, field: &'static str, max: u64) -> Result<u64, DeltaError> {
        let len = self.number()?;
        if len > max { Err(self.defect(field, len, "exceeds the maximum").into()) } else { Ok(len) }
    }
}

/// Reader of one stream of a body.
struct StreamReader {
    decoder: Decoder<'static>,
    /// Compressed bytes of the stream in the current block.
    piece: Vec<u8>,
    /// Offset in `piece` of the next byte to decode.
    piece_at: usize,
    decoded: Vec<u8>,
    /// Offset in `decoded` of the next byte to return.
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
            Err(_) => Err("is not a zstd frame, or its window is too long"),
            Ok(_) if len == 0 && taken == 0 => Err("ends early"),
            Ok(_) => Ok(()),
        }
    }
}

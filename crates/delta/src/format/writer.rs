//! Writer of the body of a patch.

use std::io::{self, Write};
use zstd::stream::raw::{CParameter, Encoder, InBuffer, Operation, OutBuffer};

use crate::format::body::{
    BLOCK_TEXT_LEN, CONTROL, DIFFERENCES, END, FRAME_LENS_LEN, Item, LEVEL, LITERALS, OLD, RAW, STREAMS, TAIL, UNIT,
    WINDOW_LOGS, check, number_of,
};
use crate::format::wire::{put, put_signed};

/// Writer of a body.
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

    /// Writes a group of items. The pieces of their text must follow.
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
        // The control stream counts, too, so that it cannot fill a block alone.
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

    /// Writes the last block and the end mark.
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

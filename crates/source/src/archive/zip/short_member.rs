//! Contents of short members, which are read whole, so that their CRC-32 is checked however they are read.

use super::bytes::Bytes;
use super::method::Method;
use super::record::{PackedData, at_byte, invalid};
use crate::archive::decoded::wrong_crc;
use crate::in_memory::InMemory;
use flate2::Crc;
use kiln_codec::{DecodeLimits, Decoder, Want};
use kiln_format::Algorithm;
use kiln_tree::{Content, ContentError};
use std::cell::RefCell;
use std::io;
use std::ops::Range;

/// Maximum length of a short member in bytes, plain and compressed.
pub(super) const MAX_LEN: u64 = 1 << 20;

thread_local! {
    /// A decoder for deflate, and room for compressed data.
    static WHOLE: RefCell<(Decoder, Vec<u8>)> = RefCell::new((Decoder::new(DecodeLimits::default()), Vec::new()));
}

/// Contents of a short member.
pub(super) struct ShortMember {
    bytes: Bytes,
    data: PackedData,
    /// All of them, once a part was asked for.
    text: Option<InMemory>,
}

impl ShortMember {
    /// Returns the contents of `data` in the archive `bytes`, whose plain length is at most [`MAX_LEN`].
    pub(super) fn new(bytes: Bytes, data: PackedData) -> Self {
        Self { bytes, data, text: None }
    }

    /// Fills `buf`, which is as long as the plain text, with all of it.
    fn fill(&self, buf: &mut [u8]) -> io::Result<()> {
        let PackedData { stored, method, plain } = &self.data;
        match method {
            Method::Stored if stored.end - stored.start != plain.len => {
                Err(invalid(format!("its range is not {} bytes long", plain.len)))
            }
            Method::Stored => {
                self.bytes.0.read_exact_at(buf, stored.start)?;
                let found = crc_of(buf);
                if found == plain.crc { Ok(()) } else { Err(wrong_crc(found, plain.crc)) }
            }
            Method::Deflate if stored.end - stored.start <= MAX_LEN && self.inflate(buf)? => Ok(()),
            // The reader of streams also tells what is wrong.
            _ => plain.decode(&mut *self.data.decoder(&self.bytes)?, |piece, off| {
                buf[off as usize..][..piece.len()].copy_from_slice(piece);
                Ok(())
            }),
        }
    }

    /// Decodes deflate in one go, which is faster than as a stream. Returns false if the text is not what the archive
    /// states.
    fn inflate(&self, buf: &mut [u8]) -> io::Result<bool> {
        WHOLE.with_borrow_mut(|(decoder, packed)| {
            packed.resize((self.data.stored.end - self.data.stored.start) as usize, 0);
            self.bytes.0.read_exact_at(packed, self.data.stored.start)?;
            let decoded = decoder.decode(Algorithm::Deflate, packed, buf, Want::Whole);
            Ok(decoded.is_ok() && crc_of(buf) == self.data.plain.crc)
        })
    }
}

fn crc_of(text: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(text);
    crc.sum()
}

impl Content for ShortMember {
    fn read_exact_at(&mut self, buf: &mut [u8], off: u64) -> Result<(), ContentError> {
        let failed = |error| at_byte(self.data.stored.start, &error);
        if let Some(text) = &mut self.text {
            return text.read_exact_at(buf, off);
        }
        // Most readers want all of it, and once.
        if off == 0 && buf.len() as u64 == self.data.plain.len {
            return self.fill(buf).map_err(failed);
        }
        let mut text = vec![0; self.data.plain.len as usize];
        self.fill(&mut text).map_err(failed)?;
        self.text.insert(InMemory(text)).read_exact_at(buf, off)
    }

    fn next_data(&mut self, off: u64) -> Result<Option<Range<u64>>, ContentError> {
        let len = self.data.plain.len;
        Ok((off < len).then_some(off..len))
    }

    fn verify_unchanged(&mut self) -> Result<(), ContentError> {
        Ok(())
    }
}

//! Decoder of the LZ4 frame format, version 1.6.4 of its description: any sequence of frames,
//! legacy frames and skippable frames.
//!
//! Blocks are decoded by lz4_flex. Its frame decoder (0.14) is not used: it accepts a stream that
//! ends within a frame as complete, and panics if a frame has larger blocks than the one before it.

use std::io::{self, BufRead, Read};
use xxhash_rust::xxh32::{Xxh32, xxh32};

const MAGIC: u32 = 0x184D_2204;
const SKIPPABLE_MAGIC: u32 = 0x184D_2A50;
/// Magic number of legacy frames, which have no other header and no end mark: blocks follow until
/// another frame or the end of the stream.
const LEGACY_MAGIC: u32 = 0x184C_2102;
/// Plain length in bytes of each block of a legacy frame except its last.
const LEGACY_BLOCK_LEN: usize = 8 << 20;
/// Maximum distance of matches in bytes; if blocks are linked, matches may reach into previous
/// blocks.
const WINDOW_LEN: usize = 64 << 10;
/// Bit in the length of a block that is stored uncompressed.
const STORED: u32 = 1 << 31;

/// Decoder of LZ4 frames.
pub(super) struct Lz4Frames<R> {
    stream: R,
    /// True if other data may follow the frames.
    is_followed: bool,
    frame: Option<Frame>,
    /// Magic number that was read ahead and ended a legacy frame.
    next_magic: Option<u32>,
    /// Bytes that were read ahead and belong to the data after the frames; `None` before the last
    /// frame has ended.
    over: Option<Vec<u8>>,
    /// Window of previous text for linked blocks, then the plain text of the last block.
    plain: Vec<u8>,
    /// Number of bytes of `plain` that have been read.
    read: usize,
    packed: Vec<u8>,
}

/// Fields of a frame's header, with the digest of the text so far.
struct Frame {
    is_legacy: bool,
    is_linked: bool,
    has_block_checksums: bool,
    block_max_len: usize,
    digest: Option<Xxh32>,
    /// Remaining bytes of plain text, if the header has its length.
    rest: Option<u64>,
}

impl<R: BufRead> Lz4Frames<R> {
    /// Creates a decoder of a stream that only consists of frames.
    pub(super) fn new(stream: R) -> Self {
        let (frame, next_magic, over) = (None, None, None);
        let (plain, read, packed) = (Vec::new(), 0, Vec::new());
        Self { stream, is_followed: false, frame, next_magic, over, plain, read, packed }
    }

    /// Creates a decoder of a stream in which other data may follow the frames.
    pub(super) fn followed(stream: R) -> Self {
        Self { is_followed: true, ..Self::new(stream) }
    }

    /// Returns the stream, and bytes that were read from it but belong to the data after the
    /// frames.
    pub(super) fn into_inner(self) -> (R, Vec<u8>) {
        (self.stream, self.over.unwrap_or_default())
    }

    /// Reads the next number. Returns `None`, and ends the frames, if `is_theirs` returns false for
    /// it.
    fn number(&mut self, is_theirs: impl Fn(u32) -> bool) -> io::Result<Option<u32>> {
        if !self.is_followed {
            return u32(&mut self.stream).map(Some);
        }
        let mut bytes = Vec::with_capacity(4);
        self.stream.by_ref().take(4).read_to_end(&mut bytes)?;
        let number = bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)).filter(|number| is_theirs(*number));
        if number.is_none() {
            (self.frame, self.over) = (None, Some(bytes));
        }
        Ok(number)
    }

    /// Decodes the next block. Returns `false` at the end of the frames.
    fn advance(&mut self) -> io::Result<bool> {
        loop {
            if self.over.is_some() {
                return Ok(false);
            }
            let Some(frame) = &mut self.frame else {
                let magic = match self.next_magic.take() {
                    Some(magic) => magic,
                    None if self.stream.fill_buf()?.is_empty() => return Ok(false),
                    None => match self.number(is_magic)? {
                        Some(magic) => magic,
                        None => continue,
                    },
                };
                self.frame = header(magic, &mut self.stream)?;
                self.plain.clear();
                self.read = 0;
                continue;
            };
            if frame.is_legacy && self.stream.fill_buf()?.is_empty() {
                self.frame = None;
                continue;
            }
            let header = match frame.is_legacy {
                true => {
                    let max_len = frame.packed_max_len();
                    let is_theirs = |number| is_magic(number) || (1..=max_len).contains(&(number as usize));
                    match self.number(is_theirs)? {
                        Some(header) => header,
                        None => continue,
                    }
                }
                false => u32(&mut self.stream)?,
            };
            let Some(frame) = &mut self.frame else { continue };
            if frame.is_legacy && is_magic(header) {
                (self.frame, self.next_magic) = (None, Some(header));
                continue;
            }
            // Zero bytes that pad an initramfs are not blocks.
            if frame.is_legacy && header == 0 {
                continue;
            }
            if header == 0 {
                frame.finish(&mut self.stream)?;
                self.frame = None;
                continue;
            }
            let len = if frame.is_legacy { header } else { header & !STORED } as usize;
            let max_len = frame.packed_max_len();
            if len > max_len {
                return Err(corrupt(format!(
                    "a block of {len} bytes in a frame with at most {max_len} bytes per block"
                )));
            }
            self.packed.resize(len, 0);
            self.stream.read_exact(&mut self.packed)?;
            if frame.has_block_checksums && u32(&mut self.stream)? != xxh32(&self.packed, 0) {
                return Err(corrupt("the checksum of a block is wrong"));
            }
            let keep = if frame.is_linked { self.plain.len().min(WINDOW_LEN) } else { 0 };
            self.plain.drain(..self.plain.len() - keep);
            if header & STORED != 0 && !frame.is_legacy {
                self.plain.extend_from_slice(&self.packed);
            } else {
                self.plain.resize(keep + frame.block_max_len, 0);
                let (window, block) = self.plain.split_at_mut(keep);
                let decoded = lz4_flex::block::decompress_into_with_dict(&self.packed, block, window);
                self.plain.truncate(keep + decoded.map_err(|error| corrupt(error.to_string()))?);
            }
            self.read = keep;
            frame.count(&self.plain[keep..])?;
            return Ok(true);
        }
    }
}

impl<R: BufRead> Read for Lz4Frames<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.read == self.plain.len() {
            if !self.advance()? {
                return Ok(0);
            }
        }
        let len = buf.len().min(self.plain.len() - self.read);
        buf[..len].copy_from_slice(&self.plain[self.read..self.read + len]);
        self.read += len;
        Ok(len)
    }
}

/// Returns true if a number begins a frame. It exceeds the length of any block of a legacy frame.
fn is_magic(number: u32) -> bool {
    number == MAGIC || number == LEGACY_MAGIC || number & !0xF == SKIPPABLE_MAGIC
}

impl Frame {
    const LEGACY: Self = Self {
        is_legacy: true,
        is_linked: false,
        has_block_checksums: false,
        block_max_len: LEGACY_BLOCK_LEN,
        digest: None,
        rest: None,
    };

    /// Returns the maximum stored length of a block in bytes. Blocks of legacy frames cannot be
    /// stored uncompressed, so they may be longer than their plain text.
    fn packed_max_len(&self) -> usize {
        match self.is_legacy {
            true => lz4_flex::block::get_maximum_output_size(self.block_max_len),
            false => self.block_max_len,
        }
    }

    fn count(&mut self, plain: &[u8]) -> io::Result<()> {
        if let Some(digest) = &mut self.digest {
            digest.update(plain);
        }
        if let Some(rest) = &mut self.rest {
            let more = || corrupt("a frame is longer than its header states");
            *rest = rest.checked_sub(plain.len() as u64).ok_or_else(more)?;
        }
        Ok(())
    }

    fn finish(&mut self, stream: &mut impl Read) -> io::Result<()> {
        if self.rest.is_some_and(|rest| rest > 0) {
            return Err(corrupt("a frame is shorter than its header states"));
        }
        match &self.digest {
            Some(digest) if u32(stream)? != digest.digest() => Err(corrupt("the checksum of a frame is wrong")),
            _ => Ok(()),
        }
    }
}

/// Reads the header of the frame that starts with `magic`. Returns `None` for a skippable frame,
/// which has been skipped.
fn header(magic: u32, stream: &mut impl Read) -> io::Result<Option<Frame>> {
    if magic & !0xF == SKIPPABLE_MAGIC {
        let len = u64::from(u32(stream)?);
        let passed = io::copy(&mut stream.take(len), &mut io::sink())?;
        return if passed == len { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
    }
    if magic == LEGACY_MAGIC {
        return Ok(Some(Frame::LEGACY));
    }
    if magic != MAGIC {
        return Err(corrupt(format!("expected an LZ4 frame, found magic number {magic:#x}")));
    }
    let mut descriptor = vec![0; 2];
    stream.read_exact(&mut descriptor)?;
    let (flags, block) = (descriptor[0], descriptor[1]);
    if flags >> 6 != 1 || flags & 0b10 != 0 || block & 0x8F != 0 || block >> 4 < 4 {
        return Err(corrupt(format!("a frame with FLG = {flags:#x}, BD = {block:#x}")));
    }
    if flags & 1 != 0 {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "an LZ4 frame that needs a dictionary"));
    }
    let has_len = flags & 1 << 3 != 0;
    let end = descriptor.len() + if has_len { 8 } else { 0 };
    descriptor.resize(end, 0);
    stream.read_exact(&mut descriptor[2..])?;
    let mut check = [0];
    stream.read_exact(&mut check)?;
    if check[0] != (xxh32(&descriptor, 0) >> 8) as u8 {
        return Err(corrupt("the checksum of a frame's header is wrong"));
    }
    Ok(Some(Frame {
        is_legacy: false,
        is_linked: flags & 1 << 5 == 0,
        has_block_checksums: flags & 1 << 4 != 0,
        block_max_len: 1 << (8 + 2 * (block >> 4)),
        digest: (flags & 1 << 2 != 0).then(|| Xxh32::new(0)),
        rest: descriptor[2..].first_chunk().map(|len| u64::from_le_bytes(*len)),
    }))
}

fn u32(stream: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

fn corrupt(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    use std::io::Write;

    fn encode(plain: &[u8], info: FrameInfo) -> Vec<u8> {
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    fn decode(stream: &[u8]) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        Lz4Frames::new(stream).read_to_end(&mut plain).map(|_| plain)
    }

    /// Returns frames with all combinations of options, smaller blocks first, and their plain text.
    fn stream(plain: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (mut frames, mut count) = (b"\x50\x2A\x4D\x18\x02\0\0\0xy".to_vec(), 0);
        for block_size in [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max4MB] {
            for mode in [BlockMode::Independent, BlockMode::Linked] {
                for checksums in [false, true] {
                    let info = FrameInfo::new().block_size(block_size).block_mode(mode);
                    let info = info.block_checksums(checksums).content_checksum(checksums);
                    let info = info.content_size(checksums.then_some(plain.len() as u64));
                    frames.extend(encode(plain, info));
                    count += 1;
                }
            }
        }
        (frames, plain.repeat(count))
    }

    #[test]
    fn frames_of_all_properties_are_decoded() {
        let plain: Vec<u8> = (0..100_000_u32).flat_map(|at| (at.wrapping_mul(at) / 70_000).to_le_bytes()).collect();
        let (frames, expected) = stream(&plain);
        assert!(decode(&frames).unwrap() == expected);
        assert!(decode(b"").unwrap().is_empty());
    }

    #[test]
    fn damaged_and_cut_streams_are_errors_or_other_bytes() {
        let (frames, expected) = stream(&b"some text ".repeat(20));
        for len in 1..frames.len() {
            // A stream that ends between two frames is complete.
            if let Ok(plain) = decode(&frames[..len]) {
                assert!(plain.len() < expected.len() && plain.len() % 200 == 0, "cut at byte {len}");
            }
        }
        for at in 0..frames.len() {
            for bit in 0..8 {
                let mut damaged = frames.clone();
                damaged[at] ^= 1 << bit;
                let _ = decode(&damaged);
            }
        }
    }

    /// Returns a legacy frame with a block for each of `parts`.
    fn legacy(parts: &[&[u8]]) -> Vec<u8> {
        let mut frame = LEGACY_MAGIC.to_le_bytes().to_vec();
        for part in parts {
            let block = lz4_flex::block::compress(part);
            frame.extend((block.len() as u32).to_le_bytes());
            frame.extend(block);
        }
        frame
    }

    #[test]
    fn legacy_frames_are_decoded_among_others() {
        let (full, rest) = (b"legacy ".repeat(LEGACY_BLOCK_LEN / 7 + 1), b"rest".repeat(99));
        let full = &full[..LEGACY_BLOCK_LEN];
        let one = legacy(&[full, &rest]);
        assert!(decode(&one).unwrap() == [full, &rest].concat());
        let other = encode(b"other", FrameInfo::new());
        let all = [&one[..], &other, &one, b"\x5A\x2A\x4D\x18\x03\0\0\0abc", &one, &[0; 8]].concat();
        let expected = [full, &rest, b"other", full, &rest, full, &rest].concat();
        assert!(decode(&all).unwrap() == expected);
        assert!(decode(&one[..one.len() - 1]).is_err());
        assert!(decode(&[&one[..], b"\xFF\xFF\xFF\x7F"].concat()).is_err());
        let too_much = vec![0; LEGACY_BLOCK_LEN + 1];
        assert!(decode(&legacy(&[&too_much])).is_err());
    }
}

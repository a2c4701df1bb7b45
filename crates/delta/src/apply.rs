//! Applying a patch: the old image and a patch, read front to back, make the new image.

use kiln_builder::Refiller;
use kiln_format::superblock::{SUPERBLOCK_OFF, Superblock};
use kiln_read::{Image, ImageOptions, ReadAt};
use std::io::Read;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{DeltaError, Side};
use crate::format::body::{Item, Piece};
use crate::format::header::{HEADER_MAX_LEN, Header, MAGIC, VERSION};
use crate::format::reader::BodyReader;
use crate::old_space::OldSpace;

/// Cache for the old image's text and metadata, in bytes.
const CACHE_LEN: u64 = 8 << 20;
/// Bytes that are copied or hashed at a time.
const COPY_LEN: usize = 1 << 20;
/// Encoders that are kept for the next text: each may take 100 MB.
const READY_MAX: usize = 2;
/// Bytes in front of the header: the magic and three numbers.
const FRONT_LEN: usize = 8 + 4 + 8 + 8;

/// What applying has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Length of the new image in bytes.
    pub new_len: u64,
    /// Bytes of it that the old image has, too, as they are stored.
    pub copied: u64,
    /// Bytes of it that were encoded again.
    pub encoded: u64,
}

/// What takes the new image, front to back: where bytes go, and the bytes.
pub type Sink<'a> = dyn FnMut(u64, &[u8]) -> Result<(), DeltaError> + 'a;

/// A patch whose header was read, and whose body comes next.
pub struct Patch<R> {
    header: Header,
    input: R,
    at: u64,
}

impl<R: Read> Patch<R> {
    /// Read the header of a patch.
    ///
    /// # Errors
    /// Something else than a patch, one of another version, a damaged one; an input that cannot be read.
    pub fn open(mut input: R) -> Result<Self, DeltaError> {
        let mut front = [0; FRONT_LEN];
        let mut read = 0;
        while read < FRONT_LEN {
            match input.read(&mut front[read..]) {
                Ok(0) => break,
                Ok(len) => read += len,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => return Err(DeltaError::PatchRead { at: read as u64, source }),
            }
        }
        let number = |range: Range<usize>| front[range].iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
        if front[..8] != MAGIC {
            let mut begins = [0; 8];
            begins.copy_from_slice(&front[..8]);
            return Err(DeltaError::NotAPatch(begins));
        }
        let (version, stored_len, check) = (number(8..12), number(12..20), &front[20..28]);
        let eof = |at: usize| DeltaError::PatchRead { at: at as u64, source: std::io::ErrorKind::UnexpectedEof.into() };
        if read < FRONT_LEN {
            return Err(eof(read));
        }
        if version != VERSION {
            return Err(DeltaError::Version { found: version, known: VERSION });
        }
        let defect = |field, value, reason| crate::PatchDefect { record: "front", at: 20, field, value, reason };
        if stored_len > HEADER_MAX_LEN {
            return Err(defect("header_len", stored_len, "longer than a header can be").into());
        }
        let mut stored = Vec::new();
        let taken = (&mut input).take(stored_len).read_to_end(&mut stored);
        let taken = taken.map_err(|source| DeltaError::PatchRead { at: FRONT_LEN as u64, source })?;
        if (taken as u64) < stored_len {
            return Err(eof(FRONT_LEN + taken));
        }
        if blake3::hash(&stored).as_bytes()[..8] != *check {
            return Err(defect("header_check", number(20..28), "not that of the header's bytes").into());
        }
        let mut bytes = Vec::new();
        let mut frame = zstd::stream::read::Decoder::with_buffer(&stored[..])
            .map_err(|source| DeltaError::PatchRead { at: 28, source })?;
        let limited = frame.window_log_max(24).and_then(|()| frame.take(HEADER_MAX_LEN + 1).read_to_end(&mut bytes));
        if limited.is_err() || bytes.len() as u64 > HEADER_MAX_LEN {
            return Err(defect("header", stored_len, "no zstd frame of a header").into());
        }
        Ok(Self { header: Header::decode(&bytes)?, input, at: FRONT_LEN as u64 + stored_len })
    }

    /// Which images the patch is about.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Refuse what cannot be applied: a patch that needs other encoders than ours, and an old image that is another one. Reads what the patch
    /// uses of `old`.
    ///
    /// # Errors
    /// [`DeltaError::Encoder`], [`DeltaError::WrongOld`]; an image that cannot be read; an interruption.
    pub fn check(&self, old: &dyn ReadAt, stop: &AtomicBool) -> Result<(), DeltaError> {
        self.check_encoders()?;
        self.check_identity(old)?;
        check_used(&self.header, old, stop)
    }

    /// Write the new image to `sink`, which gets its bytes front to back and in order. The old image is checked first: nothing is
    /// written if it is another one. What was written is the new image only once this returns; until then it must not get its name.
    ///
    /// # Errors
    /// As [`Patch::check`]; a damaged patch; [`DeltaError::WrongNew`]; errors of `sink`.
    pub fn apply(self, old: Arc<dyn ReadAt>, sink: &mut Sink<'_>, stop: &AtomicBool) -> Result<Applied, DeltaError> {
        self.check(&*old, stop)?;
        self.apply_unchecked(old, sink, stop)
    }

    /// The same without a look at the old image before.
    pub(crate) fn apply_unchecked(
        self,
        old: Arc<dyn ReadAt>,
        sink: &mut Sink<'_>,
        stop: &AtomicBool,
    ) -> Result<Applied, DeltaError> {
        let options = ImageOptions::default().with_cache_bytes(CACHE_LEN);
        let image = Image::open(old.clone(), Vec::new(), &options).map_err(DeltaError::image(Side::Old))?;
        let Self { header, input, at } = self;
        let space = OldSpace::new(old, header.old_len, image, &header.texts);
        let refillers = header.encoders.iter().map(|_| None).collect();
        let body = BodyReader::new(input, at)?;
        let writer = Writer { sink, hasher: blake3::Hasher::new(), at: 0, limit: header.new_len };
        let applier =
            Applier { header: &header, space, body, refillers, writer, text: Vec::new(), copied: Vec::new(), stop };
        applier.run()
    }

    fn check_encoders(&self) -> Result<(), DeltaError> {
        for one in &self.header.encoders {
            let method = one.form.spec.method;
            let have = method.encoder_version();
            if have != one.version {
                return Err(DeltaError::Encoder { method: method.name(), wanted: one.version, have });
            }
        }
        Ok(())
    }

    /// A quick look: most mistakes show in the length and the superblock.
    fn check_identity(&self, old: &dyn ReadAt) -> Result<(), DeltaError> {
        let len = old.len().map_err(|source| DeltaError::ImageBytes { side: Side::Old, off: 0, len: 0, source })?;
        if len < self.header.old_len {
            let what = format!("it has {len} bytes, but {} are needed", self.header.old_len);
            return Err(DeltaError::WrongOld { what });
        }
        let mut head = [0; 4096];
        let head_len = head.len().min(len as usize);
        let head = &mut head[..head_len];
        let failed = |source| DeltaError::ImageBytes { side: Side::Old, off: 0, len: head_len as u64, source };
        old.read_exact_at(head, 0).map_err(failed)?;
        let Some(Ok(found)) = head.get(SUPERBLOCK_OFF as usize..).map(Superblock::decode) else {
            return Err(DeltaError::WrongOld { what: "no EROFS image".to_owned() });
        };
        if found.uuid != self.header.old_uuid {
            let what = format!("its UUID is {}, but {} is needed", hex(&found.uuid), hex(&self.header.old_uuid));
            return Err(DeltaError::WrongOld { what });
        }
        Ok(())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compare what a patch uses of the old image with what it was when the patch was made.
pub(crate) fn check_used(header: &Header, old: &dyn ReadAt, stop: &AtomicBool) -> Result<(), DeltaError> {
    match used_digest(&header.old_used, old, stop)? == header.old_digest {
        true => Ok(()),
        false => Err(DeltaError::WrongOld { what: "bytes that the patch uses differ (BLAKE3)".to_owned() }),
    }
}

/// BLAKE3 of these ranges, one behind the other.
pub(crate) fn used_digest(ranges: &[Range<u64>], old: &dyn ReadAt, stop: &AtomicBool) -> Result<[u8; 32], DeltaError> {
    let (mut hasher, mut buf) = (blake3::Hasher::new(), vec![0; COPY_LEN]);
    for range in ranges {
        let mut off = range.start;
        while off < range.end {
            check_stop(stop)?;
            let len = (range.end - off).min(COPY_LEN as u64) as usize;
            let failed = |source| DeltaError::ImageBytes { side: Side::Old, off, len: len as u64, source };
            old.read_exact_at(&mut buf[..len], off).map_err(failed)?;
            hasher.update(&buf[..len]);
            off += len as u64;
        }
    }
    Ok(*hasher.finalize().as_bytes())
}

pub(crate) fn check_stop(stop: &AtomicBool) -> Result<(), DeltaError> {
    if stop.load(Ordering::Relaxed) { Err(DeltaError::Interrupted) } else { Ok(()) }
}

/// The new image in the making.
struct Writer<'a, 'b> {
    sink: &'a mut Sink<'b>,
    hasher: blake3::Hasher,
    at: u64,
    limit: u64,
}

impl Writer<'_, '_> {
    /// Whether so many bytes more are within the new image.
    fn has_room(&self, len: u64) -> bool {
        len <= self.limit - self.at
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), DeltaError> {
        self.hasher.update(bytes);
        (self.sink)(self.at, bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}

struct Applier<'a, 'b, 'c, R> {
    header: &'a Header,
    space: OldSpace,
    body: BodyReader<R>,
    /// Each made when it is first needed.
    refillers: Vec<Option<Refiller>>,
    writer: Writer<'b, 'c>,
    /// Of a group of items.
    text: Vec<u8>,
    /// A part of the old image.
    copied: Vec<u8>,
    stop: &'a AtomicBool,
}

impl<R: Read> Applier<'_, '_, '_, R> {
    fn run(mut self) -> Result<Applied, DeltaError> {
        let mut applied = Applied { new_len: self.header.new_len, ..Applied::default() };
        let mut items = Vec::new();
        loop {
            self.body.group(&mut items)?;
            if items.is_empty() {
                break;
            }
            self.make_text(items.iter().map(Item::text_len).sum())?;
            let mut at = 0;
            for item in &items {
                check_stop(self.stop)?;
                let text = at..at + item.text_len() as usize;
                at = text.end;
                self.item(item, text, &mut applied)?;
            }
        }
        let is_whole = self.writer.at == self.writer.limit;
        match is_whole && *self.writer.hasher.finalize().as_bytes() == self.header.new_digest {
            true => Ok(applied),
            false => Err(DeltaError::WrongNew),
        }
    }

    /// Make the bytes of an item, whose text stands in this range.
    fn item(&mut self, item: &Item, text: Range<usize>, applied: &mut Applied) -> Result<(), DeltaError> {
        if !self.writer.has_room(item.len()) {
            return Err(self.body.defect("item_len", item.len(), "more bytes than the new image has").into());
        }
        match *item {
            Item::Old { pos, len } => {
                applied.copied += len;
                self.copy(pos, len)
            }
            Item::Raw { .. } => self.writer.write(&self.text[text]),
            Item::Unit { encoder, stored_len, end, .. } => {
                applied.encoded += stored_len;
                let (start, stop) = (self.writer.at, self.stop);
                let (refiller, text) = self.refiller(encoder, text)?;
                let refilled = refiller.refill(text, end, start, &mut |bytes, _| {
                    !stop.load(Ordering::Relaxed) && (bytes.len() as u64) < stored_len
                })?;
                check_stop(stop)?;
                self.encoded(refilled.bytes.get(..stored_len as usize), stored_len)
            }
            Item::Tail { encoder, stored_len, room, .. } => {
                applied.encoded += stored_len;
                let (refiller, text) = self.refiller(encoder, text)?;
                let encoded = refiller.encode(text, room as usize)?;
                self.encoded(encoded.as_deref().filter(|bytes| bytes.len() as u64 == stored_len), stored_len)
            }
        }
    }

    /// Write what encoding gave.
    fn encoded(&mut self, bytes: Option<&[u8]>, stored_len: u64) -> Result<(), DeltaError> {
        match bytes {
            Some(bytes) => self.writer.write(bytes),
            None => Err(self.body.defect("stored_len", stored_len, "not the length of what encoding gives").into()),
        }
    }

    fn copy(&mut self, mut pos: u64, mut len: u64) -> Result<(), DeltaError> {
        if pos.checked_add(len).is_none_or(|end| end > self.header.old_len) {
            return Err(self.body.defect("old_pos", pos, "behind the old image").into());
        }
        while len > 0 {
            check_stop(self.stop)?;
            let part = len.min(COPY_LEN as u64);
            self.copied.resize(part as usize, 0);
            self.space.read_raw(pos, &mut self.copied)?;
            self.writer.write(&self.copied)?;
            (pos, len) = (pos + part, len - part);
        }
        Ok(())
    }

    /// Make the next `len` bytes of text.
    fn make_text(&mut self, len: u64) -> Result<(), DeltaError> {
        self.text.resize(len as usize, 0);
        let mut at = 0;
        while at < self.text.len() {
            let piece = self.body.piece(len - at as u64)?;
            match piece {
                Piece::Literal { len } => {
                    self.body.literals(&mut self.text[at..][..len as usize])?;
                    at += len as usize;
                }
                Piece::Copy { pos, len } | Piece::Add { pos, len } => {
                    let part = &mut self.text[at..][..len as usize];
                    if !self.space.read(pos, part)? {
                        return Err(self.body.defect("piece_pos", pos, "behind the file it is in").into());
                    }
                    if matches!(piece, Piece::Add { .. }) {
                        self.body.add_differences(part)?;
                    }
                    at += len as usize;
                }
            }
        }
        Ok(())
    }

    /// The encoder with this number, and text for it.
    fn refiller(&mut self, encoder: usize, text: Range<usize>) -> Result<(&mut Refiller, &[u8]), DeltaError> {
        let Some(one) = self.header.encoders.get(encoder) else {
            return Err(self.body.defect("encoder", encoder as u64, "no encoder of the header").into());
        };
        if self.refillers[encoder].is_none() && self.refillers.iter().flatten().count() >= READY_MAX {
            self.refillers.iter_mut().for_each(|refiller| *refiller = None);
        }
        let refiller = match &mut self.refillers[encoder] {
            Some(refiller) => refiller,
            none => none.insert(Refiller::new(one.form)?),
        };
        Ok((refiller, &self.text[text]))
    }
}

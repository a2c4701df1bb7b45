//! Applying a patch: the old image and a patch, read front to back, make the new image.
//!
//! One thread at a time reads the patch and makes text ([`steps`]); several encode ([`encoders`]), each of them one step; the calling thread
//! writes what they give, in order.

mod encoders;
mod steps;

use kiln_codec::Method;
use kiln_format::Hex;
use kiln_format::superblock::{SUPERBLOCK_OFF, Superblock};
use kiln_parallel::{Threads, ordered};
use kiln_read::{Image, ImageOptions, ReadAt};
use std::io::Read;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::apply::encoders::{Bytes, Encoders, Made};
use crate::apply::steps::Steps;
use crate::error::{DeltaError, Side};
use crate::format::header::{HEADER_MAX_LEN, Header, MAGIC, VERSION};
use crate::format::reader::BodyReader;
use crate::old_space::OldSpace;
use crate::stop::check_stop;

/// Cache for the old image's metadata, in bytes: what is decoded of its text is in the old space.
const CACHE_LEN: u64 = 4 << 20;
/// The old image's text that is kept decoded, in bytes; less where several threads take memory. With LZMA, which one thread encodes, extents
/// are the longest.
const KEPT_LEN: usize = 20 << 20;
const KEPT_LEN_BESIDE_OTHERS: usize = 12 << 20;
/// Bytes that are copied or hashed at a time.
const COPY_LEN: usize = 1 << 20;
/// Threads that encode, at most: each has encoders of its own, and results that wait for their turn.
const THREADS_MAX: usize = 4;
/// Text of steps that are under way, and what is made of it, in bytes: above it, no further step is begun. Two of 4 MiB of text are below it.
const UNDER_WAY_LEN: u64 = 11 << 20;
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

/// As [`Sink`], with BLAKE3 of all bytes up to these.
pub(crate) type HashingSink<'a> = dyn FnMut(u64, &[u8], &blake3::Hasher) -> Result<(), DeltaError> + 'a;

/// The front of the new image, which is there already.
#[derive(Clone, Default)]
pub(crate) struct Front {
    /// Its length in bytes.
    pub len: u64,
    /// Has its bytes.
    pub hasher: blake3::Hasher,
}

/// A patch whose header was read, and whose body comes next.
pub struct Patch<R> {
    header: Header,
    input: R,
    at: u64,
    threads: Threads,
}

impl<R: Read + Send> Patch<R> {
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
        let (header, at) = (Header::decode(&bytes)?, FRONT_LEN as u64 + stored_len);
        Ok(Self { header, input, at, threads: Threads::PROCESSORS })
    }

    /// The same patch, on so many threads at most; without this, one for each processor. What takes much memory, as LZMA does, and more
    /// than four, use fewer.
    pub fn with_threads(self, threads: Threads) -> Self {
        Self { threads, ..self }
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
        self.check_old(old, stop)
    }

    /// The part of [`Patch::check`] that is about the old image.
    pub(crate) fn check_old(&self, old: &dyn ReadAt, stop: &AtomicBool) -> Result<(), DeltaError> {
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
        self.apply_unchecked(old, Front::default(), &mut |off, bytes, _| sink(off, bytes), stop)
    }

    /// The same behind a front that is there already, and without a look at the old image before.
    pub(crate) fn apply_unchecked(
        self,
        old: Arc<dyn ReadAt>,
        front: Front,
        sink: &mut HashingSink<'_>,
        stop: &AtomicBool,
    ) -> Result<Applied, DeltaError> {
        let options = ImageOptions::default().with_cache_bytes(CACHE_LEN);
        let image = Image::open(old.clone(), Vec::new(), &options).map_err(DeltaError::image(Side::Old))?;
        let threads = self.threads();
        let Self { header, input, at, .. } = self;
        let kept_len = if threads.count() == 1 { KEPT_LEN } else { KEPT_LEN_BESIDE_OTHERS };
        let space = OldSpace::new(old.clone(), header.old_len, image, &header.texts, kept_len)?;
        let steps = Steps::new(&header, space, BodyReader::new(input, at)?, front.len, stop);
        let mut writer = Writer { sink, old, at: front.len, hasher: front.hasher, stop, part: Vec::new() };
        let mut applied = Applied { new_len: header.new_len, ..Applied::default() };
        let make_worker = || {
            let mut encoders = Encoders::new(&header, stop);
            Ok(move |step: Result<_, DeltaError>| encoders.make(step?))
        };
        ordered::run(threads, UNDER_WAY_LEN, steps, make_worker, |made: Made| {
            match &made.bytes {
                Bytes::Old { len, .. } => applied.copied += len,
                Bytes::Encoded(bytes) => applied.encoded += bytes.len() as u64,
                Bytes::Text(_) => {}
            }
            writer.take(&made)
        })?;
        let is_whole = writer.at == header.new_len;
        match is_whole && *writer.hasher.finalize().as_bytes() == header.new_digest {
            true => Ok(applied),
            false => Err(DeltaError::WrongNew),
        }
    }

    /// Threads that encode. LZMA takes 100 MB for each.
    fn threads(&self) -> Threads {
        let is_heavy = self.header.encoders.iter().any(|one| one.form.spec.method == Method::Lzma);
        let most = if is_heavy { 1 } else { THREADS_MAX };
        Threads::at_least_one(self.threads.count().min(most))
    }

    pub(crate) fn check_encoders(&self) -> Result<(), DeltaError> {
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
            let what = match head.iter().all(|&byte| byte == 0) {
                true => "no EROFS image: it begins with 4 KiB of zeros, as one that was not written to its end",
                false => "no EROFS image",
            };
            return Err(DeltaError::WrongOld { what: what.to_owned() });
        };
        if found.uuid != self.header.old_uuid {
            let what = format!("its UUID is {}, but {} is needed", Hex(&found.uuid), Hex(&self.header.old_uuid));
            return Err(DeltaError::WrongOld { what });
        }
        Ok(())
    }
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

/// The new image in the making.
struct Writer<'a, 'b> {
    sink: &'a mut HashingSink<'b>,
    old: Arc<dyn ReadAt>,
    /// Bytes that are there.
    at: u64,
    hasher: blake3::Hasher,
    stop: &'a AtomicBool,
    /// A part of the old image.
    part: Vec<u8>,
}

impl Writer<'_, '_> {
    /// Write what a step has made, but for bytes that are there already.
    fn take(&mut self, made: &Made) -> Result<(), DeltaError> {
        let there = self.at - made.at;
        match &made.bytes {
            Bytes::Old { pos, len } => self.copy(pos + there, len - there),
            Bytes::Text(text) => self.write(&text.bytes()[there as usize..]),
            Bytes::Encoded(bytes) => self.write(&bytes[there as usize..]),
        }
    }

    /// Copy bytes of the old image.
    fn copy(&mut self, mut pos: u64, mut len: u64) -> Result<(), DeltaError> {
        let mut part = std::mem::take(&mut self.part);
        while len > 0 {
            check_stop(self.stop)?;
            part.resize(len.min(COPY_LEN as u64) as usize, 0);
            let part_len = part.len() as u64;
            let failed = |source| DeltaError::ImageBytes { side: Side::Old, off: pos, len: part_len, source };
            self.old.read_exact_at(&mut part, pos).map_err(failed)?;
            self.write(&part)?;
            (pos, len) = (pos + part_len, len - part_len);
        }
        self.part = part;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), DeltaError> {
        self.hasher.update(bytes);
        (self.sink)(self.at, bytes, &self.hasher)?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}

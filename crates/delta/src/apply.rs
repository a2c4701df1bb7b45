//! Applying of a patch to the old image.
//!
//! One thread at a time reads the patch and makes text ([`steps`]). Several threads encode
//! ([`encoders`]), one step each. The calling thread writes the results in order.

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

use crate::apply::encoders::{Bytes, Encoders, MadeBytes};
use crate::apply::steps::Steps;
use crate::error::{DeltaError, Side};
use crate::format::header::Header;
use crate::format::reader::BodyReader;
use crate::old_space::OldSpace;
use crate::stop::check_stop;

/// Size in bytes of the cache for the old image's metadata; decoded text is in the old space.
const CACHE_LEN: u64 = 4 << 20;
/// Size in bytes of the cache for decoded text of the old image, with one thread and with several,
/// which take more memory themselves. LZMA has the longest extents, and is encoded by one thread.
const KEPT_LEN: usize = 20 << 20;
const KEPT_LEN_BESIDE_OTHERS: usize = 12 << 20;
/// Number of bytes copied or hashed at once.
const COPY_LEN: usize = 1 << 20;
/// Maximum number of threads that encode: each has its encoders, and results that wait for their
/// turn.
const THREADS_MAX: usize = 4;
/// Limit in bytes on the text and the results of steps under way, above which no further step
/// begins. Two steps with 4 MiB of text each are below it.
const UNDER_WAY_LEN: u64 = 11 << 20;

/// Counts of an applied patch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApplyReport {
    /// Length of the new image in bytes.
    pub new_len: u64,
    /// Bytes of the new image that were copied from the old image as stored.
    pub copied: u64,
    /// Bytes of the new image that were encoded again.
    pub encoded: u64,
}

/// Callback that receives the new image front to back, as an offset and the bytes at it.
pub type Sink<'a> = dyn FnMut(u64, &[u8]) -> Result<(), DeltaError> + 'a;

/// Same as [`Sink`], with the BLAKE3 state of all bytes up to and including these.
pub(crate) type HashingSink<'a> = dyn FnMut(u64, &[u8], &blake3::Hasher) -> Result<(), DeltaError> + 'a;

/// First bytes of the new image, which exist already.
#[derive(Clone, Default)]
pub(crate) struct NewPrefix {
    /// Length in bytes.
    pub len: u64,
    /// BLAKE3 state of these bytes.
    pub hasher: blake3::Hasher,
}

/// A patch whose header has been read, positioned at its body.
pub struct Patch<R> {
    header: Header,
    input: R,
    at: u64,
    threads: Threads,
}

impl<R: Read + Send> Patch<R> {
    /// Reads the header of a patch.
    ///
    /// # Errors
    /// Input that is not a patch, has another version, is damaged, ends early or cannot be read.
    pub fn open(mut input: R) -> Result<Self, DeltaError> {
        let (header, at) = Header::read(&mut input)?;
        Ok(Self { header, input, at, threads: Threads::PROCESSORS })
    }

    /// Sets the maximum number of threads, which defaults to one per processor. At most four are
    /// used, and only one for encoders that take much memory, such as LZMA.
    pub fn with_threads(self, threads: Threads) -> Self {
        Self { threads, ..self }
    }

    /// Returns the header, which identifies both images.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Checks that the patch can be applied: this program has its encoders, and `old` is the image
    /// that it was made for. Reads the parts of `old` that the patch uses.
    ///
    /// # Errors
    /// [`DeltaError::Encoder`], [`DeltaError::WrongOld`]; an image that cannot be read; an
    /// interruption.
    pub fn check(&self, old: &dyn ReadAt, stop: &AtomicBool) -> Result<(), DeltaError> {
        self.check_encoders()?;
        self.check_old(old, stop)
    }

    /// Checks that `old` is the image that the patch was made for.
    pub(crate) fn check_old(&self, old: &dyn ReadAt, stop: &AtomicBool) -> Result<(), DeltaError> {
        self.check_identity(old)?;
        check_used(&self.header, old, stop)
    }

    /// Writes the new image to `sink`, front to back. The old image is checked first, and nothing
    /// is written if it is another one. The output is verified only when this function returns, so
    /// it must not replace a valid image before.
    ///
    /// # Errors
    /// Those of [`Patch::check`]; a damaged patch; [`DeltaError::WrongNew`]; errors of `sink`.
    pub fn apply(
        self,
        old: Arc<dyn ReadAt>,
        sink: &mut Sink<'_>,
        stop: &AtomicBool,
    ) -> Result<ApplyReport, DeltaError> {
        self.check(&*old, stop)?;
        self.apply_unchecked(old, NewPrefix::default(), &mut |off, bytes, _| sink(off, bytes), stop)
    }

    /// Does the same after the first bytes of the new image, which exist already, and without
    /// checking the old image.
    pub(crate) fn apply_unchecked(
        self,
        old: Arc<dyn ReadAt>,
        front: NewPrefix,
        sink: &mut HashingSink<'_>,
        stop: &AtomicBool,
    ) -> Result<ApplyReport, DeltaError> {
        let options = ImageOptions::default().with_cache_bytes(CACHE_LEN);
        let image = Image::open(old.clone(), Vec::new(), &options).map_err(DeltaError::image(Side::Old))?;
        let threads = self.threads();
        let Self { header, input, at, .. } = self;
        let kept_len = if threads.count() == 1 { KEPT_LEN } else { KEPT_LEN_BESIDE_OTHERS };
        let space = OldSpace::new(old.clone(), header.old_len, image, &header.texts, kept_len)?;
        let steps = Steps::new(&header, space, BodyReader::new(input, at)?, front.len, stop);
        let mut writer = Writer { sink, old, at: front.len, hasher: front.hasher, stop, part: Vec::new() };
        let mut applied = ApplyReport { new_len: header.new_len, ..ApplyReport::default() };
        let make_worker = || {
            let mut encoders = Encoders::new(&header, stop);
            Ok(move |step: Result<_, DeltaError>| encoders.make(step?))
        };
        ordered::run(threads, UNDER_WAY_LEN, steps, make_worker, |made: MadeBytes| {
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

    /// Returns the number of threads that encode. LZMA takes 100 MB per thread.
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

    /// Checks length and superblock of the old image, which detect most mistakes quickly.
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

/// Checks that the ranges of the old image that a patch uses have their digest.
pub(crate) fn check_used(header: &Header, old: &dyn ReadAt, stop: &AtomicBool) -> Result<(), DeltaError> {
    match used_digest(&header.old_used, old, stop)? == header.old_digest {
        true => Ok(()),
        false => Err(DeltaError::WrongOld { what: "bytes that the patch uses differ (BLAKE3)".to_owned() }),
    }
}

/// Returns the BLAKE3 digest of the concatenation of `ranges`.
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

/// Writer of the new image.
struct Writer<'a, 'b> {
    sink: &'a mut HashingSink<'b>,
    old: Arc<dyn ReadAt>,
    /// Number of bytes written.
    at: u64,
    hasher: blake3::Hasher,
    stop: &'a AtomicBool,
    /// Buffer for bytes of the old image.
    part: Vec<u8>,
}

impl Writer<'_, '_> {
    /// Writes the bytes of a step, except those that exist already.
    fn take(&mut self, made: &MadeBytes) -> Result<(), DeltaError> {
        let there = self.at - made.at;
        match &made.bytes {
            Bytes::Old { pos, len } => self.copy(pos + there, len - there),
            Bytes::Text(text) => self.write(&text.bytes()[there as usize..]),
            Bytes::Encoded(bytes) => self.write(&bytes[there as usize..]),
        }
    }

    /// Copies bytes of the old image.
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

//! Applying a patch over the old image itself, on a block device or in a file.
//!
//! Two steps, so that a crash at any moment leaves the old image, or a journal that completes the new one:
//!
//! 1. The new image is made, and verified, while the old one is only read. Blocks that differ from what is at their place go to the journal. At
//!    its end the journal is synced, and then gets its head, which says that it is complete.
//! 2. Its blocks are written to their places and synced. Only then may the journal be removed.
//!
//! A journal with a head is replayed from its beginning however often the second step was cut short; one without a head is begun anew.

use kiln_builder::{Control, Output, Progress, read_exact_at, write_all_at};
use kiln_read::{RangeMut, ReadAt};
use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::apply::{Applied, Front, Patch, Sink};
use crate::error::{DeltaError, Side};
use crate::stop::check_stop;

/// What a journal begins with.
const MAGIC: [u8; 8] = *b"\x8Akilnjrn";
/// Magic, digest of the new image, its length, length and digest of the records, checksum of all this.
const HEAD_LEN: usize = 8 + 32 + 8 + 8 + 32 + 8;
/// Where records begin.
const RECORDS_OFF: u64 = 4096;
/// Blocks that are compared with what is there, in bytes.
const BLOCK_LEN: usize = 4096;
/// One record holds at most so many bytes.
const RECORD_MAX_LEN: usize = 1 << 20;
/// In front of the bytes of a record: where they go, and how many.
const RECORD_HEAD_LEN: usize = 16;

/// Where the old image is and the new one shall be.
pub struct Target<D> {
    /// Read and written; nothing else may write to it meanwhile.
    pub device: Arc<D>,
    /// Bytes that it has.
    pub len: u64,
    /// Whether its length can change, as that of a file can.
    pub resize: Resize,
}

/// Whether the length of a target can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resize {
    /// It is a file, which gets the length of the new image.
    ToImage,
    /// It is a device, which may be longer than an image.
    Never,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InPlace {
    /// The patch was applied.
    Applied(Applied),
    /// A journal of an earlier run was replayed.
    Resumed,
    /// The new image was there already.
    WasThere,
}

/// Apply `patch` over the old image. Once this returns, the journal is of no use any more. After an error or a crash the old image is there, or
/// the same call with the same journal completes the new one. Progress counts bytes of the new image as they are made.
///
/// # Errors
/// As [`Patch::apply`]; a journal of another patch, a target that is too small, a full disk.
pub fn apply<D: Output + Send + Sync + 'static, R: Read + Send>(
    patch: Patch<R>,
    target: &Target<D>,
    journal: &dyn Output,
    control: &Control<'_>,
) -> Result<InPlace, DeltaError> {
    let stop = control.stop;
    let (new_len, new_digest) = (patch.header().new_len, patch.header().new_digest);
    if target.resize == Resize::Never && target.len < new_len {
        let source =
            io::Error::new(ErrorKind::StorageFull, format!("it has {} bytes, but {new_len} are needed", target.len));
        return Err(DeltaError::Write { action: "write the device", source });
    }
    if let Some(head) = Head::read(journal)? {
        if head.new_digest != new_digest {
            let what = "is that of another patch, which is not completely applied: apply that one first".to_owned();
            return Err(DeltaError::Journal { what });
        }
        head.verify(journal, stop)?;
        replay(&head, journal, target)?;
        return Ok(InPlace::Resumed);
    }
    let old: Arc<dyn ReadAt> = Arc::new(DeviceSource { device: target.device.clone(), len: target.len });
    match patch.check(&*old, stop) {
        Err(DeltaError::WrongOld { .. }) if is_new(&*old, target, new_len, &new_digest, stop)? => {
            return Ok(InPlace::WasThere);
        }
        checked => checked?,
    }
    let mut records =
        Records { journal, at: RECORDS_OFF, hasher: blake3::Hasher::new(), pending: Vec::new(), start: 0 };
    // What an earlier run has left has no head.
    journal.set_len(0).map_err(write_failed)?;
    let mut blocks =
        Blocks { old: &*old, old_len: target.len, records: &mut records, front: Vec::new(), there: Vec::new() };
    let applied = patch.apply_unchecked(
        old.clone(),
        Front::default(),
        &mut |off, bytes, _| {
            blocks.take(off, bytes)?;
            (control.progress)(Progress { done_bytes: off + bytes.len() as u64, total_bytes: new_len });
            Ok(())
        },
        stop,
    )?;
    blocks.end(new_len)?;
    let head = records.finish(new_digest, new_len)?;
    head.write(journal)?;
    replay(&head, journal, target)?;
    Ok(InPlace::Applied(applied))
}

/// Whether the new image is there already, as after a crash behind the last write.
fn is_new<D>(
    source: &dyn ReadAt,
    target: &Target<D>,
    new_len: u64,
    digest: &[u8; 32],
    stop: &AtomicBool,
) -> Result<bool, DeltaError> {
    let fits = match target.resize {
        Resize::ToImage => target.len == new_len,
        Resize::Never => target.len >= new_len,
    };
    let whole = 0..new_len;
    Ok(fits && crate::apply::used_digest(std::slice::from_ref(&whole), source, stop)? == *digest)
}

/// Write what the journal holds to its places.
fn replay<D: Output>(head: &Head, journal: &dyn Output, target: &Target<D>) -> Result<(), DeltaError> {
    head.records(journal, &mut |off, bytes| {
        if off.checked_add(bytes.len() as u64).is_none_or(|end| end > head.new_len) {
            return Err(DeltaError::Journal { what: format!("writes behind the new image, at {off}") });
        }
        write_all_at(&*target.device, bytes, off).map_err(DeltaError::write("write the new image"))
    })?;
    let failed = DeltaError::write("sync the new image");
    if target.resize == Resize::ToImage {
        target.device.set_len(head.new_len).map_err(&failed)?;
    }
    target.device.sync().map_err(&failed)
}

fn write_failed(source: io::Error) -> DeltaError {
    DeltaError::Write { action: "write the journal", source }
}

/// The new image as it comes, in blocks that are compared with what is at their place. So a journal has as many bytes as
/// [`Header::changed_len`](crate::Header::changed_len) says, and what is in front of them.
struct Blocks<'a, 'b> {
    old: &'a dyn ReadAt,
    old_len: u64,
    records: &'a mut Records<'b>,
    /// The front of a block.
    front: Vec<u8>,
    /// What is at the place.
    there: Vec<u8>,
}

impl Blocks<'_, '_> {
    /// The next bytes, which go to `off`.
    fn take(&mut self, mut off: u64, mut bytes: &[u8]) -> Result<(), DeltaError> {
        if !self.front.is_empty() {
            let (part, rest) = bytes.split_at(bytes.len().min(BLOCK_LEN - self.front.len()));
            self.front.extend_from_slice(part);
            (off, bytes) = (off + part.len() as u64, rest);
            if self.front.len() < BLOCK_LEN {
                return Ok(());
            }
            self.end(off)?;
        }
        let (whole, rest) = bytes.split_at(bytes.len() / BLOCK_LEN * BLOCK_LEN);
        self.compare(off, whole)?;
        self.front.extend_from_slice(rest);
        Ok(())
    }

    /// Compare what is left, which ends at `end`.
    fn end(&mut self, end: u64) -> Result<(), DeltaError> {
        let block = std::mem::take(&mut self.front);
        self.compare(end - block.len() as u64, &block)?;
        self.front = block;
        self.front.clear();
        Ok(())
    }

    fn compare(&mut self, off: u64, bytes: &[u8]) -> Result<(), DeltaError> {
        self.there.resize(self.old_len.saturating_sub(off).min(bytes.len() as u64) as usize, 0);
        let failed = |source| DeltaError::ImageBytes { side: Side::Old, off, len: bytes.len() as u64, source };
        if !self.there.is_empty() {
            self.old.read_exact_at(&mut self.there, off).map_err(failed)?;
        }
        for (at, block) in (0..).step_by(BLOCK_LEN).zip(bytes.chunks(BLOCK_LEN)) {
            if self.there.get(at..at + block.len()) != Some(block) {
                self.records.add(off + at as u64, block)?;
            }
        }
        Ok(())
    }
}

/// Blocks that differ, as they come.
struct Records<'a> {
    journal: &'a dyn Output,
    at: u64,
    hasher: blake3::Hasher,
    /// Bytes of the record in the making, and where they go.
    pending: Vec<u8>,
    start: u64,
}

impl Records<'_> {
    fn add(&mut self, off: u64, bytes: &[u8]) -> Result<(), DeltaError> {
        let follows = self.start + self.pending.len() as u64 == off;
        if !follows || self.pending.len() + bytes.len() > RECORD_MAX_LEN {
            self.flush()?;
            self.start = off;
        }
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DeltaError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let mut record = Vec::with_capacity(RECORD_HEAD_LEN + self.pending.len());
        record.extend(self.start.to_le_bytes());
        record.extend((self.pending.len() as u64).to_le_bytes());
        record.append(&mut self.pending);
        self.hasher.update(&record);
        write_all_at(self.journal, &record, self.at).map_err(write_failed)?;
        self.at += record.len() as u64;
        Ok(())
    }

    /// Write what is left, and sync.
    fn finish(mut self, new_digest: [u8; 32], new_len: u64) -> Result<Head, DeltaError> {
        self.flush()?;
        self.journal.sync().map_err(write_failed)?;
        let records_digest = *self.hasher.finalize().as_bytes();
        Ok(Head { new_digest, new_len, records_len: self.at - RECORDS_OFF, records_digest })
    }
}

/// What says that a journal is complete.
struct Head {
    new_digest: [u8; 32],
    new_len: u64,
    records_len: u64,
    records_digest: [u8; 32],
}

impl Head {
    /// The head of a complete journal.
    fn read(journal: &dyn Output) -> Result<Option<Self>, DeltaError> {
        let mut bytes = [0; HEAD_LEN];
        if !read_all(journal, &mut bytes, 0).map_err(read_failed)? {
            return Ok(None);
        }
        let (fields, check) = bytes.split_at(HEAD_LEN - 8);
        if fields[..8] != MAGIC || blake3::hash(fields).as_bytes()[..8] != *check {
            return Ok(None);
        }
        let number = |at: usize| fields[at..at + 8].iter().rev().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
        let digest = |at: usize| {
            let mut digest = [0; 32];
            digest.copy_from_slice(&fields[at..at + 32]);
            digest
        };
        let (new_digest, records_digest) = (digest(8), digest(56));
        Ok(Some(Self { new_digest, new_len: number(40), records_len: number(48), records_digest }))
    }

    fn write(&self, journal: &dyn Output) -> Result<(), DeltaError> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.new_digest);
        bytes.extend(self.new_len.to_le_bytes());
        bytes.extend(self.records_len.to_le_bytes());
        bytes.extend(self.records_digest);
        bytes.extend(&blake3::hash(&bytes).as_bytes()[..8]);
        write_all_at(journal, &bytes, 0).and_then(|()| journal.sync()).map_err(write_failed)
    }

    /// Refuse records that are not those of the head.
    fn verify(&self, journal: &dyn Output, stop: &AtomicBool) -> Result<(), DeltaError> {
        let mut hasher = blake3::Hasher::new();
        self.records(journal, &mut |off, bytes| {
            check_stop(stop)?;
            hasher.update(&off.to_le_bytes()).update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
            Ok(())
        })?;
        match *hasher.finalize().as_bytes() == self.records_digest {
            true => Ok(()),
            false => Err(DeltaError::Journal { what: "is damaged (BLAKE3 of its records differs)".to_owned() }),
        }
    }

    fn records(&self, journal: &dyn Output, take: &mut Sink<'_>) -> Result<(), DeltaError> {
        let damaged = |at: u64| DeltaError::Journal { what: format!("is damaged at byte {at}") };
        let end = RECORDS_OFF.saturating_add(self.records_len);
        let (mut at, mut bytes) = (RECORDS_OFF, Vec::new());
        while at < end {
            let mut head = [0; RECORD_HEAD_LEN];
            if !read_all(journal, &mut head, at).map_err(read_failed)? {
                return Err(damaged(at));
            }
            let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
            let (off, len) = (number(&head[..8]), number(&head[8..]));
            if len > RECORD_MAX_LEN as u64 {
                return Err(damaged(at));
            }
            bytes.resize(len as usize, 0);
            if !read_all(journal, &mut bytes, at + RECORD_HEAD_LEN as u64).map_err(read_failed)? {
                return Err(damaged(at));
            }
            take(off, &bytes)?;
            at += RECORD_HEAD_LEN as u64 + len;
        }
        Ok(())
    }
}

fn read_failed(source: io::Error) -> DeltaError {
    DeltaError::Write { action: "read the journal", source }
}

/// Fill `buf` from `off` on. Whether there were so many bytes.
pub(crate) fn read_all(output: &dyn Output, buf: &mut [u8], off: u64) -> io::Result<bool> {
    match read_exact_at(output, buf, off) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}

/// The target as a source.
struct DeviceSource<D> {
    device: Arc<D>,
    len: u64,
}

impl<D: Output + Send + Sync> ReadAt for DeviceSource<D> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        read_exact_at(&*self.device, buf, off)
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        ranges.iter_mut().try_for_each(|range| self.read_exact_at(range.buf, range.off))
    }

    fn borrow(&self, _off: u64, _len: usize) -> Option<&[u8]> {
        None
    }

    fn will_need(&self, _off: u64, _len: u64) {}
}

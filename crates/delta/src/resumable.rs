//! Applying of a patch to a file from which the next run can continue after a crash, an
//! interruption or a full disk.
//!
//! At regular intervals the file is synced, and then gets a note after the end of the new image,
//! with the length and the BLAKE3 digest of the bytes so far. The next run hashes these bytes
//! again. If they do not match the note because writes were lost, or belong to another image, it
//! starts over by itself. Bytes before the note are not encoded again, and the old image is not
//! read for them; the patch is read from its beginning.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `8A 6B 69 6C 6E 70 72 74` (`\x8Akilnprt`) |
//! | 32, 8 | BLAKE3 and length of the new image |
//! | 8, 32 | length and BLAKE3 of the front |
//! | 8 | the first 8 bytes of BLAKE3 of all this |
//!
//! There are two slots for notes, in sectors of 512 bytes, from the first multiple of 4096 after
//! the new image on. They are written alternately, so that a torn note leaves the other one.

use kiln_builder::{Control, Progress};
use kiln_output::{Output, write_all_at};
use kiln_read::ReadAt;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::apply::{ApplyReport, NewPrefix, Patch};
use crate::error::DeltaError;
use crate::format::header::Header;
use crate::in_place::read::read_all;
use crate::stop::check_stop;

/// First bytes of a note.
const MAGIC: [u8; 8] = *b"\x8Akilnprt";
/// Length of a note in bytes.
const NOTE_LEN: usize = 8 + 32 + 8 + 8 + 32 + 8;
/// Distance between the two notes in bytes.
const SLOT_LEN: u64 = 512;
const SLOTS: u64 = 2;
/// Alignment of the first note in bytes.
const BLOCK_LEN: u64 = 4096;
/// Number of bytes hashed at once.
const PART_LEN: usize = 1 << 20;

/// Default distance between notes in bytes of the new image, which are made in less than a second.
pub const STEP_LEN: u64 = 32 << 20;

/// Result of an application that may have continued an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumeReport {
    /// Counts of this run; bytes of earlier runs are only in `new_len`.
    pub applied: ApplyReport,
    /// Number of bytes of the new image that were made by earlier runs.
    pub there: u64,
}

/// Makes the new image in `partial`, which may hold bytes of the same image from an earlier run,
/// with any patch. A note is written every `step_len` bytes. On return, `partial` is the new image,
/// not yet synced.
///
/// # Errors
/// Those of [`Patch::apply`]. Nothing is written if the old image is not the right one.
pub fn apply<R: Read + Send>(
    patch: Patch<R>,
    old: Arc<dyn ReadAt>,
    partial: &dyn Output,
    step_len: u64,
    control: &Control<'_>,
) -> Result<ResumeReport, DeltaError> {
    let stop = control.stop;
    patch.check(&*old, stop)?;
    let image = NewImage::of(patch.header());
    let (front, mut slot) = image.front(partial, stop)?;
    if front.len == 0 {
        partial.set_len(0).map_err(write_failed)?;
    }
    let (there, mut noted) = (front.len, front.len);
    let mut sink = |off: u64, bytes: &[u8], hasher: &blake3::Hasher| {
        write_all_at(partial, bytes, off).map_err(write_failed)?;
        let len = off + bytes.len() as u64;
        (control.progress)(Progress { done_bytes: len, total_bytes: image.len });
        if len - noted >= step_len && len < image.len {
            partial.sync().map_err(write_failed)?;
            let note = image.note(len, hasher.finalize().as_bytes());
            write_all_at(partial, &note, image.slot_off(slot)).map_err(write_failed)?;
            (noted, slot) = (len, (slot + 1) % SLOTS);
        }
        Ok(())
    };
    let applied = patch.apply_unchecked(old, front, &mut sink, stop)?;
    partial.set_len(image.len).map_err(write_failed)?;
    Ok(ResumeReport { applied, there })
}

/// Returns the number of bytes of the new image that an earlier run has left in `partial`,
/// according to its notes.
///
/// # Errors
/// A file that cannot be read.
pub fn kept_len(header: &Header, partial: &dyn Output) -> Result<u64, DeltaError> {
    Ok(NewImage::of(header).notes(partial)?.last().map_or(0, |note| note.len))
}

fn write_failed(source: std::io::Error) -> DeltaError {
    DeltaError::Write { action: "write the new image", source }
}

fn read_failed(source: std::io::Error) -> DeltaError {
    DeltaError::Write { action: "read the existing part of the new image", source }
}

/// Length and digest of the image to make.
struct NewImage {
    len: u64,
    digest: [u8; 32],
}

/// Contents and position of a note.
struct Note {
    slot: u64,
    len: u64,
    digest: [u8; 32],
}

impl NewImage {
    fn of(header: &Header) -> Self {
        Self { len: header.new_len, digest: header.new_digest }
    }

    fn slot_off(&self, slot: u64) -> u64 {
        self.len.next_multiple_of(BLOCK_LEN) + slot * SLOT_LEN
    }

    fn note(&self, len: u64, digest: &[u8; 32]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.digest);
        bytes.extend(self.len.to_le_bytes());
        bytes.extend(len.to_le_bytes());
        bytes.extend(digest);
        bytes.extend(&blake3::hash(&bytes).as_bytes()[..8]);
        bytes
    }

    /// Returns the notes about this image, those with fewer bytes first.
    fn notes(&self, partial: &dyn Output) -> Result<Vec<Note>, DeltaError> {
        let mut notes = Vec::new();
        for slot in 0..SLOTS {
            let mut bytes = [0; NOTE_LEN];
            if !read_all(partial, &mut bytes, self.slot_off(slot)).map_err(read_failed)? {
                continue;
            }
            let mut len = [0; 8];
            len.copy_from_slice(&bytes[48..56]);
            let mut digest = [0; 32];
            digest.copy_from_slice(&bytes[56..88]);
            let len = u64::from_le_bytes(len);
            if len <= self.len && bytes[..] == self.note(len, &digest)[..] {
                notes.push(Note { slot, len, digest });
            }
        }
        notes.sort_by_key(|note| note.len);
        Ok(notes)
    }

    /// Returns the longest first part that matches its note, and the slot of the next note.
    fn front(&self, partial: &dyn Output, stop: &AtomicBool) -> Result<(NewPrefix, u64), DeltaError> {
        let (mut front, mut slot) = (NewPrefix::default(), 0);
        let (mut hashed, mut buf) = (front.clone(), vec![0; PART_LEN]);
        for note in self.notes(partial)? {
            while hashed.len < note.len {
                check_stop(stop)?;
                let part = &mut buf[..(note.len - hashed.len).min(PART_LEN as u64) as usize];
                if !read_all(partial, part, hashed.len).map_err(read_failed)? {
                    return Ok((front, slot));
                }
                hashed.hasher.update(part);
                hashed.len += part.len() as u64;
            }
            if *hashed.hasher.finalize().as_bytes() != note.digest {
                break;
            }
            (front, slot) = (hashed.clone(), (note.slot + 1) % SLOTS);
        }
        Ok((front, slot))
    }
}

//! Applying a patch to a file which, after a crash, an interruption or a full disk, holds the front of the new image: the next run goes on there.
//!
//! After every so many bytes the file is synced, and then gets a note, in blocks behind the place of the new image, which says how long the front is
//! and what BLAKE3 it has. The next run hashes the front again. One that is not what the note says, as writes were lost, is not used, nor is a front of
//! another image: then it begins anew, by itself. What is in front of the note is not encoded again, and the old image is not read for it; the patch is
//! read from its beginning.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `8A 6B 69 6C 6E 70 72 74` (`\x8Akilnprt`) |
//! | 32, 8 | BLAKE3 and length of the new image |
//! | 8, 32 | length and BLAKE3 of the front |
//! | 8 | the first 8 bytes of BLAKE3 of all this |
//!
//! There is room for two notes, in sectors of 512 bytes, from the first multiple of 4096 behind the new image on: they are written in turns, so that
//! one that is torn leaves the other.

use kiln_builder::{Control, Progress};
use kiln_output::{Output, write_all_at};
use kiln_read::ReadAt;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::apply::{Applied, Front, Patch};
use crate::error::DeltaError;
use crate::format::header::Header;
use crate::in_place::read::read_all;
use crate::stop::check_stop;

/// What a note begins with.
const MAGIC: [u8; 8] = *b"\x8Akilnprt";
/// Bytes of a note.
const NOTE_LEN: usize = 8 + 32 + 8 + 8 + 32 + 8;
/// From one note to the other.
const SLOT_LEN: u64 = 512;
const SLOTS: u64 = 2;
/// Notes begin at a multiple of this.
const BLOCK_LEN: u64 = 4096;
/// Bytes that are hashed at a time.
const PART_LEN: usize = 1 << 20;

/// From one note to the next, in bytes of the new image: as much as is made in less than a second.
pub const STEP_LEN: u64 = 32 << 20;

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// As [`Patch::apply`] says it; what was there already is in none of its numbers but the length.
    pub applied: Applied,
    /// Bytes of the new image that an earlier run had left.
    pub there: u64,
}

/// Make the new image in `partial`, which may hold what an earlier run has left: of the same image, by whatever patch. A note is made every `step_len`
/// bytes. In the end `partial` is the new image, not synced.
///
/// # Errors
/// As [`Patch::apply`]. Nothing is written if the old image is another one.
pub fn apply<R: Read + Send>(
    patch: Patch<R>,
    old: Arc<dyn ReadAt>,
    partial: &dyn Output,
    step_len: u64,
    control: &Control<'_>,
) -> Result<Resumed, DeltaError> {
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
    Ok(Resumed { applied, there })
}

/// Bytes of the new image that a run has left in `partial`, by its notes.
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
    DeltaError::Write { action: "read what there is of the new image", source }
}

/// The image to make.
struct NewImage {
    len: u64,
    digest: [u8; 32],
}

/// What a note says, and which one it is.
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

    /// The notes about this image, the shorter front first.
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

    /// The longest front that is what its note says, and where the next note goes.
    fn front(&self, partial: &dyn Output, stop: &AtomicBool) -> Result<(Front, u64), DeltaError> {
        let (mut front, mut slot) = (Front::default(), 0);
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

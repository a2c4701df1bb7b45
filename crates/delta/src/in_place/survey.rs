//! Comparison of a target with a journal before anything is written: whether the journal was
//! written for it, and how much of the journal it has.
//!
//! Every sector to be replaced must be the old one or the new one, or zeros in the first block, and
//! the result must have the BLAKE3 digest of the new image. Then the result can only be the new
//! image, even if the journal was forged.

use kiln_output::Output;
use std::ops::Range;
use std::sync::atomic::AtomicBool;

use crate::error::DeltaError;
use crate::first_block;
use crate::in_place::head::Head;
use crate::in_place::target::{Resize, Target};
use crate::stop::check_stop;

/// Number of bytes hashed at once.
const PART_LEN: usize = 1 << 20;

/// Progress of a target from the old image to the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The target is the old image: nothing was written.
    Old,
    /// Part of the new image was written. A journal completes it.
    Unfinished,
    /// The target is the new image.
    New,
}

/// Counts of the sectors to be replaced.
#[derive(Default)]
struct Counts {
    old: u64,
    new: u64,
    /// Zeros in the first block.
    blank: u64,
    /// Offset of the first sector that is none of these.
    foreign: Option<u64>,
}

/// Compares the target with a journal.
///
/// # Errors
/// [`DeltaError::WrongTarget`]; a damaged journal; a file that cannot be read; an interruption.
pub(super) fn survey<D: Output>(
    head: &Head,
    journal: &dyn Output,
    target: &Target<D>,
    stop: &AtomicBool,
) -> Result<Standing, DeltaError> {
    check_identity(head, target)?;
    let (mut counts, mut hasher) = (Counts::default(), blake3::Hasher::new());
    let (mut at, mut there) = (0, Vec::new());
    head.records(journal, &mut |record| {
        check_stop(stop)?;
        hash(&mut hasher, target, at..record.off, stop)?;
        there.resize(record.bytes.len(), 0);
        target.read_padded(&mut there, record.off)?;
        for sector in record.sectors() {
            let (found, new) = (&there[sector.range.clone()], &record.bytes[sector.range.clone()]);
            let (is_new, is_old) = (found == new, sector.is_old(found));
            let off = record.off + sector.range.start as u64;
            match (is_old, is_new) {
                (true, true) => {}
                (true, false) => counts.old += 1,
                (false, true) => counts.new += 1,
                (false, false) if off < first_block::LEN as u64 && found.iter().all(|&byte| byte == 0) => {
                    counts.blank += 1;
                }
                (false, false) => counts.foreign = counts.foreign.or(Some(off)),
            }
        }
        hasher.update(record.bytes);
        at = record.end();
        Ok(())
    })?;
    hash(&mut hasher, target, at..head.new_len, stop)?;
    if let Some(off) = counts.foreign {
        return wrong(format!("its bytes at {off} are neither those of the old image nor those of the new one"));
    }
    if *hasher.finalize().as_bytes() != head.new_digest {
        return wrong("the journal would not turn it into the new image (BLAKE3 differs)".to_owned());
    }
    let final_len = if target.resize == Resize::ToImage { head.new_len } else { head.target_len };
    Ok(match counts {
        Counts { old: 0, blank: 0, .. } if target.len == final_len => Standing::New,
        Counts { new: 0, blank: 0, .. } if target.len == head.target_len => Standing::Old,
        _ => Standing::Unfinished,
    })
}

fn wrong<T>(what: String) -> Result<T, DeltaError> {
    Err(DeltaError::WrongTarget { what })
}

/// Checks identity and length of the target, but not its contents.
fn check_identity<D>(head: &Head, target: &Target<D>) -> Result<(), DeltaError> {
    if let Some((name, expected, found)) = head.identity.difference(&target.identity) {
        return wrong(format!("its {name} is {found}, but the journal is of the device with {expected}"));
    }
    let lens = match target.resize {
        Resize::ToImage => head.target_len.min(head.new_len)..=head.target_len.max(head.new_len),
        Resize::Never => head.target_len..=head.target_len,
    };
    if !lens.contains(&target.len) {
        return wrong(format!("it has {} bytes, but the journal is of one with {}", target.len, head.target_len));
    }
    Ok(())
}

/// Hashes the bytes of the target in `range`.
pub(super) fn hash<D: Output>(
    hasher: &mut blake3::Hasher,
    target: &Target<D>,
    range: Range<u64>,
    stop: &AtomicBool,
) -> Result<(), DeltaError> {
    let (mut at, mut part) = (range.start, Vec::new());
    while at < range.end {
        check_stop(stop)?;
        part.resize((range.end - at).min(PART_LEN as u64) as usize, 0);
        target.read_padded(&mut part, at)?;
        hasher.update(&part);
        at += part.len() as u64;
    }
    Ok(())
}

//! Applying of a patch over the old image itself, on a block device or in a file.
//!
//! There are two steps, so that a crash at any moment leaves the old image, or a journal that
//! completes the new one:
//!
//! 1. The new image is made and verified, while the old one is only read. Blocks that differ from
//!    the target's are written to the journal, together with digests of the blocks that they
//!    replace. The journal is synced, and then gets its head, which says that it is complete, and
//!    for which target.
//! 2. The journal's blocks are written to the target, synced, and verified with the BLAKE3 digest
//!    of the new image. The first block is zeros meanwhile and is written last, so that an
//!    incomplete image is not valid. Only then may the journal be removed.
//!
//! A journal with a head is replayed from its beginning, however often the second step was
//! interrupted; one without a head is started over. Before anything is written, `survey` checks
//! that the target is the one that the journal was written for, because a name may refer to another
//! device by now.

mod blocks;
mod head;
pub(crate) mod read;
mod records;
mod replay;
mod survey;
mod target;

pub use head::is_journal;
pub use survey::Standing;
pub use target::{Identity, Resize, Target};

use kiln_builder::{Control, Progress};
use kiln_output::Output;
use kiln_read::ReadAt;
use std::io::{self, ErrorKind, Read};
use std::sync::atomic::AtomicBool;

use crate::apply::{ApplyReport, NewPrefix, Patch};
use crate::error::DeltaError;
use blocks::Blocks;
use head::{Found, Head};
use records::RecordsWriter;
use replay::replay;
use survey::survey;

/// Result of applying in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InPlace {
    /// The patch was applied.
    Applied(ApplyReport),
    /// A journal of an earlier run was replayed.
    Resumed,
    /// The target was the new image already.
    WasThere,
}

/// Applies `patch` over the old image. On return the journal is no longer needed. After an error or
/// a crash, the target is the old image, or the same call with the same journal completes the new
/// one, as [`complete`] does. Progress counts bytes of the new image as they are made.
///
/// # Errors
/// Those of [`Patch::apply`]; a journal of another patch that is not completely applied, or of
/// another target; a target that is too small; a full disk.
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
    let found = Head::read(journal)?;
    if let Found::Head(head) = &found {
        let is_of_patch = head.new_digest == new_digest;
        match survey(head, journal, target, stop)? {
            Standing::Unfinished if !is_of_patch => {
                let what =
                    "is that of another patch, which is not completely applied: complete that one first".to_owned();
                return Err(DeltaError::Journal { what });
            }
            Standing::New if is_of_patch => return Ok(InPlace::WasThere),
            _ if is_of_patch => {
                replay(head, journal, target)?;
                return Ok(InPlace::Resumed);
            }
            // Nothing was written, or everything.
            Standing::Old | Standing::Unfinished | Standing::New => {}
        }
    }
    match standing_by_patch(&patch, target, stop)? {
        Ok(Standing::New) => return Ok(InPlace::WasThere),
        Ok(_) => {}
        Err(DeltaError::WrongOld { .. }) if matches!(found, Found::Damaged) => {
            return Err(DeltaError::Journal {
                what: "has a damaged head, and its target is not the old image".to_owned(),
            });
        }
        Err(error) => return Err(error),
    }
    patch.check_encoders()?;
    let mut records = RecordsWriter::new(journal);
    // A journal of an earlier run has no head, or is not needed.
    journal.set_len(0).and_then(|()| journal.sync()).map_err(read::write_failed)?;
    let old_uuid = patch.header().old_uuid;
    let mut blocks = Blocks::new(target, &mut records);
    let applied = patch.apply_unchecked(
        target.source(),
        NewPrefix::default(),
        &mut |off, bytes, _| {
            blocks.take(off, bytes)?;
            (control.progress)(Progress { done_bytes: off + bytes.len() as u64, total_bytes: new_len });
            Ok(())
        },
        stop,
    )?;
    blocks.end(new_len)?;
    let (records, identity) = (records.finish()?, target.identity.clone());
    let head = Head { new_digest, new_len, old_uuid, target_len: target.len, records, identity };
    // Verify the journal as it is on disk.
    head.records(journal, &mut |_| crate::stop::check_stop(stop))?;
    head.write(journal)?;
    replay(&head, journal, target)?;
    Ok(InPlace::Applied(applied))
}

/// Completes an interrupted [`apply`] from its journal alone.
///
/// # Errors
/// A journal that is incomplete or of another target; errors of the system.
pub fn complete<D: Output>(target: &Target<D>, journal: &dyn Output, stop: &AtomicBool) -> Result<InPlace, DeltaError> {
    let head = match Head::read(journal)? {
        Found::Head(head) => head,
        Found::Nothing => {
            let what = "is not complete: nothing was written to the target, so there is nothing to complete".to_owned();
            return Err(DeltaError::Journal { what });
        }
        Found::Damaged => return Err(DeltaError::Journal { what: "has a damaged head".to_owned() }),
    };
    match survey(&head, journal, target, stop)? {
        Standing::New => Ok(InPlace::WasThere),
        Standing::Old | Standing::Unfinished => {
            replay(&head, journal, target)?;
            Ok(InPlace::Resumed)
        }
    }
}

/// Compares a target with a journal. Returns `None` if the journal is incomplete, in which case
/// nothing was written to the target.
///
/// # Errors
/// Those of [`complete`].
pub fn standing<D: Output>(
    target: &Target<D>,
    journal: &dyn Output,
    stop: &AtomicBool,
) -> Result<Option<Standing>, DeltaError> {
    match Head::read(journal)? {
        Found::Head(head) => survey(&head, journal, target, stop).map(Some),
        Found::Nothing => Ok(None),
        Found::Damaged => Err(DeltaError::Journal { what: "has a damaged head".to_owned() }),
    }
}

/// Compares a target with both images of a patch. The inner error says why it is neither.
///
/// # Errors
/// A patch or a target that cannot be read; an interruption.
pub fn standing_by_patch<D: Output + Send + Sync + 'static, R: Read + Send>(
    patch: &Patch<R>,
    target: &Target<D>,
    stop: &AtomicBool,
) -> Result<Result<Standing, DeltaError>, DeltaError> {
    let (source, header) = (target.source(), patch.header());
    match patch.check_old(&*source, stop) {
        Ok(()) => Ok(Ok(Standing::Old)),
        Err(error @ DeltaError::WrongOld { .. }) => {
            let fits = match target.resize {
                Resize::ToImage => target.len == header.new_len,
                Resize::Never => target.len >= header.new_len,
            };
            Ok(match fits && is_new(&*source, header.new_len, &header.new_digest, stop)? {
                true => Ok(Standing::New),
                false => Err(error),
            })
        }
        Err(error) => Err(error),
    }
}

fn is_new(source: &dyn ReadAt, len: u64, digest: &[u8; 32], stop: &AtomicBool) -> Result<bool, DeltaError> {
    let whole = 0..len;
    Ok(crate::apply::used_digest(std::slice::from_ref(&whole), source, stop)? == *digest)
}

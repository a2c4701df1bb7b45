//! The second step: writing of a journal's blocks to the target.

use kiln_output::{Output, write_all_at};
use std::sync::atomic::AtomicBool;

use crate::error::DeltaError;
use crate::first_block;
use crate::in_place::head::Head;
use crate::in_place::survey::hash;
use crate::in_place::target::{Resize, Target};

/// Writes the journal's records to the target. The first block is zeros until everything else is
/// synced and matches the BLAKE3 digest of the new image, so that an incomplete image is not valid.
/// This is not interruptible.
pub(super) fn replay<D: Output>(head: &Head, journal: &dyn Output, target: &Target<D>) -> Result<(), DeltaError> {
    let device = &*target.device;
    let write_failed = DeltaError::write("write the new image");
    let sync_failed = DeltaError::write("sync the new image");
    let (front_len, mut front) = (first_block::len_in(head.new_len), Vec::new());
    first_block::blank(device, front_len).map_err(&write_failed)?;
    head.records(journal, &mut |record| {
        let in_front = (front_len as u64).saturating_sub(record.off).min(record.bytes.len() as u64) as usize;
        let (first, rest) = record.bytes.split_at(in_front);
        front.extend_from_slice(first);
        write_all_at(device, rest, record.off + in_front as u64).map_err(&write_failed)
    })?;
    let mut written = Target { device: target.device.clone(), identity: target.identity.clone(), ..*target };
    if target.resize == Resize::ToImage {
        device.set_len(head.new_len).map_err(&sync_failed)?;
        written.len = head.new_len;
    }
    device.sync().map_err(&sync_failed)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&front);
    hash(&mut hasher, &written, front_len as u64..head.new_len, &AtomicBool::new(false))?;
    if *hasher.finalize().as_bytes() != head.new_digest {
        return Err(DeltaError::NotWritten);
    }
    first_block::write(device, &front).map_err(&write_failed)
}

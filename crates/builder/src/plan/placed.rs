//! Files whose data is on devices already, so that it is not stored.

use kiln_format::BlockBits;
use kiln_format::chunk::CHUNK_MAX_SHIFT;
use std::collections::HashMap;

use crate::context::Context;
use crate::error::{BuildError, InputProblem, Skipped};
use crate::plan::file::{FilePlan, Storage};
use crate::read::skippable;
use kiln_tree::{Device, PlacedRun, placed};

/// Places of files, by index in the plan.
pub(crate) type PlacedFiles = HashMap<u32, Vec<PlacedRun>>;

/// Plans the files that lie `elsewhere`, on devices of the tree: they are not stored. Returns the files, and their
/// runs.
///
/// # Errors
/// A file that the image was to refer to, and cannot, unless such files are to be skipped.
pub(crate) fn plan(
    mut files: Vec<FilePlan>,
    elsewhere: Vec<(u32, Result<Vec<PlacedRun>, BuildError>)>,
    context: Context<'_>,
) -> Result<(Vec<FilePlan>, PlacedFiles), BuildError> {
    let Context { tree, format, ledger, .. } = context;
    let (devices, mut all) = (tree.stores().devices, PlacedFiles::new());
    for (idx, runs) in elsewhere {
        let file = &mut files[idx as usize];
        let found = runs.and_then(|runs| {
            let runs = placed::joined(runs);
            let refuse = |reason| BuildError::Input { path: tree.path(file.node), reason };
            Ok((chunk_bits(file.len, &runs, &devices, format.block_bits).map_err(refuse)?, runs))
        });
        match skippable(found, format)? {
            Ok((chunk_bits, runs)) => {
                (file.storage, file.compression) = (Storage::Placed { chunk_bits }, None);
                all.insert(idx, runs);
            }
            Err(error) => {
                file.storage = Storage::LeftOut;
                ledger.leave_out(Skipped { path: tree.path(file.node), error });
            }
        }
    }
    Ok((files, all))
}

/// Returns log2 of the size of the chunks in which a file of `len` bytes lies on `devices`: as large as possible, so
/// that there are few. Each is a hole, or is part of one run and begins with a block of its device.
fn chunk_bits(len: u64, runs: &[PlacedRun], devices: &[Device], block_bits: BlockBits) -> Result<u8, InputProblem> {
    let (least, block_len) = (block_bits.bits(), block_bits.len());
    let refuse = |run: &PlacedRun, reason| {
        let device = run.device.saturating_add(1);
        Err(InputProblem::Placed { pa: run.pa, device, block_len, reason })
    };
    for run in runs {
        let end = block_bits.blocks_for(run.device_end());
        match devices.get(usize::from(run.device)) {
            None => return refuse(run, "there is no such device"),
            Some(device) if end > device.len >> least => {
                return refuse(run, "the device ends before their last block does");
            }
            Some(_) if !run.pa.is_multiple_of(block_len) => return refuse(run, "they do not begin with a block"),
            // A limit of one run is a limit of all.
            Some(_) if placed::unit_bits(len, &[*run]) < least => {
                return refuse(run, "they begin or end within a block of the file");
            }
            Some(_) => {}
        }
    }
    let whole_file = (u64::BITS - len.saturating_sub(1).leading_zeros()) as u8;
    Ok(whole_file.clamp(least, least + CHUNK_MAX_SHIFT).min(placed::unit_bits(len, runs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_as_large_as_the_runs_allow() {
        let run = |la, pa, len| PlacedRun { la, device: 0, pa, len };
        let device = Device { path: None, tag: [0; 64], len: u64::MAX };
        let bits = |len, runs: &[_], bits| {
            chunk_bits(len, runs, std::slice::from_ref(&device), BlockBits::new(bits).unwrap()).ok()
        };
        // One run is one chunk, as long as chunks can be.
        for (len, expected) in [(1, 9), (512, 9), (513, 10), (100_000, 17), (1 << 20, 20), (5 << 30, 33), (1 << 50, 40)]
        {
            assert_eq!(bits(len, &[run(0, 512, len)], 9), Some(expected), "{len}");
            assert_eq!(bits(len, &[], 9), Some(expected), "a hole of {len}");
        }
        assert_eq!(bits(100_000, &[run(0, 512, 4096), run(65536, 4608, 34464)], 9), Some(12));
        for (pa, block, expected) in [(512, 12, None), (4096, 12, Some(12)), (100, 9, None)] {
            assert_eq!(bits(1000, &[run(0, pa, 1000)], block), expected);
        }
        for runs in [&[run(65536, 4608, 30000)], &[run(100, 512, 4096)]] {
            assert_eq!(bits(100_000, runs, 9), None, "{runs:?}");
        }
        let short = Device { len: 1535, ..device.clone() };
        let on_short = |len| chunk_bits(len, &[run(0, 512, len)], std::slice::from_ref(&short), BlockBits::SECTOR).ok();
        assert_eq!((on_short(512), on_short(513)), (Some(9), None));
        let elsewhere = PlacedRun { device: 1, ..run(0, 512, 1000) };
        assert_eq!(bits(1000, &[elsewhere], 9), None);
    }
}

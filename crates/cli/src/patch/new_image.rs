//! The destination of NEW in `kiln patch apply`: a file, which a later run can continue, a pipe, or a block device.

use super::applying::{Applying, file_failure, said};
use super::room;
use crate::console::progress::Meter;
use crate::console::report::note;
use crate::console::size::Human;
use crate::exit::Failure;
use crate::pack::output::Stream;
use crate::verity::patched::{self, Described, NewImage};
use crate::verity::{Hashing, MadeTree};
use kiln_builder::{Control, Progress};
use kiln_delta::{ApplyReport, DeltaError, Sink, first_block, resumable};
use kiln_output::{AtomicFile, Existing, Place};
use kiln_read::ReadAt;
use std::io::{Error, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

/// Shorter images are made in about a second, in a file without a name, of which nothing remains however the command
/// ends.
const RESUMABLE_MIN_LEN: u64 = 2 * resumable::STEP_LEN;

/// A new image to be made.
pub(super) struct Making<'a> {
    pub applying: Applying<'a>,
    /// The old image.
    pub source: Arc<dyn ReadAt>,
    /// Treatment of an existing file.
    pub existing: Existing,
}

impl Making<'_> {
    /// Makes the file `path`.
    pub(super) fn into_file(self, path: &Path) -> Result<ApplyReport, Failure> {
        let (new_len, is_quiet) = (self.applying.patch.header().new_len, self.applying.quiet);
        if new_len >= RESUMABLE_MIN_LEN {
            return self.into_resumable_file(path);
        }
        let file = AtomicFile::create(path, self.existing)?;
        room::check(path, file.file(), new_len)?;
        let (tree, existing, work) = (self.applying.patch.header().new_tree.clone(), self.existing, self.applying.work);
        let signals = self.applying.signals;
        let mut write = |off: u64, bytes: &[u8]| file.file().write_all_at(bytes, off).map_err(write_failed);
        let applied = self.apply(&mut write, is_quiet)?;
        let hashing = Hashing { work: Some(work), quiet: is_quiet, signals };
        let made = NewImage { path, file, existing }.publish(tree.as_ref(), new_len, hashing)?;
        tell(&applied, made.as_ref(), path, is_quiet);
        Ok(applied)
    }

    fn into_resumable_file(self, path: &Path) -> Result<ApplyReport, Failure> {
        let Self { applying, source, existing } = self;
        let meter = applying.meter();
        let Applying { patch, quiet, work: applying_work, signals, of_patch, .. } = applying;
        let header = patch.header().clone();
        let hashing = Hashing { work: Some(applying_work), quiet, signals };
        let file = AtomicFile::resume(path, existing)?;
        let metadata = file.file().metadata().map_err(file_failure(path, "look at"))?;
        let has_more = metadata.len() > 0;
        // Blocks that the file has already need no more room.
        let needed = header.new_len.saturating_sub(metadata.blocks().saturating_mul(512));
        let result = room::check(path, file.file(), needed).and_then(|()| {
            let progress = |Progress { done_bytes, total_bytes }: Progress| meter.set(done_bytes, total_bytes);
            let control = Control { stop: signals.stop(), progress: &progress };
            resumable::apply(patch, source, &file, resumable::STEP_LEN, &control).map_err(of_patch)
        });
        drop(meter);
        let resumed = match result {
            Ok(resumed) => resumed,
            // A wrong image must not be continued.
            Err(failure @ Failure::Delta { source: DeltaError::WrongNew, .. }) => return Err(failure),
            Err(failure) => {
                let kept_len = resumable::kept_len(&header, &file).unwrap_or(0);
                let kept = if kept_len > 0 { file.keep() } else { None };
                if let Some(kept) = kept.filter(|_| !quiet) {
                    let (kept_len, kept) = (Human(kept_len), kept.display());
                    note(format_args!(
                        "{kept_len} are kept in {kept}: the same command goes on from there; or remove it"
                    ));
                }
                return Err(failure);
            }
        };
        let new = NewImage { path, file, existing };
        let made = new.publish(header.new_tree.as_ref(), header.new_len, hashing)?;
        if !quiet && has_more {
            let (path, there) = (path.display(), Human(resumed.there));
            match resumed.there {
                0 => note(format_args!("{path}: begun anew: what an earlier run had left was of no use")),
                _ => note(format_args!("{path}: went on behind the first {there}, which an earlier run had left")),
            }
        }
        tell(&resumed.applied, made.as_ref(), path, quiet);
        Ok(resumed.applied)
    }

    /// Writes the new image front to back. Only the exit code tells that it is right.
    pub(super) fn into_stream(self, stream: &Stream) -> Result<ApplyReport, Failure> {
        let is_quiet = self.applying.quiet || stream.is_stderr();
        let (header, name) = (self.applying.patch.header().clone(), stream.name());
        let described = header.new_tree.as_ref().map(|tree| Described::of(tree, header.new_len, name)).transpose()?;
        let hashing = Hashing { work: Some(self.applying.work), quiet: is_quiet, signals: self.applying.signals };
        let mut leaves = described.as_ref().map(Described::leaves_in_order);
        let mut write = |_: u64, bytes: &[u8]| {
            leaves.iter_mut().for_each(|leaves| leaves.put(bytes));
            (&*stream).write_all(bytes).map_err(write_failed)
        };
        let applied = self.apply(&mut write, is_quiet)?;
        let made = described.zip(leaves).map(|(described, leaves)| {
            let tree = described.of_leaves(leaves.finish(), name, hashing)?;
            let written = tree.write(described.superblock(), header.new_len, &mut &*stream);
            written.map_err(file_failure(name, "write"))?;
            Ok::<_, Failure>(MadeTree::new(&tree, None, header.new_len))
        });
        let made = made.transpose()?;
        stream.sync()?;
        tell(&applied, made.as_ref(), name, is_quiet);
        Ok(applied)
    }

    /// Writes the new image over a block device.
    pub(super) fn onto_device(self, path: &Path) -> Result<ApplyReport, Failure> {
        if self.existing == Existing::Keep {
            return Err(Failure::Exists { path: path.to_owned() });
        }
        let failed = |action| file_failure(path, action);
        let device_of =
            |path: &Path| std::fs::metadata(path).map(|found| (found.file_type().is_block_device(), found.rdev()));
        if device_of(path).ok() == device_of(self.applying.old).ok() {
            let path = path.display();
            return Err(Failure::Usage(format!("{path}: OLD and NEW are one device: use --in-place")));
        }
        let place = Place::device(path)?;
        let mut file = place.file();
        let (len, new_len) =
            (file.seek(SeekFrom::End(0)).map_err(failed("find the end of"))?, self.applying.patch.header().new_len);
        let new_tree = self.applying.patch.header().new_tree.clone();
        let hashing =
            Hashing { work: Some(self.applying.work), quiet: self.applying.quiet, signals: self.applying.signals };
        let described = new_tree.as_ref().map(|tree| Described::of(tree, new_len, path)).transpose()?;
        let whole_len = new_len.saturating_add(described.as_ref().map_or(0, Described::stored_len));
        if len < whole_len {
            let what = format!("the image has {whole_len} bytes, the device {len}");
            return Err(failed("write")(Error::new(ErrorKind::StorageFull, what)));
        }
        let (mut front, is_quiet) = (vec![0; first_block::len_in(new_len)], self.applying.quiet);
        let applied = self.apply(
            &mut |off: u64, bytes: &[u8]| {
                if off == 0 {
                    first_block::blank(file, front.len()).map_err(write_failed)?;
                }
                let in_front = (front.len() as u64).saturating_sub(off).min(bytes.len() as u64) as usize;
                if in_front > 0 {
                    front[off as usize..][..in_front].copy_from_slice(&bytes[..in_front]);
                }
                file.write_all_at(&bytes[in_front..], off + in_front as u64).map_err(write_failed)
            },
            is_quiet,
        )?;
        file.sync_all().map_err(failed("write"))?;
        first_block::write(file, &front)
            .map_err(failed("sync it (the new image is in place all the same, but a crash may undo that)"))?;
        let made = patched::append(path, file, new_len, described.as_ref(), hashing)?;
        tell(&applied, made.as_ref(), path, is_quiet);
        Ok(applied)
    }

    fn apply(self, write: &mut Sink<'_>, is_quiet: bool) -> Result<ApplyReport, Failure> {
        let Self { applying, source, .. } = self;
        let meter = if is_quiet { Meter::Nothing } else { applying.meter() };
        let Applying { patch, signals, of_patch, .. } = applying;
        let new_len = patch.header().new_len;
        let mut sink = |off: u64, bytes: &[u8]| {
            write(off, bytes)?;
            meter.set(off + bytes.len() as u64, new_len);
            Ok(())
        };
        patch.apply(source, &mut sink, signals.stop()).map_err(of_patch)
    }
}

fn write_failed(source: Error) -> DeltaError {
    DeltaError::Write { action: "write the new image", source }
}

fn tell(applied: &ApplyReport, tree: Option<&MadeTree>, path: &Path, is_quiet: bool) {
    if !is_quiet {
        note(format_args!("{}", said(applied)));
        if let Some(tree) = tree {
            tree.tell_all(path);
        }
    }
}

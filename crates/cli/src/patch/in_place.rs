//! `kiln patch apply --in-place`

use super::applying::{Applying, file_failure, said};
use super::journal::{self, Journal};
use super::make::open;
use super::{room, target};
use crate::console::report::note;
use crate::exit::Failure;
use crate::process::signals::Signals;
use crate::verity::Hashing;
use crate::verity::patched::{self, Described};
use crate::verity::sealing::set_aside;
use kiln_builder::{Control, Progress};
use kiln_delta::in_place::{self, InPlace, Resize, Standing, Target};
use kiln_delta::{DeltaError, first_block};
use kiln_output::read_exact_at;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Applies a patch in place of OLD.
pub(super) fn run(applying: Applying<'_>, journal: Option<&Path>) -> Result<InPlace, Failure> {
    let meter = applying.meter();
    let Applying { patch, old, quiet, work, signals, of_patch } = applying;
    let hashing = Hashing { work: Some(work), quiet, signals };
    let header = patch.header().clone();
    let described = header.new_tree.as_ref().map(|tree| Described::of(tree, header.new_len, old)).transpose()?;
    let mut target = target::open_to_write(old)?;
    let journal = Journal::create(journal::place(old, &target, journal))?;
    let tree_len = described.as_ref().map_or(0, Described::stored_len);
    let has_room = target.resize == Resize::ToImage || target.len >= header.new_len.saturating_add(tree_len);
    if !has_room && journal.is_empty() && target.len >= header.new_len {
        journal.remove()?;
        let source = io::ErrorKind::StorageFull.into();
        return Err(file_failure(old, "append a hash tree to the new image on")(source));
    }
    if let Some(end) = patched::behind(old, &*open(old)?)? {
        // A file ends where its tree begins.
        if target.resize == Resize::ToImage {
            target.len = end;
        }
        match in_place::standing_by_patch(&patch, &target, signals.stop()).map_err(of_patch)? {
            Ok(Standing::New) if described.as_ref().is_some_and(|tree| tree.is_at(old, end)) => {
                if journal.is_empty() {
                    journal.remove()?;
                }
                tell(&InPlace::WasThere, old, &journal, quiet);
                return Ok(InPlace::WasThere);
            }
            Err(error) if journal.is_empty() => {
                journal.remove()?;
                return Err(of_patch(error));
            }
            _ => patched::cut(old, &target.device, end, target.resize == Resize::Never)?,
        }
    }
    let (new_len, changed_len) = (patch.header().new_len, patch.header().changed_len);
    let result = match journal.is_empty() {
        true => check_room(&journal, &target, changed_len, new_len),
        false => Ok(()),
    };
    let is_blank = journal.is_empty() && is_blank(&target);
    let result = result.and_then(|()| {
        let progress = |Progress { done_bytes, total_bytes }: Progress| meter.set(done_bytes, total_bytes);
        let control = Control { stop: signals.stop(), progress: &progress };
        in_place::apply(patch, &target, &journal.file, &control).map_err(|error| match error {
            error @ DeltaError::WrongOld { .. } if is_blank => {
                let (old, journal) = (old.to_owned(), journal.path.clone());
                Failure::NoJournal { old, journal, source: Box::new(error) }
            }
            error => of_journal(error, old, &journal, of_patch),
        })
    });
    drop(meter);
    // If nothing was begun, nothing has to be resumed.
    if result.is_ok() || journal.is_empty() {
        journal.remove()?;
    }
    let done = result?;
    tell(&done, old, &journal, quiet);
    let made = patched::append_in_place(old, &target.device, header.new_len, described.as_ref(), hashing)?;
    if let Some(made) = made.filter(|_| !quiet) {
        made.tell_all(old);
    }
    Ok(done)
}

/// Completes the work of an earlier run from its journal.
pub(super) fn complete(old: &Path, journal: Option<&Path>, signals: &Signals, quiet: bool) -> Result<InPlace, Failure> {
    let target = target::open_to_write(old)?;
    let path = journal::place(old, &target, journal);
    let Some(journal) = Journal::open(path.clone())? else {
        let (old, path) = (old.display(), path.display());
        return Err(Failure::Usage(format!("{old}: no journal at {path}: there is nothing to complete")));
    };
    let done = in_place::complete(&target, &journal.file, signals.stop()).map_err(|error| {
        let of_target = |error| match (error, signals.caught()) {
            (DeltaError::Interrupted, Some(number)) => Failure::Signal(number),
            (source, _) => Failure::Delta { path: old.to_owned(), source },
        };
        of_journal(error, old, &journal, &of_target)
    })?;
    set_aside(old, None)?;
    journal.remove()?;
    tell(&done, old, &journal, quiet);
    Ok(done)
}

/// Returns an error about a journal with its path; `rest` converts all others.
fn of_journal(error: DeltaError, old: &Path, journal: &Journal, rest: &dyn Fn(DeltaError) -> Failure) -> Failure {
    match error {
        source @ DeltaError::Journal { .. } => Failure::Delta { path: journal.path.clone(), source },
        source @ DeltaError::NotWritten => Failure::Delta { path: old.to_owned(), source },
        error @ DeltaError::WrongTarget { .. } => {
            let (old, journal) = (old.to_owned(), journal.path.clone());
            Failure::Journal { old, journal, source: Box::new(error) }
        }
        error => rest(error),
    }
}

fn tell(done: &InPlace, old: &Path, journal: &Journal, quiet: bool) {
    if quiet {
        return;
    }
    match done {
        InPlace::Applied(applied) => note(format_args!("{}", said(applied))),
        InPlace::Resumed => note(format_args!("{}: completed from {}", old.display(), journal.path.display())),
        InPlace::WasThere => note(format_args!("{}: is the new image already", old.display())),
    }
}

/// Returns whether a target is half written and its journal is not in the expected place.
fn is_blank(target: &Target<File>) -> bool {
    let mut front = [1; first_block::LEN];
    read_exact_at(&*target.device, &mut front, 0).is_ok() && front.iter().all(|&byte| byte == 0)
}

/// Checks that the journal fits, and that a file can become as long as NEW.
fn check_room(journal: &Journal, target: &Target<File>, changed_len: u64, new_len: u64) -> Result<(), Failure> {
    let grows = match target.resize {
        Resize::ToImage => new_len.saturating_sub(target.len),
        Resize::Never => 0,
    };
    // On the same filesystem both need room at the same time.
    let is_one = |metadata: [std::io::Result<Metadata>; 2]| match metadata {
        [Ok(a), Ok(b)] => a.dev() == b.dev(),
        _ => false,
    };
    let shared = if is_one([journal.file.metadata(), target.device.metadata()]) { grows } else { 0 };
    room::check(&journal.path, &journal.file, changed_len.saturating_add(shared))
}

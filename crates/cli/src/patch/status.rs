//! `kiln patch apply --in-place --status`

use super::applying::PatchInput;
use super::journal::{self, Journal};
use super::make::open;
use super::target;
use crate::console::report::{Out, note, print_document};
use crate::exit::{Exit, Failure, InPlaceState};
use crate::process::signals::Signals;
use crate::verity::patched;
use kiln_delta::in_place::{self, Resize, Standing, Target};
use kiln_delta::{DeltaError, Patch};
use serde::Serialize;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

#[derive(Serialize)]
struct StatusJson {
    state: &'static str,
    /// The journal that the state comes from, if there is a complete one.
    journal: Option<String>,
    /// The reason why the state is unknown.
    reason: Option<String>,
}

/// A state, and the reason why it is unknown.
type Found = (InPlaceState, Option<String>);

/// Prints the state of an update in place: from its journal, and from the patch if there is one.
pub(super) fn run(
    old: &Path,
    patch: Option<Patch<PatchInput>>,
    journal: Option<&Path>,
    signals: &Signals,
    json: bool,
) -> Result<Exit, Failure> {
    let failed = |error| match (error, signals.caught()) {
        (DeltaError::Interrupted, Some(number)) => Failure::Signal(number),
        (source, _) => Failure::Delta { path: old.to_owned(), source },
    };
    let mut target = target::open_to_read(old)?;
    // A file ends where its hash tree begins.
    if target.resize == Resize::ToImage {
        target.len = patched::behind(old, &*open(old)?)?.unwrap_or(target.len);
    }
    let path = journal::place(old, &target, journal);
    let by_journal = by_journal(&target, &path, signals.stop(), &failed)?;
    let has_journal = by_journal.is_some();
    let (state, reason) = match (by_journal, patch) {
        // A half-written image is unfinished for any patch.
        (Some(found), None) | (Some(found @ (InPlaceState::Unfinished, _)), _) => found,
        (by_journal, Some(patch)) => match (by_patch(&patch, &target, signals.stop()).map_err(failed)?, by_journal) {
            ((InPlaceState::Unknown, _), Some(found @ (InPlaceState::Unknown, _))) => found,
            (found, _) => found,
        },
        (None, None) => {
            let reason = format!("there is no journal at {}, and no PATCH to compare it with", path.display());
            (InPlaceState::Unknown, Some(reason))
        }
    };
    if let Some(reason) = &reason {
        note(format_args!("{}: {reason}", old.display()));
    }
    if json {
        let journal = has_journal.then(|| path.display().to_string());
        print_document(&StatusJson { state: state.name(), journal, reason })?;
    } else {
        let mut out = Out::new();
        writeln!(out, "{}", state.name())?;
        out.finish()?;
    }
    Ok(Exit::InPlace(state))
}

fn known(standing: Standing) -> Found {
    let state = match standing {
        Standing::Old => InPlaceState::Old,
        Standing::Unfinished => InPlaceState::Unfinished,
        Standing::New => InPlaceState::New,
    };
    (state, None)
}

fn unknown(reason: String) -> Found {
    (InPlaceState::Unknown, Some(reason))
}

/// Returns the state according to the journal; `None` if there is no complete one.
fn by_journal(
    target: &Target<File>,
    path: &Path,
    stop: &AtomicBool,
    failed: &dyn Fn(DeltaError) -> Failure,
) -> Result<Option<Found>, Failure> {
    let journal = match Journal::look(PathBuf::from(path)) {
        Err(Failure::File { source, .. }) if source.kind() == ErrorKind::ResourceBusy => {
            return Ok(Some(unknown("another process writes or replays its journal".to_owned())));
        }
        opened => opened?,
    };
    let Some(journal) = journal else { return Ok(None) };
    match in_place::standing(target, &journal.file, stop) {
        Ok(standing) => Ok(standing.map(known)),
        Err(error @ DeltaError::WrongTarget { .. }) => Ok(Some(unknown(error.to_string()))),
        Err(error @ DeltaError::Journal { .. }) => Ok(Some(unknown(format!("{}: {error}", path.display())))),
        Err(error) => Err(failed(error)),
    }
}

/// Returns the state according to the patch.
fn by_patch(patch: &Patch<PatchInput>, target: &Target<File>, stop: &AtomicBool) -> Result<Found, DeltaError> {
    in_place::standing_by_patch(patch, target, stop)
        .map(|found| found.map_or_else(|error| unknown(error.to_string()), known))
}

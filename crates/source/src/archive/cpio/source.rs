//! Source that reads a cpio archive.

use kiln_tree::{Contents, Implied};
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::header::Format;
use super::scan::scan;
use crate::archive::members::{Archived, Members};
use crate::error::{SourceError, Unreadable};
use crate::input::candidate::Candidate;
use crate::input::spool::SpoolPlace;
use crate::input::tape::Tape;
use crate::kind::SourceKind;
use crate::places::{ArchivePlaces, Places};
use crate::source::{Scan, ScanOptions, Source, SourceEntries, refuse_output, select_found};

/// The kind "cpio archive".
pub(crate) const KIND: SourceKind = SourceKind {
    name: "cpio",
    title: "a cpio archive",
    is: |candidate| Format::of(candidate.plain_head()).is_some() || is_binary(candidate.plain_head()),
    open,
};

/// Returns true if `head` is the start of the old binary format: 0o070707 in two bytes, in either
/// order.
fn is_binary(head: &[u8]) -> bool {
    matches!(head, [0xC7, 0x71, ..] | [0x71, 0xC7, ..])
}

fn open(candidate: Candidate<'_>) -> Result<Box<dyn Source>, SourceError> {
    let path = candidate.path().to_owned();
    if is_binary(candidate.plain_head()) {
        let reason =
            "the old binary format of cpio is not supported; rewrite the archive, for example with cpio -H newc";
        return Err(SourceError::Unsupported { path, reason: reason.into() });
    }
    let spool_place = candidate.options().spool_place();
    Ok(Box::new(CpioSource { path, spool_place, tape: Mutex::new(Some(candidate.into_raw_tape()?)) }))
}

/// A cpio archive, or an initramfs of several.
struct CpioSource {
    path: PathBuf,
    spool_place: SpoolPlace,
    /// `None` during a read, and after a read that failed: a stream cannot be read twice.
    tape: Mutex<Option<Tape>>,
}

impl CpioSource {
    /// Reads all members, and returns where their data lie, unless any part of the archive is compressed.
    fn read_all(&self, options: &ScanOptions<'_>) -> Result<(Archived, Option<ArchivePlaces>), SourceError> {
        let unreadable = |source| Unreadable { path: self.path.clone(), source };
        let mut tape = self.take_tape()?;
        let mut members = Members::new(&self.path, options, Implied::default());
        scan(&mut tape, &mut members, &self.spool_place)?;
        let is_plain = !tape.is_stream();
        // The spool holds the decompressed text, so a second read decompresses nothing.
        let archive = tape.finish().map_err(unreadable)?;
        let again = Tape::in_place(Arc::clone(&archive)).map_err(unreadable)?;
        *self.tape.lock() = Some(again);
        let len = archive.len().map_err(unreadable)?;
        let archived = members.finish(archive, None)?;
        let places = is_plain.then(|| ArchivePlaces(Places::Stored { files: Arc::clone(&archived.files), len }));
        Ok((archived, places))
    }

    fn take_tape(&self) -> Result<Tape, SourceError> {
        let in_vain = || io::Error::other("an earlier attempt to read the archive failed");
        let tape = self.tape.lock().take();
        tape.ok_or_else(|| Unreadable { path: self.path.clone(), source: in_vain() }.into())
    }
}

impl Source for CpioSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn scan_places(&self, options: &ScanOptions<'_>) -> Result<(Scan, Option<ArchivePlaces>), SourceError> {
        refuse_output(&self.path, options)?;
        let (archived, places) = self.read_all(options)?;
        Ok((select_found(archived.found, &self.path, options)?, places))
    }

    fn contents_at(&self, places: ArchivePlaces) -> Result<Box<dyn Contents>, SourceError> {
        let Places::Stored { files, len } = &places.0 else { return Err(places.not_of(&self.path)) };
        let unreadable = |source| Unreadable { path: self.path.clone(), source };
        let archive = self.take_tape()?.finish_lazily(*len).map_err(unreadable)?;
        Ok(Box::new(files.in_archive(archive)))
    }

    fn read(&self, options: &ScanOptions<'_>) -> Result<SourceEntries, SourceError> {
        Ok(SourceEntries::Everything(self.read_all(options)?.0.found))
    }
}

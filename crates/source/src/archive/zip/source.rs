//! Source that reads a zip archive.

use kiln_tree::Contents;
use rawzip::{MAX_CENTRAL_DIRECTORY_RECORD_SIZE, ZipLocator};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::bytes::{Archive, Windowed};
use super::contents::ZipContents;
use super::ending::Ending;
use super::scan::scan;
use crate::error::{SourceError, Unreadable};
use crate::input::candidate::Candidate;
use crate::input::spool::SpoolPlace;
use crate::kind::SourceKind;
use crate::places::{ArchivePlaces, Places};
use crate::source::{Scan, ScanOptions, Source, SourceEntries, refuse_output, select_found};

/// First bytes of a member, of an archive without members, and of a split archive that fits into
/// one part.
const MAGICS: [&[u8]; 3] = [b"PK\x03\x04", b"PK\x05\x06", b"PK00PK\x03\x04"];
/// First bytes of programs that may have an archive appended.
const PROGRAMS: [&[u8]; 3] = [b"#!", b"MZ", b"\x7FELF"];

/// The kind "zip archive".
pub(crate) const KIND: SourceKind = SourceKind {
    name: "zip",
    title: "a zip archive",
    is: |candidate| MAGICS.iter().any(|magic| candidate.holds(0, magic)) || is_appended_or_split(candidate),
    open: |candidate| Ok(Box::new(open(candidate)?)),
};

/// Returns true for a program with an archive appended, and for the last part of a split archive.
fn is_appended_or_split(candidate: &Candidate<'_>) -> bool {
    let Some(ending) = candidate.bytes().and_then(|bytes| Ending::find(bytes).ok()?) else { return false };
    ending.part > 0 || ending.has_directory && PROGRAMS.iter().any(|front| candidate.holds(0, front))
}

fn open(candidate: Candidate<'_>) -> Result<ZipSource, SourceError> {
    let path = candidate.path().to_owned();
    let spool_place = candidate.options().spool_place();
    let bytes = candidate.into_bytes()?;
    let len = bytes.len().map_err(|source| Unreadable { path: path.clone(), source })?;
    let ending = Ending::find(&*bytes).map_err(|source| Unreadable { path: path.clone(), source })?;
    if let Some(Ending { part: part @ 1.., .. }) = ending {
        let reason = format!(
            "part {} of a split zip archive; join its parts first, for example with zip -s 0 SPLIT.zip --out WHOLE.zip",
            u32::from(part) + 1
        );
        return Err(SourceError::Unsupported { path, reason });
    }
    let mut buf = vec![0; MAX_CENTRAL_DIRECTORY_RECORD_SIZE];
    match ZipLocator::new().locate_in_reader(Windowed::new(bytes), &mut buf, len) {
        Ok(archive) => Ok(ZipSource { archive: Arc::new(archive), path, spool_place }),
        Err((_, error)) => {
            let offset = error.eocd_offset().unwrap_or(len);
            let reason = format!("no central directory of a zip archive: {error}");
            Err(SourceError::Malformed { path, offset, reason })
        }
    }
}

struct ZipSource {
    archive: Arc<Archive>,
    path: PathBuf,
    spool_place: SpoolPlace,
}

impl Source for ZipSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn scan_places(&self, options: &ScanOptions<'_>) -> Result<(Scan, Option<ArchivePlaces>), SourceError> {
        refuse_output(&self.path, options)?;
        let (found, files) = scan(&self.archive, &self.path, &self.spool_place, options)?;
        Ok((select_found(found, &self.path, options)?, Some(ArchivePlaces(Places::Packed(files)))))
    }

    fn contents_at(&self, places: ArchivePlaces) -> Result<Box<dyn Contents>, SourceError> {
        let Places::Packed(files) = &places.0 else { return Err(places.not_of(&self.path)) };
        let bytes = self.archive.get_ref().bytes.clone();
        Ok(Box::new(ZipContents::new(bytes, Arc::clone(files), &self.spool_place)))
    }

    fn read(&self, options: &ScanOptions<'_>) -> Result<SourceEntries, SourceError> {
        let (found, _) = scan(&self.archive, &self.path, &self.spool_place, options)?;
        Ok(SourceEntries::Everything(found))
    }
}

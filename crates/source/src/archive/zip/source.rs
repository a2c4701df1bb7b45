//! A zip archive as a source.

use rawzip::{MAX_CENTRAL_DIRECTORY_RECORD_SIZE, ZipLocator};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::bytes::{Archive, Bytes};
use super::ending::Ending;
use super::scan::scan;
use crate::error::{SourceError, Unreadable};
use crate::input::candidate::Candidate;
use crate::input::spool::SpoolPlace;
use crate::kind::SourceKind;
use crate::source::{ScanOptions, Scanned, Source};

/// First bytes of a member, of an archive without members, and of one that was to be split and was not.
const MAGICS: [&[u8]; 3] = [b"PK\x03\x04", b"PK\x05\x06", b"PK00PK\x03\x04"];
/// First bytes of programs, behind which an archive may lie.
const PROGRAMS: [&[u8]; 3] = [b"#!", b"MZ", b"\x7FELF"];

/// Zip archives as a kind of source.
pub(crate) const KIND: SourceKind = SourceKind {
    name: "zip",
    title: "a zip archive",
    is: |candidate| MAGICS.iter().any(|magic| candidate.holds(0, magic)) || is_behind(candidate),
    open: |candidate| Ok(Box::new(open(candidate)?)),
};

/// Tells if it is a program with an archive behind it, or the last part of an archive that was split.
fn is_behind(candidate: &Candidate<'_>) -> bool {
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
            "part {} of a ZIP archive that was split: join its parts first, as with zip -s 0 SPLIT.zip --out WHOLE.zip",
            u32::from(part) + 1
        );
        return Err(SourceError::Unsupported { path, reason });
    }
    let mut buf = vec![0; MAX_CENTRAL_DIRECTORY_RECORD_SIZE];
    match ZipLocator::new().locate_in_reader(Bytes(bytes), &mut buf, len) {
        Ok(archive) => Ok(ZipSource { archive: Arc::new(archive), path, spool_place }),
        Err((_, error)) => {
            let offset = error.eocd_offset().unwrap_or(len);
            let reason = format!("no directory of a zip archive: {error}");
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

    fn read(&self, options: &ScanOptions<'_>) -> Result<Scanned, SourceError> {
        scan(&self.archive, &self.path, &self.spool_place, options).map(Scanned::Everything)
    }
}

//! A zip archive as a source.

use rawzip::{MAX_CENTRAL_DIRECTORY_RECORD_SIZE, ZipLocator};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::bytes::{Archive, Bytes};
use super::scan::scan;
use crate::error::{SourceError, Unreadable};
use crate::input::candidate::Candidate;
use crate::input::spool::SpoolPlace;
use crate::kind::SourceKind;
use crate::source::{ScanOptions, Scanned, Source};

/// What a member, and an archive without members, begins with.
const MAGICS: [&[u8]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];

/// Zip archives as a kind of source.
pub(crate) const KIND: SourceKind = SourceKind {
    name: "zip",
    title: "a zip archive",
    is: |candidate| MAGICS.iter().any(|magic| candidate.holds(0, magic)),
    open: |candidate| Ok(Box::new(open(candidate)?)),
};

fn open(candidate: Candidate<'_>) -> Result<ZipSource, SourceError> {
    let path = candidate.path().to_owned();
    let spool_place = candidate.options().spool_place();
    let bytes = candidate.into_bytes()?;
    let len = bytes.len().map_err(|source| Unreadable { path: path.clone(), source })?;
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

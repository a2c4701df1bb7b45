//! Source that reads an ext2, ext3 or ext4 image.

use kiln_read::ReadAt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::scan::scan;
use super::superblock::{MAGIC, MAGIC_OFF, Refused, SUPERBLOCK_LEN, SUPERBLOCK_OFF, Superblock};
use super::volume::Volume;
use crate::error::{SourceError, Unreadable};
use crate::input::candidate::Candidate;
use crate::kind::SourceKind;
use crate::source::{ScanOptions, Source, SourceEntries};

/// The kind "ext2, ext3 or ext4 image".
pub(crate) const KIND: SourceKind = SourceKind {
    name: "ext4",
    title: "an ext2, ext3 or ext4 image",
    is: |candidate| candidate.holds(MAGIC_OFF, &MAGIC.to_le_bytes()),
    open: |candidate| Ok(Box::new(open(candidate)?)),
};

fn open(candidate: Candidate<'_>) -> Result<Ext4Source, SourceError> {
    let path = candidate.path().to_owned();
    let bytes = candidate.into_bytes()?;
    let mut record = [0; SUPERBLOCK_LEN];
    bytes.read_exact_at(&mut record, SUPERBLOCK_OFF).map_err(|source| Unreadable { path: path.clone(), source })?;
    match Superblock::decode(&record) {
        Ok(superblock) => Ok(Ext4Source { bytes, superblock, path }),
        Err(Refused::Unsupported(reason)) => Err(SourceError::Unsupported { path, reason }),
        Err(Refused::Malformed(error)) => {
            Err(SourceError::Malformed { path, offset: SUPERBLOCK_OFF, reason: format!("the superblock: {error}") })
        }
    }
}

struct Ext4Source {
    bytes: Arc<dyn ReadAt>,
    superblock: Superblock,
    path: PathBuf,
}

impl Source for Ext4Source {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self, options: &ScanOptions<'_>) -> Result<SourceEntries, SourceError> {
        let volume = Volume::new(Arc::clone(&self.bytes), self.superblock.clone())
            .map_err(|source| Unreadable { path: self.path.clone(), source })?;
        scan(&volume, Arc::clone(&self.bytes), &self.path, options).map(SourceEntries::Everything)
    }
}

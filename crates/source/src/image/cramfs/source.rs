//! Source that reads a cramfs image.

use kiln_read::ReadAt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::scan::scan;
use super::superblock::{CRC_AT, Refused, Superblock, find};
use super::volume::Volume;
use crate::error::{SourceError, Unreadable};
use crate::input::candidate::Candidate;
use crate::kind::SourceKind;
use crate::source::{ScanOptions, Source, SourceEntries};

/// The kind "cramfs image".
pub(crate) const KIND: SourceKind = SourceKind {
    name: "cramfs",
    title: "a cramfs image",
    is: |candidate| find(candidate.head()).is_some(),
    open: |candidate| Ok(Box::new(CramfsSource::open(candidate)?)),
};

/// Length in bytes of the pieces read to check the CRC.
const PIECE_LEN: u64 = 1 << 18;

struct CramfsSource {
    path: PathBuf,
    bytes: Arc<dyn ReadAt>,
    superblock: Superblock,
    /// Length of the image in bytes.
    len: u64,
}

impl CramfsSource {
    fn open(candidate: Candidate<'_>) -> Result<Self, SourceError> {
        let (path, superblock) = (candidate.path().to_owned(), Superblock::decode(candidate.head()));
        let bytes = candidate.into_bytes()?;
        let superblock = match superblock {
            Ok(superblock) => superblock,
            Err(Refused::Unsupported(reason)) => return Err(SourceError::Unsupported { path, reason }),
            Err(Refused::Malformed(offset, reason)) => return Err(SourceError::Malformed { path, offset, reason }),
        };
        let found_len = bytes.len().map_err(|source| Unreadable { path: path.clone(), source })?;
        let len = superblock.checked.map_or(found_len, |(len, _)| len);
        if len > found_len || len < superblock.root_off() {
            let reason = format!("the superblock: size = {len}, but the image has {found_len} bytes");
            return Err(SourceError::Malformed { path, offset: superblock.off + 4, reason });
        }
        Ok(Self { path, bytes, superblock, len })
    }

    /// Checks the CRC of the image, if it has one.
    fn check_crc(&self, options: &ScanOptions<'_>) -> Result<(), SourceError> {
        let Some((_, expected)) = self.superblock.checked else { return Ok(()) };
        let unreadable = |source: io::Error| Unreadable { path: self.path.clone(), source };
        let crc_off = self.superblock.off + CRC_AT as u64;
        let (mut crc, mut buf, mut off) = (flate2::Crc::new(), vec![0; PIECE_LEN as usize], self.superblock.off);
        while off < self.len {
            options.check_stop()?;
            let piece = &mut buf[..PIECE_LEN.min(self.len - off) as usize];
            self.bytes.read_exact_at(piece, off).map_err(unreadable)?;
            if off == self.superblock.off {
                piece[CRC_AT..][..4].fill(0);
            }
            crc.update(piece);
            off += piece.len() as u64;
        }
        if crc.sum() == expected {
            return Ok(());
        }
        let reason = format!("the superblock: crc = {expected:#010x}, but the CRC of the image is {:#010x}", crc.sum());
        Err(SourceError::Malformed { path: self.path.clone(), offset: crc_off, reason })
    }
}

impl Source for CramfsSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self, options: &ScanOptions<'_>) -> Result<SourceEntries, SourceError> {
        let intact = self.check_crc(options);
        let (bytes, superblock) = (Arc::clone(&self.bytes), &self.superblock);
        let volume = Volume { bytes, order: superblock.order, root_off: superblock.root_off(), len: self.len };
        scan(&Arc::new(volume), &self.path, intact, options).map(SourceEntries::Everything)
    }
}

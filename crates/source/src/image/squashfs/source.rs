//! Source that reads a SquashFS image.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::blocks::Blocks;
use super::codec::Compressor;
use super::contents::FRAGMENTS_LEN;
use super::problem::Problem;
use super::scan::scan;
use super::superblock::{LEN, MAGIC_BIG, MAGIC_LITTLE, Refusal, Superblock, u16_le, u32_le};
use crate::error::{SourceError, Unreadable};
use crate::input::candidate::Candidate;
use crate::kind::SourceKind;
use crate::source::{ScanOptions, Source, SourceEntries};

/// The kind "SquashFS image".
pub(crate) const KIND: SourceKind = SourceKind {
    name: "squashfs",
    title: "a SquashFS image",
    is: |candidate| candidate.holds(0, MAGIC_LITTLE) || candidate.holds(0, MAGIC_BIG),
    open: |candidate| Ok(Box::new(SquashfsSource::open(candidate)?)),
};

/// A SquashFS image.
struct SquashfsSource {
    path: PathBuf,
    superblock: Superblock,
    blocks: Arc<Blocks>,
    /// Most bytes of decoded fragment blocks in memory.
    fragments_len: u64,
}

impl SquashfsSource {
    fn open(candidate: Candidate<'_>) -> Result<Self, SourceError> {
        let path = candidate.path().to_owned();
        let fragments_len = candidate.options().cache_bytes.unwrap_or(FRAGMENTS_LEN);
        let head = candidate.head()[..candidate.head().len().min(LEN)].to_vec();
        let bytes = candidate.into_bytes()?;
        let len = bytes.len().map_err(|source| Unreadable { path: path.clone(), source })?;
        let superblock = match Superblock::new(&head, len) {
            Ok(superblock) => superblock,
            Err(Refusal::Unsupported(reason)) => return Err(SourceError::Unsupported { path, reason }),
            Err(Refusal::Malformed(offset, reason)) => return Err(SourceError::Malformed { path, offset, reason }),
        };
        let blocks = Arc::new(Blocks::new(bytes, superblock.bytes_used, superblock.compressor));
        match check_options(&blocks, &superblock) {
            Ok(None) => Ok(Self { path, superblock, blocks, fragments_len }),
            Ok(Some(reason)) => Err(SourceError::Unsupported { path, reason }),
            Err(problem) => Err(problem.of_image(&path)),
        }
    }
}

/// Returns a message if the compressor's options are not supported. Only LZ4 has an option that
/// affects decoding: its version. The options are in an uncompressed metadata block after the
/// superblock.
fn check_options(blocks: &Blocks, superblock: &Superblock) -> Result<Option<String>, Problem> {
    if superblock.compressor != Compressor::Lz4 || !superblock.has_compressor_options {
        return Ok(None);
    }
    let mut options = [0; 6];
    blocks.read(&mut options, LEN as u64, "the options of the compressor")?;
    let (len, version) = (u16_le(&options, 0) & 0x7FFF, u32_le(&options, 2));
    Ok((len < 4 || version != 1)
        .then(|| format!("SquashFS with version {version} of LZ4: only version 1 is supported")))
}

impl Source for SquashfsSource {
    fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the image. An inode with several names is one node.
    fn read(&self, options: &ScanOptions<'_>) -> Result<SourceEntries, SourceError> {
        match scan(&self.blocks, &self.superblock, &self.path, self.fragments_len, options) {
            Ok(scan) => Ok(SourceEntries::Everything(scan)),
            Err(problem) => Err(problem.of_image(&self.path)),
        }
    }
}

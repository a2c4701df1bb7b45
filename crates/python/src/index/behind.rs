//! An index behind its image, in the same file: it begins where the image ends, so that one request has it. Drivers and other programs
//! see an image with bytes behind its end.
//!
//! ```text
//! 0   8  "kilnbhd" and the version, 1
//! 8   8  bytes in all
//! 16  16 UUID of the image
//! 32  8  bytes of the question
//! 40  24 zeros
//! 64  .. the question that the index answers, padded to a multiple of 64
//! ..  .. the index, as in a file of its own, with its digest
//! ```

use super::columns::Columns;
use super::labels::LabelDepth;
use super::scan::{IndexFilter, normal};
use super::stored;
use crate::arguments::What;
use kiln_read::{FileSource, Image, ReadAt};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"kilnbhd\x01";
const HEAD_LEN: usize = 64;
/// Bytes that are asked for first, at most: most indexes are shorter, and need no second request.
const FIRST_LEN: u64 = 1 << 20;

/// Place where the bytes of an image are.
pub(crate) enum Origin {
    /// In a file.
    File(PathBuf),
    /// Behind an object of Python.
    Object(Arc<dyn ReadAt>),
    /// In memory, where an index is found as fast as it is made.
    Memory,
}

/// Returns the question that an index answers, as bytes: equal questions have equal answers.
pub(crate) fn question(root: &What, filter: &IndexFilter, depth: Option<LabelDepth>) -> Vec<u8> {
    let depth = depth.map(|LabelDepth(depth)| depth.to_string().into_bytes());
    let mut endings: Vec<_> = filter.endings.iter().map(|ending| ending.to_ascii_lowercase()).collect();
    endings.sort();
    let optional = |text: Option<Vec<u8>>| text.map_or(vec![0], |text| [&[1], &text[..]].concat());
    let front = [root.path().map(normal).unwrap_or_default(), optional(filter.glob.clone()), optional(depth)];
    stored::strings(&[&front[..], &endings].concat()).to_vec()
}

/// The index behind the image, if there is one that answers this question. One that is damaged is none: its files are looked for anew.
pub(crate) fn find(image: &Image, origin: &Origin, offset: u64, question: &[u8]) -> Option<Columns> {
    let end = image_len(image);
    let room = image.source_len().checked_sub(end).filter(|&room| room > HEAD_LEN as u64)?;
    let source: Arc<dyn ReadAt> = match origin {
        Origin::File(path) => Arc::new(FileSource::open(path).ok()?),
        Origin::Object(source) => source.clone(),
        Origin::Memory => return None,
    };
    let mut bytes = vec![0; room.min(FIRST_LEN) as usize];
    source.read_exact_at(&mut bytes, offset + end).ok()?;
    let len = len_of(&bytes, &image.superblock().uuid).filter(|&len| len <= room)?;
    let number = |at: usize| bytes[at..].first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes));
    let asked_len = usize::try_from(number(32)?).ok()?;
    if bytes.get(HEAD_LEN..HEAD_LEN.checked_add(asked_len)?)? != question {
        return None;
    }
    let read = bytes.len() as u64;
    bytes.resize(usize::try_from(len).ok()?, 0);
    if read < len {
        source.read_exact_at(&mut bytes[read as usize..], offset + end + read).ok()?;
    }
    let index = bytes.get((HEAD_LEN + asked_len).next_multiple_of(HEAD_LEN)..)?;
    let columns = stored::from_bytes(stored::aligned(index)).ok()?;
    (columns.uuid == image.superblock().uuid).then_some(columns)
}

/// Write an index behind its image in the file at `path`, in place of one that is there; how many bytes it takes.
///
/// # Errors
/// A file that cannot be written, or has something else behind the image.
pub(crate) fn store(image: &Image, path: &Path, question: &[u8], columns: &Columns) -> io::Result<u64> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let (end, len) = (image_len(image), file.metadata()?.len());
    if len > end {
        let mut head = vec![0; HEAD_LEN.min((len - end) as usize)];
        file.read_exact_at(&mut head, end)?;
        if len_of(&head, &image.superblock().uuid) != Some(len - end) {
            let message = format!("{} bytes lie behind the image, which are no index of it", len - end);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
    }
    let index = stored::to_bytes(columns);
    let index_at = (HEAD_LEN + question.len()).next_multiple_of(HEAD_LEN);
    let mut bytes = vec![0; index_at];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&((index_at + index.len()) as u64).to_le_bytes());
    bytes[16..32].copy_from_slice(&image.superblock().uuid);
    bytes[32..40].copy_from_slice(&(question.len() as u64).to_le_bytes());
    bytes[HEAD_LEN..][..question.len()].copy_from_slice(question);
    bytes.extend(index);
    file.set_len(end)?;
    file.write_all_at(&bytes, end)?;
    file.sync_all()?;
    Ok(bytes.len() as u64)
}

/// The length that a head says, if it is that of an index of this image.
fn len_of(head: &[u8], uuid: &[u8; 16]) -> Option<u64> {
    let is_head = head.len() >= HEAD_LEN && head.starts_with(MAGIC) && head[16..32] == uuid[..];
    is_head.then(|| head[8..].first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes)))?
}

/// Bytes of the image itself.
fn image_len(image: &Image) -> u64 {
    let superblock = image.superblock();
    superblock.blocks.saturating_mul(superblock.block_bits.len())
}

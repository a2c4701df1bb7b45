//! Index behind its image, in the same file: it begins where the image ends, so that one request
//! fetches it. Drivers and other programs see an image with bytes behind its end.
//!
//! ```text
//! 0   8  "kilnbhd" and the version, 1
//! 8   8  length in bytes, head and index
//! 16  16 UUID of the image
//! 32  8  length in bytes of the key
//! 40  24 zeros
//! 64  .. key: the query that the index answers, padded to a multiple of 64
//! ..  .. the index, as in a file of its own, with its digest
//! ```

use super::columns::Columns;
use super::filter::{IndexFilter, normal};
use super::labels::LabelDepth;
use super::stored;
use crate::arguments::FileRef;
use kiln_read::{FileSource, Image, ReadAt};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"kilnbhd\x01";
const HEAD_LEN: usize = 64;
/// Largest length in bytes of the first request: most indexes are shorter, and need no second one.
const FIRST_LEN: u64 = 1 << 20;

/// Source of the bytes of an image.
pub(crate) enum Origin {
    /// A file.
    File(PathBuf),
    /// An object of Python.
    Object(Arc<dyn ReadAt>),
    /// Memory, in which a scan is as fast as reading an index.
    Memory,
}

/// Returns a query as bytes: equal queries have equal answers.
pub(super) fn key(root: &FileRef, filter: &IndexFilter, depth: Option<LabelDepth>) -> Vec<u8> {
    let depth = depth.map(|LabelDepth(depth)| depth.to_string().into_bytes());
    let mut endings: Vec<_> = filter.endings.iter().map(|ending| ending.to_ascii_lowercase()).collect();
    endings.sort();
    let optional = |text: Option<Vec<u8>>| text.map_or(vec![0], |text| [&[1], &text[..]].concat());
    let front = [root.path().map(normal).unwrap_or_default(), optional(filter.glob.clone()), optional(depth)];
    stored::strings(&[&front[..], &endings].concat()).to_vec()
}

/// Returns the index behind the image if it answers the query with this key. A damaged index is
/// ignored.
pub(super) fn find(image: &Image, origin: &Origin, offset: u64, key: &[u8]) -> Option<Columns> {
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
    let key_len = usize::try_from(number(32)?).ok()?;
    if bytes.get(HEAD_LEN..HEAD_LEN.checked_add(key_len)?)? != key {
        return None;
    }
    let read = bytes.len() as u64;
    bytes.resize(usize::try_from(len).ok()?, 0);
    if read < len {
        source.read_exact_at(&mut bytes[read as usize..], offset + end + read).ok()?;
    }
    let index = bytes.get((HEAD_LEN + key_len).next_multiple_of(HEAD_LEN)..)?;
    let columns = stored::from_bytes(stored::aligned(index)).ok()?;
    (columns.uuid == image.superblock().uuid).then_some(columns)
}

/// Writes an index behind its image in the file at `path`, and replaces an older one. Returns its
/// length in bytes.
///
/// # Errors
/// The file cannot be written, or has other bytes behind the image.
pub(crate) fn store(image: &Image, path: &Path, key: &[u8], columns: &Columns) -> io::Result<u64> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let (end, len) = (image_len(image), file.metadata()?.len());
    if len > end {
        let mut head = vec![0; HEAD_LEN.min((len - end) as usize)];
        file.read_exact_at(&mut head, end)?;
        if len_of(&head, &image.superblock().uuid) != Some(len - end) {
            let message = format!("{} bytes behind the image are not an index of it", len - end);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
    }
    let index = stored::to_bytes(columns);
    let index_at = (HEAD_LEN + key.len()).next_multiple_of(HEAD_LEN);
    let mut bytes = vec![0; index_at];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&((index_at + index.len()) as u64).to_le_bytes());
    bytes[16..32].copy_from_slice(&image.superblock().uuid);
    bytes[32..40].copy_from_slice(&(key.len() as u64).to_le_bytes());
    bytes[HEAD_LEN..][..key.len()].copy_from_slice(key);
    bytes.extend(index);
    file.set_len(end)?;
    file.write_all_at(&bytes, end)?;
    file.sync_all()?;
    Ok(bytes.len() as u64)
}

/// Returns the length in a head, or `None` if it is not the head of an index of this image.
fn len_of(head: &[u8], uuid: &[u8; 16]) -> Option<u64> {
    let is_head = head.len() >= HEAD_LEN && head.starts_with(MAGIC) && head[16..32] == uuid[..];
    is_head.then(|| head[8..].first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes)))?
}

/// Returns the length in bytes of the image itself.
fn image_len(image: &Image) -> u64 {
    let superblock = image.superblock();
    superblock.blocks.saturating_mul(superblock.block_bits.len())
}

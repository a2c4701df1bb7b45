//! Search for the tree of an image.

use crate::error::{Part, VerityError};
use crate::open::{Location, read_superblock};
use crate::shape::{Shape, tree_off};
use crate::sidecar::{Sidecar, with_suffix};
use crate::superblock::{MAGIC, Parameters};
use kiln_digest::Algorithm;
use kiln_read::ReadAt;
use std::io;
use std::path::{Path, PathBuf};

/// Place of a tree that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundTree {
    /// The file with the tree: the image itself, or one beside it.
    pub path: PathBuf,
    /// Position of the superblock and the tree.
    pub location: Location,
    /// File that names tree and root hash.
    pub sidecar: Option<Sidecar>,
}

/// Searches for the tree of the image at `path`, which `image` reads: behind the image, which ends at byte `end` if
/// that is known; then as `IMAGE.dmverity` says; then in `IMAGE.verity`. Nothing of the tree is verified.
///
/// # Errors
/// Files that cannot be read, or are none of these.
pub fn find_tree(path: &Path, image: &dyn ReadAt, end: Option<u64>) -> Result<Option<FoundTree>, VerityError> {
    let sidecar = Sidecar::read(&Sidecar::path_of(path))?;
    let behind = |hash_off| FoundTree { path: path.to_owned(), location: Location::Behind { hash_off }, sidecar };
    if let Some(hash_off) = find_behind(image, end)? {
        return Ok(Some(behind(hash_off)));
    }
    if let Some(sidecar) = sidecar {
        return Ok(Some(behind(sidecar.hash_off)));
    }
    let beside = with_suffix(path, ".verity");
    Ok(beside.exists().then_some(FoundTree { path: beside, location: Location::Beside { hash_off: 0 }, sidecar: None }))
}

/// Searches for a superblock behind an image. If its end is not known, the whole file is an image and a tree: their
/// lengths follow from that of the file.
///
/// # Errors
/// Bytes that cannot be read.
pub fn find_behind(image: &dyn ReadAt, end: Option<u64>) -> Result<Option<u64>, VerityError> {
    let failed = |source: io::Error| VerityError::Read { part: Part::Tree, off: 0, source };
    let len = image.len().map_err(failed)?;
    let by_end = end.into_iter().flat_map(|end| [4096, 512].map(|align| end.checked_next_multiple_of(align)));
    let sizes = || (9..=16).map(|bits| 1u32 << bits);
    let pairs = sizes().flat_map(|data| sizes().map(move |hash| (data, hash)));
    let by_len = pairs.flat_map(|sizes| Algorithm::ALL.map(|algorithm| split(len, algorithm, sizes)));
    for hash_off in by_end.chain(by_len).flatten() {
        let mut magic = [0; MAGIC.len()];
        if hash_off.checked_add(512).is_some_and(|end| end <= len) {
            image.read_exact_at(&mut magic, hash_off).map_err(failed)?;
        }
        if magic == MAGIC {
            return Ok(Some(hash_off));
        }
    }
    Ok(None)
}

/// Returns the end of the data in a file of `len` bytes that consists of data and their tree.
fn split(len: u64, algorithm: Algorithm, sizes: (u32, u32)) -> Option<u64> {
    let (data_block_size, hash_block_size) = sizes;
    let total = |data_blocks: u64| {
        let parameters = Parameters { algorithm, data_block_size, hash_block_size, data_blocks, salt: Vec::new() };
        let shape = Shape::new(&parameters).ok()?;
        tree_off(parameters.data_len(), hash_block_size)?.checked_add(shape.tree_len())
    };
    // The sum grows with the number of blocks.
    let (mut low, mut high) = (1, len / u64::from(data_block_size));
    while low < high {
        let middle = low + (high - low) / 2;
        if total(middle)? < len { low = middle + 1 } else { high = middle }
    }
    (total(low)? == len).then_some(low * u64::from(data_block_size))
}

/// Reads the tree that lies in a file of its own, and returns false if there is no superblock at its start.
///
/// # Errors
/// Bytes that cannot be read; a damaged superblock.
pub fn is_tree(file: &dyn ReadAt) -> Result<bool, VerityError> {
    let failed = |source: io::Error| VerityError::Read { part: Part::Tree, off: 0, source };
    let mut magic = [0; MAGIC.len()];
    if file.len().map_err(failed)? < MAGIC.len() as u64 {
        return Ok(false);
    }
    file.read_exact_at(&mut magic, 0).map_err(failed)?;
    if magic != MAGIC {
        return Ok(false);
    }
    read_superblock(file, 0).map(|_| true)
}

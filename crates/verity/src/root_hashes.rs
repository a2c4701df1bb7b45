//! Root hashes by which an image is read.

use crate::control::Control;
use crate::error::{Part, VerityError};
use crate::find::{find_behind, find_tree};
use crate::open::Location;
use crate::verified::VerifiedSource;
use crate::verify::{Report, verify};
use kiln_digest::Digest;
use kiln_read::{FileSource, ReadAt, ReadError, SourceLayer, Superblock};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Byte of an EROFS image at which its superblock begins.
const EROFS_SUPERBLOCK_OFF: u64 = 1024;

/// Bytes that are enough for that superblock.
const EROFS_SUPERBLOCK_LEN: u64 = 512;

/// Root hashes of an image and of its extra devices, in order, and the places of their hash trees.
///
/// ```no_run
/// use kiln_read::ImageSources;
/// use kiln_verity::RootHashes;
/// use std::path::Path;
///
/// let root_hash = std::fs::read_to_string("image.roothash")?.trim().parse()?;
/// let path = Path::new("image.erofs");
/// let layer = RootHashes::new(vec![root_hash]).layer(path, &[])?;
/// let image = ImageSources::from_paths(path, &[]).with_layer(layer).open(&Default::default())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RootHashes {
    hashes: Vec<Digest>,
    trees: Vec<TreeFile>,
}

/// Source of a hash tree that is not behind its data.
#[derive(Clone)]
pub enum TreeFile {
    /// A file.
    Path(PathBuf),
    /// Any other source.
    Source(Arc<dyn ReadAt>),
}

/// A tree that was found, and what it covers. Nothing of both is verified.
pub struct UnverifiedTree {
    /// Bytes of the data, which may be longer than the tree says.
    pub data: Arc<dyn ReadAt>,
    /// Bytes of the tree.
    pub tree: Arc<dyn ReadAt>,
    /// Place of the tree.
    pub location: Location,
    /// The root hash that the tree must have.
    pub root_hash: Digest,
}

impl RootHashes {
    /// Returns the root hashes of an image and of its extra devices, whose trees are searched: behind the data, then
    /// as `IMAGE.dmverity` says, then in `IMAGE.verity`.
    pub fn new(hashes: Vec<Digest>) -> Self {
        Self { hashes, trees: Vec::new() }
    }

    /// Returns the same root hashes with these trees, in the same order. Others are searched.
    pub fn with_trees(self, trees: Vec<TreeFile>) -> Self {
        Self { trees, ..self }
    }

    /// Returns true if nothing is to be verified.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Returns the layer that verifies all bytes of the image at `image` and of its devices when they are read.
    ///
    /// # Errors
    /// [`VerityError::RootHashCount`].
    pub fn layer(&self, image: &Path, devices: &[PathBuf]) -> Result<SourceLayer, VerityError> {
        let paths = std::iter::once(image).chain(devices.iter().map(PathBuf::as_path));
        self.layer_of(paths.map(|path| Some(path.to_owned())).collect())
    }

    /// Returns the layer for an image without a path: its tree is behind it, or was given.
    ///
    /// # Errors
    /// [`VerityError::RootHashCount`].
    pub fn layer_of_source(&self) -> Result<SourceLayer, VerityError> {
        self.layer_of(vec![None])
    }

    fn layer_of(&self, paths: Vec<Option<PathBuf>>) -> Result<SourceLayer, VerityError> {
        let (expected, hashes, trees) = (paths.len(), self.hashes.len(), self.trees.len());
        if hashes != expected || trees > expected {
            return Err(VerityError::RootHashCount { expected, hashes, trees });
        }
        let all = self.clone();
        Ok(SourceLayer::new(move |device, source| {
            let path = paths.get(usize::from(device)).and_then(Option::as_deref);
            let UnverifiedTree { data, tree, location, root_hash } = all.find(device, path, source)?;
            Ok(Arc::new(VerifiedSource::open(data, tree, location, root_hash)?))
        }))
    }

    /// Finds the tree of device `device`, 0 for the image, whose bytes from the first one on are `source`.
    ///
    /// # Errors
    /// No tree, no root hash; files that cannot be read.
    pub fn find(
        &self,
        device: u16,
        path: Option<&Path>,
        source: Arc<dyn ReadAt>,
    ) -> Result<UnverifiedTree, VerityError> {
        let (expected, hashes, trees) = (usize::from(device) + 1, self.hashes.len(), self.trees.len());
        let root_hash =
            *self.hashes.get(usize::from(device)).ok_or(VerityError::RootHashCount { expected, hashes, trees })?;
        let beside = |tree| (tree, Location::Beside { hash_off: 0 });
        let (tree, location) = match self.trees.get(usize::from(device)) {
            Some(TreeFile::Path(path)) => beside(open(path)?),
            Some(TreeFile::Source(tree)) => beside(Arc::clone(tree)),
            None => search(path, &source)?.ok_or(VerityError::NoTree)?,
        };
        Ok(UnverifiedTree { data: source, tree, location, root_hash })
    }
}

impl UnverifiedTree {
    /// Checks all data and the whole tree, see [`verify`].
    ///
    /// # Errors
    /// Those of [`verify`].
    pub fn verify(&self, control: &Control<'_>) -> Result<Report, VerityError> {
        verify(&self.data, &self.tree, self.location, &self.root_hash, control)
    }
}

impl From<Digest> for RootHashes {
    fn from(root_hash: Digest) -> Self {
        Self::new(vec![root_hash])
    }
}

impl fmt::Debug for TreeFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TreeFile::Path(path) => path.fmt(f),
            TreeFile::Source(_) => f.write_str("ReadAt"),
        }
    }
}

/// Bytes of a tree, and its place there.
type Place = (Arc<dyn ReadAt>, Location);

/// Searches for the tree of data.
fn search(path: Option<&Path>, data: &Arc<dyn ReadAt>) -> Result<Option<Place>, VerityError> {
    let end = image_end(data)?;
    let Some(path) = path else {
        let hash_off = find_behind(data, end)?;
        return Ok(hash_off.map(|hash_off| (Arc::clone(data), Location::Behind { hash_off })));
    };
    let Some(found) = find_tree(path, data, end)? else { return Ok(None) };
    let tree = if found.path == path { Arc::clone(data) } else { open(&found.path)? };
    Ok(Some((tree, found.location)))
}

/// Returns the end of an EROFS image as its superblock has it. Nothing is verified yet: it is only a place at which a
/// tree may begin, and a wrong one has no tree with the root hash.
fn image_end(data: &dyn ReadAt) -> Result<Option<u64>, VerityError> {
    let failed = |source| VerityError::Read { part: Part::Data, off: EROFS_SUPERBLOCK_OFF, source };
    let Some(room) = data.len().map_err(failed)?.checked_sub(EROFS_SUPERBLOCK_OFF) else { return Ok(None) };
    let mut bytes = vec![0; room.min(EROFS_SUPERBLOCK_LEN) as usize];
    data.read_exact_at(&mut bytes, EROFS_SUPERBLOCK_OFF).map_err(failed)?;
    let superblock = Superblock::decode(&bytes).ok();
    Ok(superblock.and_then(|superblock| superblock.blocks.checked_mul(superblock.block_bits.len())))
}

fn open(path: &Path) -> Result<Arc<dyn ReadAt>, VerityError> {
    let failed = |error: ReadError| VerityError::Read { part: Part::Tree, off: 0, source: io::Error::from(error) };
    Ok(Arc::new(FileSource::open(path).map_err(failed)?))
}

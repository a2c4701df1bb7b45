//! Hash trees of the images of a patch: the patch describes that of the new image, and it is made again.

use super::made::{self, Hashing, MadeTree};
use super::padded::Padded;
use super::sealing::{self, BesideFile, ImageIn, Named, Sealing};
use super::{BesideKind, erofs, failure, open};
use crate::exit::Failure;
use kiln_delta::NewTree;
use kiln_output::{AtomicFile, Durability, Existing, write_all_at};
use kiln_parallel::Threads;
use kiln_read::ReadAt;
use kiln_verity::{
    BlockHasher, LeafHasher, MAGIC, SUPERBLOCK_LEN, Superblock, Tree, beside, find_behind, read_superblock,
};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Returns the byte at which the tree behind an image begins, if there is one. A tree of an unknown kind is none: for a
/// patch it is a part of the image.
pub fn behind(path: &Path, source: &dyn ReadAt) -> Result<Option<u64>, Failure> {
    let found = find_behind(source, erofs(path).map(|erofs| erofs.end)).map_err(|error| failure(path, error))?;
    Ok(found.filter(|&hash_off| read_superblock(source, hash_off).is_ok()))
}

/// Returns an image without the tree behind it.
pub fn front(source: Arc<dyn ReadAt>, behind: Option<u64>) -> Arc<dyn ReadAt> {
    match behind {
        Some(end) => Arc::new(Padded { source, len: end, padded_len: end }),
        None => source,
    }
}

/// Describes the tree that begins at byte `hash_off` of the image at `path`.
///
/// # Errors
/// A tree that does not fit the image; bytes that cannot be read; an interruption.
pub fn describe(path: &Path, hash_off: u64, hashing: Hashing<'_>) -> Result<NewTree, Failure> {
    let fail = |error| failure(path, error);
    let source = open(path)?;
    let superblock = read_superblock(&source, hash_off).map_err(fail)?;
    let (_, stored) = Tree::stored(&source, hash_off, hashing.threads()).map_err(fail)?;
    let made = made::make(&source, &superblock.parameters, path, hashing)?;
    let covers_all = superblock.parameters.data_len() == hash_off;
    if !covers_all || stored.is_some_and(|stored| stored.root_hash() != made.root_hash()) {
        return Err(Failure::UnfitTree { image: path.to_owned() });
    }
    let mut bytes = [0; SUPERBLOCK_LEN];
    let read = |source| Failure::File { path: path.to_owned(), action: "read", source };
    source.read_exact_at(&mut bytes, hash_off).map_err(read)?;
    Ok(NewTree { superblock: bytes, root_hash: made.root_hash().as_bytes().to_vec() })
}

/// The tree that a patch describes, which its new image of `len` bytes gets.
pub struct Described<'a> {
    tree: &'a NewTree,
    superblock: Superblock,
    len: u64,
}

impl<'a> Described<'a> {
    /// Decodes a description of the patch at `path`.
    ///
    /// # Errors
    /// A superblock that is damaged, or of a tree over another image.
    pub fn of(tree: &'a NewTree, len: u64, path: &Path) -> Result<Self, Failure> {
        let superblock = Superblock::decode(&tree.superblock, 0).map_err(|error| failure(path, error.into()))?;
        let described = Self { tree, superblock, len };
        if described.superblock.parameters.data_len() != len {
            return Err(described.wrong(path));
        }
        Ok(described)
    }

    /// Returns the length of superblock and tree.
    pub fn stored_len(&self) -> u64 {
        let shape = kiln_verity::Shape::new(&self.superblock.parameters);
        let tree = kiln_verity::tree_off(self.len, self.superblock.parameters.hash_block_size);
        let end = shape.ok().zip(tree).and_then(|(shape, off)| off.checked_add(shape.tree_len()));
        end.unwrap_or(u64::MAX) - self.len
    }

    /// Returns true if this very tree begins at byte `hash_off` of the image at `path`.
    pub fn is_at(&self, path: &Path, hash_off: u64) -> bool {
        let stored = open(path).ok().and_then(|source| Tree::stored(&source, hash_off, Threads::PROCESSORS).ok());
        stored.is_some_and(|(superblock, tree)| {
            let has_root_hash = tree.is_none_or(|tree| tree.root_hash().as_bytes() == self.tree.root_hash);
            superblock == self.superblock && has_root_hash
        })
    }

    /// Makes the tree of `data`, which is the new image, and compares its root hash.
    ///
    /// # Errors
    /// Another root hash; errors of the system; an interruption.
    pub fn make(&self, data: &dyn ReadAt, path: &Path, hashing: Hashing<'_>) -> Result<Tree, Failure> {
        self.check(made::make(data, &self.superblock.parameters, path, hashing)?, path)
    }

    /// Makes the tree of blocks that have been hashed.
    ///
    /// # Errors
    /// Another root hash.
    pub fn of_leaves(&self, leaves: LeafHasher, path: &Path, hashing: Hashing<'_>) -> Result<Tree, Failure> {
        let tree = Tree::of_leaves(leaves, &self.superblock.parameters, hashing.threads());
        self.check(tree.map_err(|error| failure(path, error))?, path)
    }

    /// Returns a collection for the digests of blocks that come front to back.
    pub fn leaves_in_order(&self) -> InOrder {
        let parameters = &self.superblock.parameters;
        let hasher = BlockHasher::new(parameters.algorithm, &parameters.salt);
        let block_size = parameters.data_block_size as usize; // 16 bits
        InOrder { leaves: LeafHasher::new(hasher, block_size), block_size, next: 0, rest: Vec::new() }
    }

    /// Returns the superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    fn check(&self, tree: Tree, path: &Path) -> Result<Tree, Failure> {
        if tree.root_hash().as_bytes() == self.tree.root_hash { Ok(tree) } else { Err(self.wrong(path)) }
    }

    fn wrong(&self, path: &Path) -> Failure {
        Failure::UnfitTree { image: path.to_owned() }
    }
}

/// Digests of blocks that come front to back, in pieces of any length.
pub struct InOrder {
    leaves: LeafHasher,
    block_size: usize,
    /// Number of the next block.
    next: u64,
    /// Bytes of a block that is not whole.
    rest: Vec<u8>,
}

impl InOrder {
    /// Takes the next bytes.
    pub fn put(&mut self, mut bytes: &[u8]) {
        if !self.rest.is_empty() {
            let missing = (self.block_size - self.rest.len()).min(bytes.len());
            self.rest.extend(&bytes[..missing]);
            bytes = &bytes[missing..];
            if self.rest.len() < self.block_size {
                return;
            }
            let rest = std::mem::take(&mut self.rest);
            self.put_blocks(&rest);
        }
        let whole = bytes.len() - bytes.len() % self.block_size;
        self.put_blocks(&bytes[..whole]);
        self.rest.extend(&bytes[whole..]);
    }

    /// Returns the digests. Bytes of a block that is not whole are left out.
    pub fn finish(self) -> LeafHasher {
        self.leaves
    }

    fn put_blocks(&mut self, blocks: &[u8]) {
        self.leaves.put(self.next, blocks);
        self.next += (blocks.len() / self.block_size) as u64;
    }
}

/// A new file that gets an image, its tree, and a root hash beside it.
pub struct NewImage<'a> {
    pub path: &'a Path,
    pub file: AtomicFile,
    pub existing: Existing,
}

impl NewImage<'_> {
    /// Gives the image its name, with the tree that the patch describes, if there is one, behind it.
    ///
    /// # Errors
    /// Another root hash; errors of the system; an interruption.
    pub fn publish(self, tree: Option<&NewTree>, len: u64, hashing: Hashing<'_>) -> Result<Option<MadeTree>, Failure> {
        let described = tree.map(|tree| Described::of(tree, len, self.path)).transpose()?;
        let (made, named) = self.seal(described.as_ref(), hashing)?;
        if let Err(error) = self.file.commit() {
            named.remove_new();
            return Err(error.into());
        }
        Ok(made)
    }

    /// Appends the tree, and gives what lies beside the image its name.
    fn seal(
        &self,
        described: Option<&Described<'_>>,
        hashing: Hashing<'_>,
    ) -> Result<(Option<MadeTree>, Named), Failure> {
        let Self { path, file, existing } = self;
        let Some(described) = described else {
            sealing::set_aside(path, None)?;
            return Ok((None, Named::default()));
        };
        let mut sealing = Sealing::new(None);
        let root_hash = beside::root_hash_path(path);
        let beside = AtomicFile::create(&root_hash, *existing)?;
        sealing.files.push(BesideFile { kind: BesideKind::RootHash, path: root_hash, file: beside });
        let failed = |source| Failure::File { path: path.to_path_buf(), action: "read back", source };
        let source = file.file().try_clone().and_then(kiln_read::FileSource::from_file).map_err(failed)?;
        let tree = described.make(&source, path, hashing)?;
        let image = ImageIn { file: file.file(), offset: 0, name: path };
        let made = sealing.write(&image, &tree, described.superblock(), described.len)?;
        sealing::set_aside(path, Some(&sealing))?;
        Ok((Some(made), sealing.commit(Durability::Synced)?))
    }
}

/// Writes the tree that a patch describes behind the `len` bytes of the image at `path`, which have been written; if
/// there is none, no older one stays there.
///
/// # Errors
/// Another root hash; errors of the system; an interruption.
pub fn append(
    path: &Path,
    file: &File,
    len: u64,
    described: Option<&Described<'_>>,
    hashing: Hashing<'_>,
) -> Result<Option<MadeTree>, Failure> {
    blank(path, file, len)?;
    let Some(described) = described else { return Ok(None) };
    let data = Padded { source: open(path)?, len, padded_len: len };
    let tree = described.make(&data, path, hashing)?;
    let written = tree.write_at(described.superblock(), len, file);
    written.map_err(|source| Failure::File { path: path.to_owned(), action: "append a hash tree", source })?;
    Ok(Some(MadeTree::new(&tree, None, len)))
}

/// Removes the tree that begins at byte `end` of an image which is about to be overwritten.
pub fn cut(path: &Path, file: &File, end: u64, is_device: bool) -> Result<(), Failure> {
    sealing::set_aside(path, None)?;
    let cut = if is_device { write_all_at(file, &[0; SUPERBLOCK_LEN], end) } else { file.set_len(end) };
    let cut = cut.and_then(|()| file.sync_all());
    cut.map_err(|source| Failure::File { path: path.to_owned(), action: "drop the hash tree of", source })
}

/// Completes an image that a patch has made in place: appends the tree that the patch describes, and writes its root
/// hash beside a file.
///
/// # Errors
/// Another root hash; errors of the system; an interruption.
pub fn append_in_place(
    path: &Path,
    file: &File,
    len: u64,
    described: Option<&Described<'_>>,
    hashing: Hashing<'_>,
) -> Result<Option<MadeTree>, Failure> {
    sealing::set_aside(path, None)?;
    let made = append(path, file, len, described, hashing)?;
    if let Some(made) = made.as_ref().filter(|_| path.is_file()) {
        let path = beside::root_hash_path(path);
        let file = AtomicFile::create(&path, Existing::Replace)?;
        let written = write_all_at(&file, made.root_hash.to_string().as_bytes(), 0);
        written.map_err(|source| Failure::File { path, action: "write", source })?;
        file.commit()?;
    }
    Ok(made)
}

/// Blanks a tree that lies behind the `len` bytes of a new image on a device.
fn blank(path: &Path, file: &File, len: u64) -> Result<(), Failure> {
    let source = open(path)?;
    for behind in [4096, 512].map(|align| len.next_multiple_of(align)) {
        let mut magic = [0; MAGIC.len()];
        if source.read_exact_at(&mut magic, behind).is_ok() && magic == MAGIC {
            let written = write_all_at(file, &[0; SUPERBLOCK_LEN], behind).and_then(|()| file.sync_all());
            return written.map_err(|source| Failure::File { path: path.to_owned(), action: "write", source });
        }
    }
    Ok(())
}

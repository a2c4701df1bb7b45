//! The hash tree of an image that is being written, with all files that belong to it.

use super::args::BesideKind;
use super::made::{Hashing, MadeTree, make};
use super::padded::Padded;
use super::salt::Salt;
use super::{block_size, open};
use crate::console::report::note;
use crate::exit::Failure;
use crate::pack::output::spool_failure;
use kiln_builder::Summary;
use kiln_output::{AtomicFile, Durability, Spool, write_all_at};
use kiln_read::{FileSource, OffsetSource, ReadAt};
use kiln_verity::sidecar::Sidecar;
use kiln_verity::{MAGIC, Parameters, SUPERBLOCK_LEN, Superblock, Tree, beside};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// A file beside an image, which appears with it.
pub struct BesideFile {
    pub kind: BesideKind,
    pub path: PathBuf,
    pub file: AtomicFile,
}

/// The hash tree of an image that is being written.
pub struct Sealing {
    salt: Option<Salt>,
    /// Files that are written with it, in the order of their appearance.
    pub files: Vec<BesideFile>,
}

/// The bytes of an image in a file, from its beginning to the end of the file.
pub struct ImageIn<'a> {
    pub file: &'a File,
    /// Byte of the file at which the image begins.
    pub offset: u64,
    /// Name for messages.
    pub name: &'a Path,
}

impl Sealing {
    /// Starts without files: the tree will be behind the image.
    pub fn new(salt: Option<Salt>) -> Self {
        Self { salt, files: Vec::new() }
    }

    /// Makes the tree of an image that is complete, and writes it and what belongs to it. Nothing gets its name yet.
    ///
    /// # Errors
    /// Errors of the system; an interruption.
    pub fn seal(&self, image: &ImageIn<'_>, summary: &Summary, hashing: Hashing<'_>) -> Result<MadeTree, Failure> {
        let failed = |action| move |source| Failure::File { path: image.name.to_owned(), action, source };
        let source = image.file.try_clone().and_then(FileSource::from_file);
        let source = source.and_then(|source| OffsetSource::new(source, image.offset)).map_err(failed("read back"))?;
        let end = source.len().map_err(failed("read back"))?;
        let size = block_size(Some(summary.block_len));
        let parameters = Parameters {
            data_block_size: size,
            hash_block_size: size,
            salt: self.salt.as_ref().unwrap_or(&Salt::Zero).bytes(Some(summary.uuid))?,
            ..Parameters::new(end.div_ceil(size.into()))
        };
        let data = Padded { source, len: end, padded_len: parameters.data_len() };
        let tree = make(&data, &parameters, image.name, hashing)?;
        self.write(image, &tree, &tree.superblock(None), end)
    }

    /// Writes the tree of an image of `end` bytes, and what belongs to it. Nothing gets its name yet.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn write(
        &self,
        image: &ImageIn<'_>,
        tree: &Tree,
        superblock: &Superblock,
        end: u64,
    ) -> Result<MadeTree, Failure> {
        let beside = self.files.iter().find(|file| file.kind == BesideKind::Tree);
        let made = MadeTree::new(tree, beside.map(|file| &*file.path), end);
        if beside.is_none() {
            let off = image.offset.saturating_add(made.hash_off);
            let written = write(tree, superblock, made.hash_off, image.file, off);
            let path = || image.name.to_owned();
            written.map_err(|source| Failure::File { path: path(), action: "append a hash tree", source })?;
        }
        for BesideFile { kind, path, file } in &self.files {
            let written = match kind {
                BesideKind::Tree => write(tree, superblock, 0, file.file(), 0),
                BesideKind::RootHash => write_all_at(file, made.root_hash.to_string().as_bytes(), 0),
                BesideKind::Sidecar => Sidecar { root_hash: made.root_hash, hash_off: made.hash_off }.write_to(file),
            };
            written.map_err(|source| Failure::File { path: path.clone(), action: "write", source })?;
        }
        Ok(made)
    }

    /// Gives the files their names, right before the image gets its own.
    ///
    /// # Errors
    /// Errors of the system; nothing new remains then.
    pub fn commit(self, durability: Durability) -> Result<Named, Failure> {
        let mut named = Named::default();
        for BesideFile { path, file, .. } in self.files {
            let is_new = file.replaced().is_none();
            if let Err(error) = file.commit_as(durability) {
                named.remove_new();
                return Err(error.into());
            }
            named.files.push((path, is_new));
        }
        Ok(named)
    }
}

/// Files that have their names, though their image has not.
#[derive(Default)]
pub struct Named {
    /// With whether nothing had the name before.
    files: Vec<(PathBuf, bool)>,
}

impl Named {
    /// Removes those that replaced nothing, as their image failed.
    pub fn remove_new(&self) {
        for (path, _) in self.files.iter().filter(|(_, is_new)| *is_new) {
            // The first error is the one to report.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Blanks the tree of an older image that lies where one of the image in `spool` would, which has none and will be
/// written from byte `offset` of `place` on.
pub fn blank_behind(spool: &Spool, place: &Path, offset: u64) -> Result<(), Failure> {
    let failed = |source| Failure::File { path: place.to_owned(), action: "look for a hash tree in", source };
    let end = spool.file().metadata().map_err(failed)?.len();
    let there = open(place)?;
    for behind in [4096, 512].map(|align| end.next_multiple_of(align)) {
        let mut magic = [0; MAGIC.len()];
        let is_there = there.read_exact_at(&mut magic, offset.saturating_add(behind)).is_ok() && magic == MAGIC;
        if is_there {
            let blank = write_all_at(spool.file(), &[0; SUPERBLOCK_LEN], behind);
            return blank.map_err(|source| spool_failure(spool, source));
        }
    }
    Ok(())
}

/// Sets aside what belongs to an older image of the name `image`, except what `sealing` replaces.
pub fn set_aside(image: &Path, sealing: Option<&Sealing>) -> Result<(), Failure> {
    let kept: Vec<_> = sealing.into_iter().flat_map(|sealing| &sealing.files).map(|file| &*file.path).collect();
    beside::set_aside(image, &kept)?.iter().for_each(tell_set_aside);
    Ok(())
}

/// Notes a file that has another name now.
pub fn tell_set_aside((path, old): &(PathBuf, PathBuf)) {
    note(format_args!("{}: is about the image as it was: renamed to {}", path.display(), old.display()));
}

/// Writes superblock and tree, which begin at byte `hash_off` of their image or file, from byte `off` of `file` on.
fn write(tree: &Tree, superblock: &Superblock, hash_off: u64, mut file: &File, off: u64) -> io::Result<()> {
    file.seek(SeekFrom::Start(off))?;
    tree.write(superblock, hash_off, &mut file)
}

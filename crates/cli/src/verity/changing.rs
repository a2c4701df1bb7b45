//! The hash tree of an image that is changed in place: it goes before the first byte is written, and a new one comes
//! when the image is complete.

use super::append::append;
use super::args::{BesideKind, ChangedVerityArgs};
use super::made::{self, Hashing, MadeTree};
use super::padded::Padded;
use super::salt::Salt;
use super::sealing::tell_set_aside;
use super::{TreePlace, TreeWanted, block_size, erofs, failure, open};
use crate::exit::Failure;
use kiln_format::superblock::SUPERBLOCK_OFF;
use kiln_output::{AtomicFile, Existing, Output, write_all_at};
use kiln_read::ReadAt;
use kiln_revise::update::{TargetExtent, UpdateTarget, UpdatedFile};
use kiln_verity::sidecar::Sidecar;
use kiln_verity::{BlockHasher, Parameters, Tree, beside, find_behind, is_tree};
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An image that is changed in place, with the hash tree that it has and that it gets.
pub struct Changing<'a> {
    image: &'a Path,
    file: &'a UpdatedFile,
    wanted: Option<TreeWanted<'a>>,
    /// The byte at which the tree behind the image begins, if there is one.
    behind: Option<u64>,
    /// The old tree, if its digests serve the new one.
    old: Option<Tree>,
    state: Mutex<State>,
}

/// State of the image.
#[derive(Default)]
struct State {
    /// Bytes that were written, if any.
    written: Vec<Range<u64>>,
    is_begun: bool,
}

impl<'a> Changing<'a> {
    /// Looks for the tree of an image that is about to be changed. Nothing is written.
    ///
    /// # Errors
    /// A tree behind the image, unless it may be dropped, or a new one is wanted; an old tree that does not fit.
    pub fn begin(args: &'a ChangedVerityArgs, image: &'a Path, file: &'a UpdatedFile) -> Result<Self, Failure> {
        let (source, wanted) = (open(image)?, args.new.wanted());
        let found = erofs(image);
        let behind =
            find_behind(&source, found.as_ref().map(|erofs| erofs.end)).map_err(|error| failure(image, error))?;
        let may_go = wanted.is_some() || args.drop_verity;
        if let Some(hash_off) = behind.filter(|_| !may_go) {
            return Err(Failure::TreeInTheWay { image: image.to_owned(), hash_off });
        }
        let mut changing = Self { image, file, wanted, behind, old: None, state: Mutex::default() };
        if let Some(wanted) = wanted {
            let front = found.is_some().then_some(&source as &dyn ReadAt);
            changing.old = changing.old_tree(wanted, front)?;
        }
        Ok(changing)
    }

    /// Returns the target of the change, which ends where a tree begins.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn target(&self) -> Result<UpdateTarget<'_>, Failure> {
        let target = self.file.target().map_err(|error| Failure::Library(error.into()))?;
        let source = match self.behind {
            Some(end) => Arc::new(Padded { source: target.source, len: end, padded_len: end }) as Arc<dyn ReadAt>,
            None => target.source,
        };
        Ok(UpdateTarget { output: self, source, ..target })
    }

    /// Writes the new tree of the image, which is complete, if one is wanted and the image has none that fits.
    ///
    /// # Errors
    /// Errors of the system; an interruption. The image then has no tree.
    pub fn seal(self, hashing: Hashing<'_>) -> Result<Option<MadeTree>, Failure> {
        let Self { image, file, wanted, behind, old, state } = self;
        let State { written, is_begun } = state.into_inner();
        let Some(wanted) = wanted else { return Ok(None) };
        let TreeWanted { place, salt, root_hash_file, sidecar } = wanted;
        let is_usual = place == TreePlace::Behind && salt.is_none() && root_hash_file.is_none() && !sidecar;
        if !is_begun && behind.is_some() && is_usual {
            return Ok(None);
        }
        let failed = |action| move |source| Failure::File { path: image.to_owned(), action, source };
        let (source, found) = (open(image)?, erofs(image));
        let is_device = file.target().map_err(|error| Failure::Library(error.into()))?.extent == TargetExtent::Device;
        let end = match &found {
            Some(erofs) if is_device => erofs.end,
            _ if !is_begun && behind.is_some() => behind.unwrap_or_default(),
            _ => source.len().map_err(failed("look at"))?,
        };
        let parameters = match &old {
            Some(tree) => tree.parameters().clone(),
            None => {
                let size = block_size(found.as_ref().map(|erofs| erofs.block_len));
                let salt = wanted.salt.unwrap_or(&Salt::Zero).bytes(found.map(|erofs| erofs.uuid))?;
                Parameters { data_block_size: size, hash_block_size: size, salt, ..Parameters::new(1) }
            }
        };
        let parameters = Parameters { data_blocks: end.div_ceil(parameters.data_block_size.into()), ..parameters };
        let data = Padded { source, len: end, padded_len: parameters.data_len() };
        let tree = match &old {
            Some(old) => made::update(old, &data, &written, image, hashing)?,
            None => made::make(&data, &parameters, image, hashing)?,
        };
        let is_file = !is_device;
        let files = wanted.files(is_file.then_some(image))?;
        let own = files.iter().find(|(kind, _)| *kind == BesideKind::Tree).map(|(_, path)| path.clone());
        let made = MadeTree::new(&tree, own.as_deref(), end);
        if own.is_none() {
            append(image, end, is_device, &tree, &tree.superblock(None))?;
        }
        for (kind, path) in files {
            let file = AtomicFile::create(&path, Existing::Replace)?;
            let written = match kind {
                BesideKind::Tree => tree.write(&tree.superblock(None), 0, &mut file.file()),
                BesideKind::RootHash => write_all_at(&file, made.root_hash.to_string().as_bytes(), 0),
                BesideKind::Sidecar => Sidecar { root_hash: made.root_hash, hash_off: made.hash_off }.write_to(&file),
            };
            written.map_err(|source| Failure::File { path, action: "write", source })?;
            file.commit()?;
        }
        Ok(Some(made))
    }

    /// Returns the tree that the image has, if its digests may be used again. Its levels must fit each other, the root
    /// hash beside the image, and the front of the image, which each change in place replaces; the front of an image
    /// to be repaired may be lost.
    fn old_tree(&self, wanted: TreeWanted<'_>, front: Option<&dyn ReadAt>) -> Result<Option<Tree>, Failure> {
        let fail = |error| failure(self.image, error);
        let does_not_fit = || Failure::UnfitTree { image: self.image.to_owned() };
        if wanted.salt.is_some() {
            return Ok(None);
        }
        let (path, hash_off) = match (self.behind, wanted.place) {
            (Some(hash_off), _) => (self.image, hash_off),
            (None, TreePlace::File(path)) if open(path).is_ok_and(|file| is_tree(&file).unwrap_or(false)) => (path, 0),
            (None, _) => return Ok(None),
        };
        let (_, tree) = Tree::stored(&open(path)?, hash_off, kiln_parallel::Threads::PROCESSORS).map_err(fail)?;
        let Some(tree) = tree else { return Ok(None) };
        let root_hash = beside::read_root_hash(&beside::root_hash_path(self.image));
        let sidecar = Sidecar::read(&Sidecar::path_of(self.image)).map_err(fail)?;
        let known = root_hash.into_iter().chain(sidecar.map(|sidecar| sidecar.root_hash));
        if known.into_iter().any(|known| known != *tree.root_hash()) {
            return Err(does_not_fit());
        }
        let Some(front) = front else { return Ok(Some(tree)) };
        let parameters = tree.parameters();
        let block_size = u64::from(parameters.data_block_size);
        let block = SUPERBLOCK_OFF / block_size;
        let mut bytes = vec![0; block_size as usize]; // 16 bits
        let failed = |source| Failure::File { path: self.image.to_owned(), action: "read", source };
        front.read_exact_at(&mut bytes, block * block_size).map_err(failed)?;
        let hasher = BlockHasher::new(parameters.algorithm, &parameters.salt);
        if block >= parameters.data_blocks || hasher.digest(&bytes).as_bytes() != tree.leaf(block) {
            return Err(does_not_fit());
        }
        Ok(Some(tree))
    }

    /// Removes the tree, before anything else is written.
    fn drop_tree(&self, state: &mut State) -> io::Result<()> {
        state.is_begun = true;
        for name in [Some(self.image.to_owned()), self.image.canonicalize().ok()].into_iter().flatten() {
            let renamed = beside::set_aside(&name, &[]).map_err(io::Error::other)?;
            // With a new tree there will be new ones, but for a signature.
            let is_told = |(path, _): &&(PathBuf, PathBuf)| {
                self.wanted.is_none() || path.as_os_str().as_bytes().ends_with(beside::SIGNATURE.as_bytes())
            };
            renamed.iter().filter(is_told).for_each(tell_set_aside);
        }
        let Some(hash_off) = self.behind else { return Ok(()) };
        match self.file.target().map_err(io::Error::other)?.extent {
            TargetExtent::File => self.file.set_len(hash_off)?,
            TargetExtent::Device => write_all_at(self.file, &[0; 512], hash_off)?,
        }
        self.file.sync()
    }
}

impl Output for Changing<'_> {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut state = self.state.lock();
        if !state.is_begun {
            self.drop_tree(&mut state)?;
        }
        let len = self.file.write_at(bytes, offset)?;
        let end = offset + len as u64;
        match state.written.last_mut() {
            Some(last) if last.end == offset => last.end = end,
            _ => state.written.push(offset..end),
        }
        Ok(len)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.is_begun {
            self.drop_tree(&mut state)?;
        }
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}

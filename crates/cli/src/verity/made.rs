//! Hash trees that were made, and their reports.

use super::failure;
use crate::console::progress::Meter;
use crate::console::report::note;
use crate::console::size::Human;
use crate::exit::Failure;
use crate::process::signals::Signals;
use crate::process::work::WorkArgs;
use kiln_parallel::Threads;
use kiln_read::ReadAt;
use kiln_verity::{Control, Digest, Parameters, Tree, VerityError};
use serde::Serialize;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A hash tree that has been written.
#[derive(Clone, Debug)]
pub struct MadeTree {
    pub root_hash: Digest,
    /// File of its own; `None`: it is behind the image.
    pub file: Option<PathBuf>,
    /// Byte of its superblock, in that file or from the beginning of the image on.
    pub hash_off: u64,
    /// Length of superblock and tree.
    pub tree_len: u64,
    /// Bytes that it covers.
    pub data_len: u64,
    /// Size of a block of data.
    pub block_size: u32,
    /// Zeros among them that are behind the image.
    pub padding_len: u64,
}

/// For programs: a hash tree.
#[derive(Serialize)]
pub struct MadeTreeJson {
    root_hash: String,
    tree: String,
    hash_offset: u64,
    tree_bytes: u64,
    data_bytes: u64,
    padding_bytes: u64,
}

/// Manner of hashing: threads, progress, and the end by a signal.
#[derive(Clone, Copy)]
pub struct Hashing<'a> {
    /// Without options, all processors hash, and nothing is shown.
    pub work: Option<&'a WorkArgs>,
    pub quiet: bool,
    pub signals: &'a Signals,
}

/// Makes the tree of `data` and shows progress; `image` is their name in errors.
pub fn make(data: &dyn ReadAt, parameters: &Parameters, image: &Path, hashing: Hashing<'_>) -> Result<Tree, Failure> {
    let tree = hashing.watch(parameters.data_len(), |control| Tree::of_data(data, parameters, control));
    tree.map_err(|error| hashing.failed(error, image))
}

/// Makes the tree of data of which `old` is the tree, but for those that were `written` since.
pub fn update(
    old: &Tree,
    data: &dyn ReadAt,
    written: &[Range<u64>],
    image: &Path,
    hashing: Hashing<'_>,
) -> Result<Tree, Failure> {
    let len = written.iter().map(|range| range.end - range.start).sum();
    let tree = hashing.watch(len, |control| old.updated(data, written, control));
    tree.map_err(|error| hashing.failed(error, image))
}

impl Hashing<'_> {
    /// Runs `hash` and shows its progress through `len` bytes.
    fn watch<T>(&self, len: u64, hash: impl FnOnce(&Control<'_>) -> Result<T, VerityError>) -> Result<T, VerityError> {
        let meter = self.work.map_or(Meter::Nothing, |work| work.meter(self.quiet));
        meter.set(0, len);
        let progress = |bytes| meter.advance(bytes);
        hash(&Control { threads: self.threads(), stop: self.signals.stop(), progress: &progress })
    }

    /// Returns the number of threads.
    pub fn threads(&self) -> Threads {
        self.work.map_or(Threads::PROCESSORS, WorkArgs::threads)
    }

    fn failed(&self, error: VerityError, image: &Path) -> Failure {
        match (error, self.signals.caught()) {
            (VerityError::Interrupted, Some(number)) => Failure::Signal(number),
            (error, _) => failure(image, error),
        }
    }
}

impl MadeTree {
    /// Describes a tree of data that have `end` bytes without padding.
    pub fn new(tree: &Tree, file: Option<&Path>, end: u64) -> Self {
        let data_len = tree.parameters().data_len();
        let hash_off = if file.is_some() { 0 } else { data_len };
        Self {
            root_hash: *tree.root_hash(),
            file: file.map(Path::to_owned),
            hash_off,
            tree_len: tree.stored_len(hash_off),
            data_len,
            block_size: tree.parameters().data_block_size,
            padding_len: data_len - end,
        }
    }

    /// Notes size and place.
    pub fn tell(&self, image: &Path) {
        let (len, data) = (Human(self.tree_len), Human(self.data_len));
        let place = match &self.file {
            Some(file) => format!("in {}", file.display()),
            None => format!("behind it at byte {}", self.hash_off),
        };
        note(format_args!("{}: hash tree of {len} for {data}, {place}", image.display()));
    }

    /// Notes size, place and root hash.
    pub fn tell_all(&self, image: &Path) {
        self.tell(image);
        note(format_args!("root hash: {}", self.root_hash));
    }

    /// Returns it for programs.
    pub fn json(&self, image: &Path) -> MadeTreeJson {
        MadeTreeJson {
            root_hash: self.root_hash.to_string(),
            tree: self.file.as_deref().unwrap_or(image).display().to_string(),
            hash_offset: self.hash_off,
            tree_bytes: self.tree_len,
            data_bytes: self.data_len,
            padding_bytes: self.padding_len,
        }
    }
}

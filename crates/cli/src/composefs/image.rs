//! The image that is written, and trees that are made into images.

use crate::exit::Failure;
use crate::pack::output::{Destination, Stream};
use crate::verity::sealing::set_aside;
use kiln_output::{AtomicFile, Existing};
use kiln_parallel::Threads;
use kiln_tree::Tree;
use kilnfs::composefs::dump::{self, DumpWarning};
use kilnfs::composefs::from_tree::{TreeOptions, contents};
use kilnfs::composefs::image::{self, ImageOptions, ImageSummary};
use kilnfs::composefs::store::Store;
use kilnfs::composefs::{CfsTree, ComposefsError, StoreError, from_tree};
use kilnfs::digest::Algorithm;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Bytes of a buffer for dumps and images.
const BUFFER_LEN: usize = 256 << 10;

/// Returns a function that makes failures of errors about the file at `path`.
pub fn failed<E: Into<ComposefsError>>(path: &Path) -> impl FnOnce(E) -> Failure {
    let path = path.to_owned();
    move |source| Failure::Composefs { path, source: source.into() }
}

/// Reads the dump at `path`; `-` is standard input.
pub fn read_dump(path: &Path, warn: &mut dyn FnMut(DumpWarning)) -> Result<CfsTree, Failure> {
    let input: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => Box::new(File::open(path).map_err(|source| Failure::File {
            path: path.to_owned(),
            action: "open",
            source,
        })?),
    };
    let tree = dump::read(BufReader::with_capacity(BUFFER_LEN, input), warn);
    tree.map_err(failed(if path == Path::new("-") { Path::new("standard input") } else { path }))
}

/// Way from a tree of any source to one of composefs.
pub struct Conversion<'a> {
    pub options: TreeOptions,
    pub algorithm: Algorithm,
    /// Store that gets the objects.
    pub store: Option<&'a Path>,
    pub threads: Threads,
    pub stop: &'a AtomicBool,
}

impl Conversion<'_> {
    /// Converts the tree of `src`, and stores its objects.
    pub fn convert(&self, tree: &Tree, src: &Path) -> Result<CfsTree, Failure> {
        let contents = match self.store {
            None => contents::read(tree, self.algorithm, self.threads).map_err(failed(src))?,
            Some(store) => self.fill(store, tree).map_err(|error| match error {
                error @ StoreError::Source(_) => failed(src)(error),
                error => failed(store)(error),
            })?,
        };
        from_tree(tree, &self.options, |id| contents.of(id)).map_err(failed(src))
    }

    fn fill(&self, store: &Path, tree: &Tree) -> Result<contents::TreeContents, StoreError> {
        let store = Store::create(store)?;
        let contents = store.read_tree(tree, self.algorithm, self.threads, self.stop)?;
        store.sync()?;
        Ok(contents)
    }
}

/// Output that gets an image: a file that appears when it is complete, a stream, or nothing.
pub enum Output {
    File(PathBuf, AtomicFile),
    Stream(Stream),
    None,
}

impl Output {
    /// Prepares the output at `path`; `-` is standard output.
    pub fn create(path: Option<&Path>, existing: Existing) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self::None) };
        match Destination::find(path)? {
            Destination::Stream(stream) => Ok(Self::Stream(stream)),
            Destination::File(file) => Ok(Self::File(path.to_owned(), AtomicFile::create(&file, existing)?)),
            Destination::BlockDevice(path) => {
                let path = path.display();
                Err(Failure::Usage(format!("{path}: composefs images are files, not block devices")))
            }
        }
    }

    /// Writes the image, and completes the output.
    pub fn write(self, tree: &CfsTree, options: &ImageOptions) -> Result<ImageSummary, Failure> {
        match self {
            Self::None => write_to(tree, options, io::sink()).map_err(failed(Path::new(""))),
            Self::Stream(stream) => {
                let name = stream.name().to_owned();
                let summary = write_to(tree, options, &stream).map_err(failed(&name))?;
                stream.sync()?;
                Ok(summary)
            }
            Self::File(path, file) => {
                let summary = write_to(tree, options, file.file()).map_err(failed(&path))?;
                set_aside(&path, None)?;
                file.commit()?;
                Ok(summary)
            }
        }
    }
}

fn write_to(tree: &CfsTree, options: &ImageOptions, out: impl Write) -> Result<ImageSummary, ComposefsError> {
    let mut out = BufWriter::with_capacity(BUFFER_LEN, out);
    let summary = image::write(tree, options, &mut out)?;
    out.flush().map_err(image_error)?;
    Ok(summary)
}

fn image_error(error: io::Error) -> ComposefsError {
    kilnfs::composefs::ImageError::from(error).into()
}

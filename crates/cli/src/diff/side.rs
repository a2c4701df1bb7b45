//! One side of a comparison.

use crate::exit::Failure;
use crate::image::ImageArgs;
use crate::signals::Signals;
use kiln_builder::Tree;
use kiln_source::dir::{self, ScanOptions};
use kiln_source::erofs;
use kiln_source::filter::Filter;
use std::fmt;
use std::path::{Path, PathBuf};

/// A directory, or an image.
pub enum Source<'a> {
    Dir(&'a Path),
    Image(ImageArgs),
}

impl<'a> Source<'a> {
    /// What is at `path`: what is no directory must be an image.
    ///
    /// `device_option` is what names its extra devices.
    pub fn new(path: &'a Path, device: &[PathBuf], offset: u64, device_option: &'static str) -> Result<Self, Failure> {
        if !path.is_dir() {
            let (image, device) = (path.to_owned(), device.to_vec());
            return Ok(Source::Image(ImageArgs { image, device, offset, device_option }));
        }
        match device.is_empty() && offset == 0 {
            true => Ok(Source::Dir(path)),
            false => Err(Failure::Usage(format!("{}: a directory has no devices and no offset", path.display()))),
        }
    }

    /// The tree.
    pub fn scan(&self, threads: usize, signals: &Signals) -> Result<Tree, Failure> {
        match self {
            Source::Dir(path) => {
                let filter = Filter::default();
                let options =
                    ScanOptions { threads, keep_going: false, filter: &filter, outputs: &[], stop: signals.stop() };
                match (dir::scan(path, &options), signals.caught()) {
                    (Ok(scan), _) => Ok(scan.tree),
                    (Err(dir::ScanError::Interrupted), Some(number)) => Err(Failure::Signal(number)),
                    (Err(error), _) => Err(Failure::Source(error)),
                }
            }
            Source::Image(args) => match (erofs::scan(&args.open()?, signals.stop()), signals.caught()) {
                (Ok(tree), _) => Ok(tree),
                (Err(erofs::ScanError::Interrupted), Some(number)) => Err(Failure::Signal(number)),
                (Err(erofs::ScanError::Read(error)), _) => Err(args.failure(error)),
                (Err(source), _) => Err(Failure::ImageTree { image: args.image.clone(), source }),
            },
        }
    }
}

impl fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Dir(path) => path.display().fmt(f),
            Source::Image(args) => args.image.display().fmt(f),
        }
    }
}

//! One side of a comparison.

use crate::exit::Failure;
use crate::pack::tell_notes;
use crate::process::signals::Signals;
use kiln_parallel::Threads;
use kiln_source::{ScanOptions, Source, SourceOptions};
use kiln_tree::Tree;
use std::fmt;
use std::path::Path;

/// A tree to be compared.
pub struct Compared {
    source: Box<dyn Source>,
    /// The option that names extra devices of an image.
    device_option: &'static str,
}

impl Compared {
    /// Opens the tree at `path`. `device_option` names its extra devices.
    pub fn new(path: &Path, options: &SourceOptions, device_option: &'static str) -> Result<Self, Failure> {
        match kiln_source::open(path, options) {
            Ok(source) => Ok(Self { source, device_option }),
            Err(error) => Err(Failure::of_source(error, None, device_option)),
        }
    }

    /// Scans the tree.
    pub fn scan(&self, threads: Threads, signals: &Signals) -> Result<Tree, Failure> {
        let options = ScanOptions { threads, ..ScanOptions::new(signals.stop()) };
        let scan = self.source.scan(&options);
        let scan = scan.map_err(|error| Failure::of_source(error, signals.caught(), self.device_option))?;
        tell_notes(&scan);
        Ok(scan.tree)
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.path().display().fmt(f)
    }
}

//! Source that reads a directory.

use rustix::fs::{Mode, OFlags, open, syncfs};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use super::contents::DirContents;
use super::entry::{Entry, look};
use super::walk::{Found, Walk};
use crate::error::{SourceError, Unreadable, settle};
use crate::input::candidate::SourceOptions;
use crate::kind::SourceKind;
use crate::source::{FileStamps, Scan, ScanOptions, Source, SourceEntries};

/// The kind "directory".
pub(crate) const KIND: SourceKind = SourceKind {
    name: "dir",
    title: "a directory",
    is: |candidate| candidate.is_dir(),
    open: |candidate| match candidate.options() {
        SourceOptions { devices, offset: 0, .. } if devices.is_empty() => {
            Ok(Box::new(DirSource::new(candidate.path())))
        }
        _ => Err(SourceError::Options {
            path: candidate.path().to_owned(),
            reason: "devices and an offset do not apply to a directory",
        }),
    },
};

/// A directory. The path may be a symbolic link to one; links below it are not followed.
#[derive(Clone, Debug)]
pub struct DirSource {
    path: PathBuf,
}

impl DirSource {
    /// Creates a source for the directory at `path`. Each scan opens it.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }
}

impl Source for DirSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self, options: &ScanOptions<'_>) -> Result<SourceEntries, SourceError> {
        let root = &self.path;
        let unreadable = |source: io::Error| Unreadable { path: root.clone(), source };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root_fd = open(root, flags, Mode::empty()).map_err(|error| unreadable(error.into()))?;
        if options.sync {
            syncfs(&root_fd).map_err(|error| unreadable(error.into()))?;
        }
        let root_entry = look(root_fd.as_fd(), c"").and_then(Entry::whole).map_err(unreadable)?;
        let walk = Walk { root: root_fd.as_fd(), device: root_entry.id.device, options };
        let found = walk.run(root_entry);
        options.check_stop()?;
        let Found { builder, stamps, unsettled, errors, mut outputs, failed, .. } = found;
        let skipped = settle(errors, root, options.keep_going)?;
        let stamps = FileStamps { all: stamps.into(), unsettled };
        let contents = Box::new(DirContents { root: root_fd, stamps: stamps.all.clone() });
        let tree = failed.map_or_else(|| builder.finish(contents), Err).map_err(SourceError::tree(root))?;
        outputs.sort();
        Ok(SourceEntries::Selected(Scan { skipped, outputs, stamps: Some(stamps), ..Scan::from(tree) }))
    }
}

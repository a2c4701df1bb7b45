//! What a kind of source is, and how it is recognised.

use std::fs::{self, File, FileType};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use crate::error::SourceError;
use crate::source::Source;

/// Where a source is, beside its path.
#[derive(Clone, Debug, Default)]
pub struct SourceOptions {
    /// Extra devices of an image, in order.
    pub devices: Vec<PathBuf>,
    /// Where an image begins in its file, in bytes.
    pub offset: u64,
}

/// A kind of source.
#[derive(Clone, Copy)]
pub struct SourceKind {
    /// What people call it.
    pub name: &'static str,
    /// Whether something is of this kind, by its content.
    pub is: fn(&Candidate<'_>) -> bool,
    /// Open it.
    pub open: fn(&Candidate<'_>) -> Result<Box<dyn Source>, SourceError>,
}

/// What is at a path and may be a source.
pub struct Candidate<'a> {
    /// Its path.
    pub path: &'a Path,
    /// Where exactly.
    pub options: &'a SourceOptions,
    file_type: Option<FileType>,
    file: Option<File>,
}

impl<'a> Candidate<'a> {
    /// What is at `path`; nothing may be.
    pub(crate) fn new(path: &'a Path, options: &'a SourceOptions) -> Self {
        let file_type = fs::metadata(path).ok().map(|meta| meta.file_type());
        // To open a pipe may block, and what is read from it is gone.
        let holds_bytes = file_type.is_some_and(|file_type| file_type.is_file() || file_type.is_block_device());
        let file = holds_bytes.then(|| File::open(path).ok()).flatten();
        Self { path, options, file_type, file }
    }

    /// Whether it is a directory, or a symbolic link to one.
    pub fn is_dir(&self) -> bool {
        self.file_type.is_some_and(|file_type| file_type.is_dir())
    }

    /// Whether it is a file that holds these bytes at byte `at`, counted from [`SourceOptions::offset`] on.
    pub fn holds(&self, at: u64, magic: &[u8]) -> bool {
        let mut bytes = vec![0; magic.len()];
        let Some(at) = self.options.offset.checked_add(at) else { return false };
        self.file.as_ref().is_some_and(|file| file.read_exact_at(&mut bytes, at).is_ok()) && bytes == magic
    }
}

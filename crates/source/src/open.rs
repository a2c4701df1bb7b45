//! Functions that open sources.

use kiln_read::ReadAt;
use std::path::Path;
use std::sync::Arc;

use crate::archive::cpio::source as cpio;
use crate::archive::tar::source as tar;
use crate::archive::zip::source as zip;
use crate::dir::source as dir;
use crate::error::SourceError;
use crate::image::cramfs::source as cramfs;
use crate::image::erofs::source as erofs;
use crate::image::ext4::source as ext4;
use crate::image::squashfs::source as squashfs;
use crate::input::candidate::{Candidate, SourceOptions};
use crate::kind::{SourceKind, open_candidate};
use crate::manifest::{composefs, mtree, pseudo};
use crate::oci::source as oci;
use crate::source::Source;

/// All kinds of sources. The first one that recognises a file opens it.
pub const KINDS: &[SourceKind] = &[
    dir::KIND,
    erofs::KIND,
    squashfs::KIND,
    cramfs::KIND,
    zip::KIND,
    oci::KIND,
    tar::KIND,
    ext4::KIND,
    cpio::KIND,
    mtree::KIND,
    composefs::KIND,
    pseudo::KIND,
];

/// Opens the source at the path `what`, detecting its kind by its contents. `-` is standard input.
///
/// # Errors
/// A path that does not exist; a file that no kind recognises. The message then says what it seems
/// to be, and what to do.
pub fn open(what: &Path, options: &SourceOptions) -> Result<Box<dyn Source>, SourceError> {
    open_as(KINDS, what, options)
}

/// Returns the name of the kind as which [`open`] opens the file at `what`; `None` for a file that it does not open.
/// Only its first bytes are looked at.
///
/// # Errors
/// A file that cannot be read.
pub fn kind_of(what: &Path, options: &SourceOptions) -> Result<Option<&'static str>, SourceError> {
    let candidate = Candidate::new(what, options)?;
    Ok(KINDS.iter().find(|kind| (kind.is)(&candidate)).map(|kind| kind.name))
}

/// Opens a source like [`open`], as one of these kinds. A single kind opens any contents, and its
/// error explains the problem.
///
/// # Errors
/// Those of [`open`].
/// As [`open`].
pub fn open_as(kinds: &[SourceKind], what: &Path, options: &SourceOptions) -> Result<Box<dyn Source>, SourceError> {
    let candidate = Candidate::new(what, options)?;
    let is_mtree = || matches!(kinds, [kind] if kind.name == mtree::KIND.name) || (mtree::KIND.is)(&candidate);
    if options.root_dir.is_some() && !is_mtree() {
        let reason = "only an mtree manifest has its contents in another directory";
        return Err(SourceError::Options { path: what.to_owned(), reason });
    }
    open_candidate(kinds, if kinds.len() == 1 { candidate.of_given_kind() } else { candidate })
}

/// Opens the archive or image in `bytes`, which may be compressed, detecting its kind by its
/// contents. Error messages name it `name`.
///
/// # Errors
/// Contents that no kind recognises; errors of the kind.
pub fn open_bytes(
    bytes: Arc<dyn ReadAt>,
    name: &Path,
    options: &SourceOptions,
) -> Result<Box<dyn Source>, SourceError> {
    open_candidate(KINDS, Candidate::of_bytes(name, options, bytes)?)
}

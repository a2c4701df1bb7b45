//! The door for sources.

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
use crate::manifest::{mtree, pseudo};
use crate::oci::source as oci;
use crate::source::Source;

/// All kinds of sources. The first that recognises something opens it.
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
    pseudo::KIND,
];

/// What is at the path `what`, by its content. `-` is standard input.
///
/// # Errors
/// Nothing is there; no kind recognises it: then the error says what it seems to be, and what to do.
pub fn open(what: &Path, options: &SourceOptions) -> Result<Box<dyn Source>, SourceError> {
    open_as(KINDS, what, options)
}

/// As [`open`], where only these kinds are known. One kind alone is opened as that, whatever its content is like, and says what is
/// wrong with it.
///
/// # Errors
/// As [`open`].
pub fn open_as(kinds: &[SourceKind], what: &Path, options: &SourceOptions) -> Result<Box<dyn Source>, SourceError> {
    let candidate = Candidate::new(what, options)?;
    let is_mtree = || matches!(kinds, [kind] if kind.name == mtree::KIND.name) || (mtree::KIND.is)(&candidate);
    if options.root_dir.is_some() && !is_mtree() {
        let reason = "contents lie below another directory only of an mtree manifest";
        return Err(SourceError::Options { path: what.to_owned(), reason });
    }
    open_candidate(kinds, if kinds.len() == 1 { candidate.of_given_kind() } else { candidate })
}

/// What `bytes` are, by their content: an archive or an image, compressed or not, which errors call `name`.
///
/// # Errors
/// No kind recognises them; those of the kind.
pub fn open_bytes(
    bytes: Arc<dyn ReadAt>,
    name: &Path,
    options: &SourceOptions,
) -> Result<Box<dyn Source>, SourceError> {
    open_candidate(KINDS, Candidate::of_bytes(name, options, bytes)?)
}

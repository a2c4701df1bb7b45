//! Images that are built into memory to be measured: a real build writes to the page cache, which costs the same.

use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;

use crate::build::{self, Built};
use crate::context::Context;
use crate::context::clock::{Phase, PhaseClock};
use crate::error::BuildError;
use crate::out::{Blob, Out};

/// Builds the tree of `context`, with an extra device for chunks if `has_blob`.
///
/// # Errors
/// Those of [`crate::build`], and a system without files in memory.
pub(super) fn build(has_blob: bool, context: Context<'_>) -> Result<(Built, Vec<Phase>), BuildError> {
    let (image, blob) = (file()?, has_blob.then(file).transpose()?);
    let blob = blob.as_ref().map(|file| Blob { file, tag: [0; 64] });
    let clock = PhaseClock::start();
    let built = build::run(Out { image: &image, offset: 0, blob, behind: None }, &clock, context)?;
    Ok((built, clock.phases()))
}

fn file() -> Result<File, BuildError> {
    let failed = |source| BuildError::Write { action: "write to memory", source };
    memfd_create("kiln-estimate", MemfdFlags::CLOEXEC).map(File::from).map_err(|errno| failed(errno.into()))
}

//! Building and opening of images.

use kiln_builder::{BuildError, BuildOptions, Control, Out, Progress, Summary, Threads};
use kiln_codec::{Method, Spec};
use kiln_format::BlockBits;
use kiln_read::{Image, ImageOptions, MemorySource, ReadError};
use kiln_source::dir::DirSource;
use kiln_source::image::erofs::ImageSource;
use kiln_source::{Scan, ScanOptions, Source, SourceError};
use kiln_tree::Tree;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::Read;
use std::io::Seek;
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A method at a level; `None` for no compression.
pub type Choice = Option<(Method, i32)>;

/// Returns options for a choice of compression.
///
/// # Panics
/// If the codec does not have the choice.
pub fn options(choice: Choice, pcluster_len: u32, threads: usize) -> BuildOptions {
    let spec = |(method, level)| Spec::new(method, Some(level), pcluster_len).expect("a choice that exists");
    let scratch_dir = std::env::temp_dir();
    BuildOptions::default().with(|o| {
        o.compression.spec = choice.map(spec);
        o.work.threads = exactly(threads);
        o.work.scratch_dir = scratch_dir;
    })
}

/// Returns `threads` as a fixed number of threads.
///
/// # Panics
/// If `threads` is 0.
pub fn exactly(threads: usize) -> Threads {
    Threads::exactly(NonZero::new(threads).expect("at least one thread"))
}

/// Returns `spec` with the nearest valid length of pclusters.
pub fn fit(spec: Spec, options: &BuildOptions) -> Spec {
    let pcluster_len = spec.pcluster_len.next_multiple_of(options.block_bits.len() as u32);
    Spec { pcluster_len: pcluster_len.min(options.pcluster_max_len(spec.method)), ..spec }
}

/// Returns the options with blocks of 2^`bits` bytes, and the nearest valid lengths of pclusters.
///
/// # Panics
/// If there is no such block size.
pub fn with_block_bits(bits: u8, mut options: BuildOptions) -> BuildOptions {
    options.block_bits = BlockBits::new(bits).expect("a size of blocks");
    let limits = options.clone();
    for spec in [&mut options.compression.spec, &mut options.metadata.metabox]
        .into_iter()
        .flatten()
        .chain(&mut options.compression.trial.specs)
    {
        *spec = fit(*spec, &limits);
    }
    if let (Some(len), Some(spec)) = (options.packing.pcluster_len, options.compression.spec) {
        options.packing.pcluster_len = Some(fit(Spec { pcluster_len: len, ..spec }, &limits).pcluster_len);
    }
    options
}

/// Scans a directory with as many threads as the build will have.
///
/// # Errors
/// Those of [`Source::scan`].
pub fn scan_dir(root: &Path, threads: usize) -> Result<Scan, SourceError> {
    let stop = AtomicBool::new(false);
    DirSource::new(root).scan(&ScanOptions { threads: Threads::at_least_one(threads), ..ScanOptions::new(&stop) })
}

/// Scans an image.
///
/// # Errors
/// Those of [`Source::scan`].
pub fn scan_image(image: &Image) -> Result<Tree, SourceError> {
    let stop = AtomicBool::new(false);
    Ok(ImageSource::new(image.clone(), Path::new("image")).scan(&ScanOptions::new(&stop))?.tree)
}

/// Builds to `out`.
///
/// # Errors
/// Those of [`kiln_builder::build`].
pub fn build_to<'a>(tree: &Tree, out: impl Into<Out<'a>>, options: &BuildOptions) -> Result<Summary, BuildError> {
    let stop = AtomicBool::new(false);
    let progress = |progress: Progress| assert!(progress.done_bytes <= progress.total_bytes);
    kiln_builder::build(tree, out, options, &Control { stop: &stop, progress: &progress })
}

/// Builds in memory.
///
/// # Errors
/// Those of [`kiln_builder::build`].
///
/// # Panics
/// If the system cannot create a file in memory.
pub fn build(tree: &Tree, options: &BuildOptions) -> Result<(Vec<u8>, Summary), BuildError> {
    let mut out = File::from(memfd_create("kiln-test", MemfdFlags::CLOEXEC).expect("a file in memory"));
    let summary = build_to(tree, &out, options)?;
    let mut bytes = Vec::new();
    out.rewind().and_then(|()| out.read_to_end(&mut bytes)).expect("memory can be read");
    Ok((bytes, summary))
}

/// Opens an image in memory.
///
/// # Errors
/// Those of [`Image::open`].
pub fn open(bytes: Vec<u8>) -> Result<Image, ReadError> {
    Image::open(Arc::new(MemorySource::new(bytes)), Vec::new(), &ImageOptions::default())
}

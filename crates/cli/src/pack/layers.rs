//! `kiln pack --layers`: the layers of an image of a container as images for overlayfs.

use super::args::Args;
use super::failure::failure;
use super::sources::Operands;
use super::summary::{PackJson, Report, tell_briefly, tell_skipped};
use crate::console::report::{JsonList, note};
use crate::exit::{Exit, Failure};
use crate::image::DEVICE_OPTION;
use crate::process::signals::Signals;
use kiln_builder::Out;
use kiln_output::{AtomicFile, Existing, OutputError};
use kiln_source::oci::OciImage;
use kiln_source::{ScanOptions, Source, SourceError};
use kiln_tree::storage::DataOrder;
use kilnfs::Packer;
use serde::Serialize;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A layer, and the image that it becomes.
struct Layer {
    at: usize,
    digest: String,
    path: PathBuf,
}

#[derive(Serialize)]
struct LayerJson<'a> {
    digest: &'a str,
    #[serde(flatten)]
    packed: PackJson,
}

/// Packs the layers of an image of a container into the directory `dir`.
pub fn run(args: &Args, operands: &Operands<'_>, dir: &Path) -> Result<Exit, Failure> {
    args.tree.refuse_whole_tree("--layers")?;
    let (packer, order) = args.packer(args.options(args.preset.into(), None)?)?;
    args.work.apply_nice()?;
    let signals = Signals::catch()?;
    let of_source = |error| Failure::of_source(error, signals.caught(), DEVICE_OPTION);
    let source = args.sources.open_images(operands, &args.out.spool, &signals)?;
    let scan =
        ScanOptions { keep_going: args.keep_going, threads: args.work.threads(), ..ScanOptions::new(signals.stop()) };
    let image = source.image(&scan).map_err(of_source)?;
    let layers = layers(&image, dir, &scan).map_err(of_source)?;
    make_dir(dir)?;
    refuse_existing(args, &layers)?;
    let packer = packer.stop(Arc::clone(signals.stop())).scratch_dir(dir);
    let mut list = if args.work.json { Some(JsonList::start("layers")?) } else { None };
    let mut exit = Exit::Done;
    for layer in &layers {
        let options = args.sources.options(&args.out.spool, Some(&signals))?;
        let source = image.layer(layer.at, &options, &scan).map_err(of_source)?;
        let job = LayerJob { args, packer: &packer, order: &order, signals: &signals };
        exit = exit.or(job.pack(layer, &*source, list.as_mut())?);
    }
    if !args.quiet.quiet {
        note(format_args!("{}: {} layers, the lowest first", dir.display(), layers.len()));
    }
    list.map_or(Ok(()), JsonList::finish)?;
    Ok(exit)
}

/// A build of one layer after the other.
struct LayerJob<'a> {
    args: &'a Args,
    packer: &'a Packer,
    order: &'a DataOrder,
    signals: &'a Signals,
}

impl LayerJob<'_> {
    fn pack(&self, layer: &Layer, source: &dyn Source, list: Option<&mut JsonList>) -> Result<Exit, Failure> {
        let Self { args, order, signals, .. } = *self;
        let Layer { digest, path, .. } = layer;
        let fail = |error| failure(error, signals, path);
        let file = AtomicFile::create(path, args.out.existing())?;
        let packer = self.packer.clone().output(&file);
        // Paths of a list are most often those of other layers: what does not match is not noted.
        let out = Out::from(&file);
        let scanned = args.work.watch(args.quiet.quiet, |progress| packer.scan_into(source, out, progress));
        let scanned = scanned.map_err(fail)?;
        let built = args.work.watch(args.quiet.quiet, |progress| scanned.build(out, progress));
        let mut built = built.map_err(fail)?;
        if !args.dry_run {
            built.commit(file).map_err(fail)?;
        }
        let summary = &built.summary;
        let report = Report { src: source.path(), image: path, scan: Some(&scanned.scan), order, summary };
        let exit = tell_skipped(&report);
        if !args.quiet.quiet {
            tell_briefly(path, summary);
        }
        if let Some(list) = list {
            list.push(&LayerJson { digest, packed: PackJson::new(&report) })?;
        }
        Ok(exit)
    }
}

/// Refuses layers that exist already, unless they are to be replaced.
fn refuse_existing(args: &Args, layers: &[Layer]) -> Result<(), Failure> {
    if args.out.existing() == Existing::Replace {
        return Ok(());
    }
    match layers.iter().find(|layer| layer.path.symlink_metadata().is_ok()) {
        Some(layer) => Err(Failure::Exists { path: layer.path.clone() }),
        None => Ok(()),
    }
}

/// The layers of an image, the lowest first. One that is there several times counts at its uppermost place only: what it has below is what it
/// has there, and overlayfs takes no layer twice.
fn layers(image: &OciImage, dir: &Path, options: &ScanOptions<'_>) -> Result<Vec<Layer>, SourceError> {
    let (mut layers, mut seen) = (Vec::new(), HashSet::new());
    for at in (0..image.layers().len()).rev() {
        let digest = image.layer_digest(at, options)?;
        if seen.insert(digest.clone()) {
            let path = dir.join(format!("{}.erofs", digest.trim_start_matches("sha256:")));
            layers.push(Layer { at, digest, path });
        }
    }
    layers.reverse();
    Ok(layers)
}

/// The directory for the images.
fn make_dir(dir: &Path) -> Result<(), Failure> {
    let made = fs::create_dir_all(dir);
    Ok(made.map_err(|source| OutputError::File { path: dir.to_owned(), action: "create", source })?)
}

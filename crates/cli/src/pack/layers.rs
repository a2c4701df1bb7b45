//! `kiln pack --layers`: the layers of an image of a container as images for overlayfs.

use super::sources::Operands;
use super::summary::{PackJson, Report, tell_briefly};
use super::target::ids;
use super::{Args, Job, options, tell_skipped};
use crate::console::report::{JsonList, note};
use crate::exit::{Exit, Failure};
use crate::image::DEVICE_OPTION;
use crate::process::signals::Signals;
use kiln::PackRequest;
use kiln_builder::{Out, Progress};
use kiln_output::{AtomicFile, Existing, OutputError};
use kiln_source::dir::FileId;
use kiln_source::oci::OciImage;
use kiln_source::{ScanOptions, SourceError};
use serde::Serialize;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

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

/// Pack the layers of an image of a container into the directory `dir`.
pub fn run(args: &Args, operands: &Operands<'_>, dir: &Path) -> Result<Exit, Failure> {
    let mut options =
        options(args, args.preset.into(), None)?.with(|options| options.work.scratch_dir = dir.to_owned());
    let by_path = args.by_path.resolve(&options)?;
    let (filter, policy) = (args.tree.filter()?, args.tree.policy()?);
    args.nice.apply()?;
    let signals = Signals::catch()?;
    let of_source = |error| Failure::of_source(error, signals.caught(), DEVICE_OPTION);
    let spool_dir = args.layout.spool.as_deref();
    let source = args.sources.open_images(operands, spool_dir, &signals)?;
    let scan_options = ScanOptions {
        keep_going: args.keep_going,
        threads: args.threads.threads(),
        ..ScanOptions::new(signals.stop())
    };
    let image = source.image(&scan_options).map_err(of_source)?;
    let layers = layers(&image, dir, &scan_options).map_err(of_source)?;
    make_dir(dir)?;
    let existing = if args.force { Existing::Replace } else { Existing::Keep };
    if existing == Existing::Keep
        && let Some(Layer { path, .. }) = layers.iter().find(|layer| layer.path.symlink_metadata().is_ok())
    {
        return Err(Failure::Exists { path: path.clone() });
    }
    let mut list = if args.json { Some(JsonList::start("layers")?) } else { None };
    let mut exit = Exit::Done;
    for Layer { at, digest, path } in &layers {
        let file = AtomicFile::create(path, existing)?;
        let layer =
            image.layer(*at, &args.sources.options(spool_dir, Some(&signals)), &scan_options).map_err(of_source)?;
        let outputs: Vec<FileId> = ids(&file).collect();
        let request = PackRequest {
            source: &*layer,
            base: None,
            filter: &filter,
            policy: &policy,
            outputs: &outputs,
            is_backup: false,
            stop: signals.stop(),
        };
        let job = Job { request, image: path, signals: &signals };
        let scan = job.scan(&options)?;
        // Paths of a list are most often those of other layers.
        by_path.resolve(&scan.tree, &mut options);
        let meter = args.progress.meter();
        let progress = |progress: Progress| meter.set(progress.done_bytes, progress.total_bytes);
        let (summary, _) = job.build(&scan.tree, Out::from(&file), &options, &progress)?;
        drop(meter);
        if !args.dry_run {
            file.commit()?;
        }
        let (src, order) = (layer.path(), &by_path.order);
        let report = Report { src, image: path, scan: Some(&scan), order, summary: &summary };
        if tell_skipped(&report) == Exit::Skipped {
            exit = Exit::Skipped;
        }
        if !args.progress.quiet {
            tell_briefly(path, &summary);
        }
        if let Some(list) = &mut list {
            list.push(&LayerJson { digest, packed: PackJson::new(&report) })?;
        }
    }
    if !args.progress.quiet {
        note(format_args!("{}: {} layers, the lowest first", dir.display(), layers.len()));
    }
    list.map_or(Ok(()), JsonList::finish)?;
    Ok(exit)
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

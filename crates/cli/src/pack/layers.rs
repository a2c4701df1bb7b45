//! `kiln pack --layers`: the layers of an image of a container as images for overlayfs.

use super::args::Args;
use super::failure::failure;
use super::sources::Operands;
use super::summary::{PackJson, Report, tell_briefly, tell_skipped};
use crate::console::report::{JsonList, note};
use crate::exit::{Exit, Failure};
use crate::image::DEVICE_OPTION;
use crate::process::signals::Signals;
use crate::verity::sealing::{BesideFile, ImageIn, Named, Sealing, set_aside};
use crate::verity::{BesideKind, Hashing, TreePlace};
use kiln_builder::Out;
use kiln_output::{AtomicFile, Durability, Existing, OutputError};
use kiln_source::oci::OciImage;
use kiln_source::{ScanOptions, Source, SourceError};
use kiln_tree::storage::DataOrder;
use kiln_verity::sidecar::Sidecar;
use kilnfs::Packer;
use serde::Serialize;
use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Place of the images.
#[derive(Clone, Copy)]
pub enum Place<'a> {
    /// A directory, in which names are the digests of layers.
    Dir(&'a Path),
    /// A cache of containerd (`layer_content_caches`), in which names are the digests of uncompressed layers.
    Cache(&'a Path),
}

impl Place<'_> {
    fn path(&self) -> &Path {
        match self {
            Self::Dir(dir) | Self::Cache(dir) => dir,
        }
    }

    /// Returns the image of the layer with this digest, `ALGORITHM:HEX`.
    fn image(&self, digest: &str) -> PathBuf {
        let (algorithm, hex) = digest.split_once(':').unwrap_or(("sha256", digest));
        match self {
            Self::Dir(dir) => dir.join(format!("{hex}.erofs")),
            Self::Cache(dir) => dir.join(algorithm).join(&hex[..hex.len().min(2)]).join(format!("{hex}.erofs")),
        }
    }
}

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

/// Packs the layers of an image of a container.
pub fn run(args: &Args, operands: &Operands<'_>, place: Place<'_>) -> Result<Exit, Failure> {
    args.tree.refuse_whole_tree("--layers")?;
    let wanted = args.verity.wanted();
    if wanted.is_some_and(|tree| tree.place != TreePlace::Behind || tree.root_hash_file.is_some()) {
        return Err(Failure::Usage("--layers: each image has its tree behind it, and DIGEST.erofs.dmverity".into()));
    }
    let dir = place.path();
    let (packer, order) = args.packer(args.options(args.preset.into(), None)?)?;
    args.work.apply_nice()?;
    let signals = Signals::catch()?;
    let of_source = |error| Failure::of_source(error, signals.caught(), DEVICE_OPTION);
    let source = args.sources.open_images(operands, &args.out.spool, &signals)?;
    let scan =
        ScanOptions { keep_going: args.keep_going, threads: args.work.threads(), ..ScanOptions::new(signals.stop()) };
    let image = source.image(&scan).map_err(of_source)?;
    let mut layers = layers(&image, place, &scan).map_err(of_source)?;
    make_dir(dir)?;
    if let Place::Cache(_) = place {
        for layer in &layers {
            layer.path.parent().map_or(Ok(()), make_dir)?;
        }
        if args.out.existing() == Existing::Keep {
            layers.retain(|layer| !is_cached(layer, wanted.is_some(), args.quiet.quiet));
        }
    }
    refuse_existing(args, &layers)?;
    let packer = packer.stop(Arc::clone(signals.stop())).scratch_dir(dir);
    let mut list = if args.work.json { Some(JsonList::start("layers")?) } else { None };
    let mut exit = Exit::Done;
    for layer in &layers {
        let options = args.sources.options(&args.out.spool, Some(&signals))?;
        let source = match place {
            Place::Dir(_) => image.layer(layer.at, &options, &scan),
            // Any image with this layer may use it.
            Place::Cache(_) => image.lone_layer(layer.at, &options, &scan),
        };
        let source = source.map_err(of_source)?;
        let job = LayerJob { args, place, packer: &packer, order: &order, signals: &signals };
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
    place: Place<'a>,
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
        let sealing = self.sealing(path)?;
        let hashing = Hashing { work: Some(&args.work), quiet: args.quiet.quiet, signals };
        let image = ImageIn { file: file.file(), offset: 0, name: path };
        let tree = sealing.as_ref().map(|sealing| sealing.seal(&image, &built.summary, hashing)).transpose()?;
        if !args.dry_run {
            if let Place::Cache(_) = self.place {
                // The snapshotter may be another user.
                let failed = |source| Failure::File { path: path.clone(), action: "write", source };
                let open = file.file().set_permissions(Permissions::from_mode(0o644));
                open.and_then(|()| file.file().sync_all()).map_err(failed)?;
            }
            set_aside(path, sealing.as_ref())?;
            let named = sealing.map(|sealing| sealing.commit(Durability::Synced)).transpose()?;
            built.commit(file).map_err(|error| {
                named.iter().for_each(Named::remove_new);
                fail(error)
            })?;
        }
        let (scan, summary, tree) = (Some(&scanned.scan), &built.summary, tree.as_ref());
        let report = Report { src: source.path(), image: path, scan, order, summary, tree };
        let exit = tell_skipped(&report);
        if !args.quiet.quiet {
            tell_briefly(path, summary);
            if let Some(tree) = tree {
                tree.tell_all(path);
            }
        }
        if let Some(list) = list {
            list.push(&LayerJson { digest, packed: PackJson::new(&report) })?;
        }
        Ok(exit)
    }

    /// Returns the hash tree that the image at `path` gets, with its file for containerd.
    fn sealing(&self, path: &Path) -> Result<Option<Sealing>, Failure> {
        let Some(wanted) = self.args.verity.wanted() else { return Ok(None) };
        let mut sealing = Sealing::new(wanted.salt.cloned());
        let sidecar = Sidecar::path_of(path);
        let file = AtomicFile::create(&sidecar, self.args.out.existing())?;
        sealing.files.push(BesideFile { kind: BesideKind::Sidecar, path: sidecar, file });
        Ok(Some(sealing))
    }
}

/// Returns true if a cache has the image of a layer, with its file for containerd if that is needed.
fn is_cached(layer: &Layer, needs_tree: bool, quiet: bool) -> bool {
    let is_there = layer.path.is_file() && (!needs_tree || Sidecar::path_of(&layer.path).is_file());
    if is_there && !quiet {
        note(format_args!("{}: is there already", layer.path.display()));
    }
    is_there
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
fn layers(image: &OciImage, place: Place<'_>, options: &ScanOptions<'_>) -> Result<Vec<Layer>, SourceError> {
    let (mut layers, mut seen) = (Vec::new(), HashSet::new());
    for at in (0..image.layers().len()).rev() {
        let digest = match place {
            Place::Dir(_) => image.layer_digest(at, options)?,
            Place::Cache(_) => image.diff_id(at, options)?,
        };
        if seen.insert(digest.clone()) {
            let path = place.image(&digest);
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

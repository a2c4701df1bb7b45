//! `kiln oci convert`

use super::layers::{BuiltLayers, LayerArgs, open_layout};
use crate::console::report::note;
use crate::exit::{Exit, Failure};
use crate::image::DEVICE_OPTION;
use crate::pack::failure;
use crate::process::signals::Signals;
use kiln_source::oci::{ImageChoice, OciImage, OciSource, OpenedImage, Platform};
use kiln_source::{ScanOptions, SourceError, SourceOptions};
use kilnfs::oci::{NewImage, host_platform, naming, with_layers};
use std::io::ErrorKind;
use std::path::PathBuf;

/// Convert the layers of a container image to EROFS
///
/// The new image keeps configuration, history, annotations and, without --tag, names. Layers that are EROFS images
/// already are copied, unless --preset, --kernel or --verity asks for others. Whiteouts are those of overlayfs. All
/// platforms are converted, or those that --platform names, which may be repeated.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln oci convert layout/ converted/
  kiln oci convert --image app:1.2 --platform linux/arm64 --tag app:arm64 layout/ converted/
  docker save debian | kiln oci convert --media-type containerd - converted/")]
pub struct Args {
    /// Layout to convert: a directory or an archive; - is standard input
    layout: PathBuf,

    /// Layout to make or add to
    #[arg(value_name = "LAYOUTDIR")]
    out: PathBuf,

    /// Container image to use: its name, tag or digest
    #[arg(long, value_name = "NAME|DIGEST")]
    image: Option<String>,

    /// Platform of the container image to use
    #[arg(long, value_name = "OS/ARCH")]
    platform: Vec<Platform>,

    #[command(flatten)]
    layer: LayerArgs,
}

/// Start of the names of annotations that seal an image.
const COMPOSEFS: &str = "composefs.";

pub fn run(args: &Args) -> Result<Exit, Failure> {
    args.layer.build_args.check()?;
    args.layer.work.apply_nice()?;
    let place = |path: &PathBuf| path.canonicalize().ok();
    if args.layer.tag.is_none() && place(&args.out).is_some_and(|out| place(&args.layout) == Some(out)) {
        return Err(Failure::Usage(format!(
            "{}: the converted image would take the name of the original here: give it another one with --tag",
            args.out.display()
        )));
    }
    let signals = Signals::catch()?;
    let fail = |error| failure(error, &signals, &args.out);
    let of_source = |error| Failure::of_source(error, signals.caught(), DEVICE_OPTION);
    let choice = ImageChoice { name: args.image.clone(), ..ImageChoice::default() };
    let options = SourceOptions { image: choice, ..args.layer.spool.source_options(Some(&signals)) };
    let source = OciSource::open(&args.layout, &options).map_err(of_source)?;
    let (threads, keep_going) = (args.layer.work.threads(), args.layer.keep_going);
    let scan = ScanOptions { threads, keep_going, ..ScanOptions::new(signals.stop()) };
    let opened = source.open_platforms(&args.platform, &scan).map_err(of_source)?;
    let Found { images, missing } = there(opened, !args.platform.is_empty()).map_err(of_source)?;
    let configs = images.iter().map(|image| {
        serde_json::from_slice(&image.config).map_err(|error| {
            let (layout, image) = (args.layout.display(), &image.listed);
            Failure::Usage(format!("{layout}: the configuration of {image}: {error}"))
        })
    });
    let configs = configs.collect::<Result<Vec<serde_json::Value>, _>>()?;
    let layout = open_layout(&args.out, &signals)?;
    let mut built = BuiltLayers::default();
    let mut converted = Vec::with_capacity(images.len());
    for (image, config) in images.iter().zip(configs) {
        let first = built.descriptors.len();
        for at in 0..image.layers().len() {
            let kept = if args.layer.keeps_images() { image.erofs_layer(at, &scan).map_err(of_source)? } else { None };
            if let Some(stored) = kept {
                args.layer.copy(&stored, &layout, &signals, &mut built)?;
                continue;
            }
            let layer = image.layer(at, &options, &scan).map_err(of_source)?;
            args.layer.build(&*layer, &layout, &signals, &mut built)?;
        }
        let layers = built.descriptors[first..].to_vec();
        let config = with_layers(config, &layers).map_err(fail)?;
        let platform = image.listed.platform.clone().unwrap_or_else(host_platform);
        let composefs = args.layer.composefs_id(&built, first, &signals)?;
        // A seal names the old configuration, too.
        let mut annotations = image.annotations.clone();
        annotations.retain(|key, _| !key.starts_with(COMPOSEFS));
        if composefs.is_none() && annotations.len() < image.annotations.len() {
            note(format_args!("{}: its seal is not carried over: --composefs makes a new one", image.listed));
        }
        converted.push(NewImage { config, layers, annotations, platform, composefs });
    }
    // All platforms of an image have its names.
    let own = || images.first().map(|image| image.listed.namings.clone()).unwrap_or_default();
    let namings = args.layer.tag.as_deref().map_or_else(own, |tag| vec![naming(tag)]);
    let digest = layout.add_image(converted, &namings).map_err(fail)?;
    args.layer.finish(&args.out, &digest, built, &missing)
}

/// Images that are there, and the problems of those that are only listed.
struct Found {
    images: Vec<OciImage>,
    missing: Vec<String>,
}

/// The images that can be converted. Of an image for several platforms most layouts hold one: where none was asked for, those that are not
/// there are left out.
fn there(opened: Vec<OpenedImage>, are_asked_for: bool) -> Result<Found, SourceError> {
    let (mut images, mut missing, mut first) = (Vec::new(), Vec::new(), None);
    for OpenedImage { listed, image } in opened {
        match image {
            Ok(image) => images.push(image),
            Err(SourceError::Unreadable(error)) if !are_asked_for && error.source.kind() == ErrorKind::NotFound => {
                missing.push(format!("{listed}: {error}"));
                first.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    match (first, &*images) {
        (Some(error), []) => Err(error.into()),
        _ => Ok(Found { images, missing }),
    }
}

//! `kiln oci convert`

use super::layers::{LayerArgs, failure, open_layout};
use crate::console::report::note;
use crate::exit::{Exit, Failure};
use crate::image::DEVICE_OPTION;
use crate::process::signals::Signals;
use kiln::oci::{NewImage, host_platform, with_layers};
use kiln_source::oci::{ImageChoice, OciSource, Platform};
use kiln_source::{ScanOptions, SourceOptions};
use std::path::PathBuf;

/// Make the layers of an image EROFS images
///
/// Each layer of the image in LAYOUT becomes one in LAYOUTDIR, which is made, or the image is added to it. How to run the image, its
/// history and its annotations stay. Marks for what a layer takes away are those of overlayfs.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln oci convert --tag app:1.2 layout/ converted/
  kiln oci convert --image app:1.2 --platform linux/arm64 layout/ converted/
  docker save debian | kiln oci convert --media-type containerd - converted/")]
pub struct Args {
    /// A layout: a directory or an archive; - is standard input
    layout: PathBuf,

    /// The layout to make or to add to
    #[arg(value_name = "LAYOUTDIR")]
    out: PathBuf,

    /// The image that is meant: its name, its tag, or the front of its digest
    #[arg(long, value_name = "NAME|DIGEST")]
    image: Option<String>,

    /// The platform that is meant, where an image is there for several
    #[arg(long, value_name = "OS/ARCH")]
    platform: Option<Platform>,

    #[command(flatten)]
    layer: LayerArgs,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let signals = Signals::catch()?;
    let of_source = |error| Failure::of_source(error, signals.caught(), DEVICE_OPTION);
    let choice = ImageChoice { name: args.image.clone(), platform: args.platform.clone() };
    let options = SourceOptions { image: choice, ..SourceOptions::default() };
    let source = OciSource::open(&args.layout, &options).map_err(of_source)?;
    let scan = ScanOptions::new(signals.stop());
    let image = source.image(&scan).map_err(of_source)?;
    let config = serde_json::from_slice(&image.config);
    let config: serde_json::Value = config.map_err(|error| no_config(args, &error.to_string()))?;
    let layout = open_layout(&args.out)?;
    let mut layers = Vec::with_capacity(image.layers.len());
    for at in 0..image.layers.len() {
        let layer = image.layer(at, &options, &scan).map_err(of_source)?;
        layers.push(args.layer.build(&*layer, &layout, &signals)?);
    }
    let config = with_layers(config, &layers).map_err(failure)?;
    let platform = image.listed.platform.clone().unwrap_or_else(host_platform);
    let (annotations, tag) = (image.annotations.clone(), args.layer.tag.clone());
    let digest = layout.add_image(NewImage { config, layers, annotations, platform, tag }).map_err(failure)?;
    if !args.layer.progress.quiet {
        note(format_args!("{}: {digest}", args.out.display()));
    }
    Ok(Exit::Done)
}

fn no_config(args: &Args, reason: &str) -> Failure {
    Failure::Usage(format!("{}: the configuration of the image: {reason}", args.layout.display()))
}

//! `kiln oci inspect`

use crate::console::report::{Out, print_document};
use crate::console::size::Human;
use crate::exit::{Exit, Failure};
use crate::image::DEVICE_OPTION;
use crate::process::signals::Signals;
use kiln_source::oci::{OciImage, OciSource, OpenedImage};
use kiln_source::{ScanOptions, SourceOptions};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

/// List the images of a layout, and their layers
///
/// Images that cannot be opened are listed with the error: many layouts hold one of the platforms that an image is
/// for.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln oci inspect layout/
  kiln oci inspect --json image.tar
  docker save debian | kiln oci inspect -")]
pub struct Args {
    /// Directory or archive to inspect; - is standard input
    layout: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct LayoutJson<'a> {
    images: Vec<ImageJson<'a>>,
}

#[derive(Serialize)]
struct ImageJson<'a> {
    names: &'a [String],
    digest: &'a str,
    platform: Option<String>,
    layers: Vec<LayerJson>,
    unreadable: Option<String>,
}

#[derive(Serialize)]
struct LayerJson {
    /// None of what `docker save` writes.
    media_type: Option<String>,
    size: Option<u64>,
    digest: String,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let signals = Signals::catch()?;
    let failure = |error| Failure::of_source(error, signals.caught(), DEVICE_OPTION);
    let source = OciSource::open(&args.layout, &SourceOptions::default()).map_err(failure)?;
    let options = ScanOptions::new(signals.stop());
    let images = source.open_images(&options).map_err(failure)?;
    let images = images.iter().map(|image| ImageJson::new(image, &options)).collect();
    if let Some(number) = signals.caught() {
        return Err(Failure::Signal(number));
    }
    let layout = LayoutJson { images };
    match args.json {
        true => print_document(&layout)?,
        false => tell(&layout)?,
    }
    Ok(Exit::Done)
}

impl<'a> ImageJson<'a> {
    fn new(opened: &'a OpenedImage, options: &ScanOptions<'_>) -> Self {
        let OpenedImage { listed, image } = opened;
        let layers = image.as_ref().map_err(ToString::to_string).and_then(|image: &OciImage| {
            let layer = |at: usize| {
                let descriptor = image.layers()[at].descriptor();
                let digest = image.layer_digest(at, options).map_err(|error| error.to_string())?;
                let media_type = descriptor.map(|found| found.media_type.clone());
                Ok(LayerJson { media_type, size: descriptor.map(|found| found.size), digest })
            };
            (0..image.layers().len()).map(layer).collect::<Result<Vec<_>, String>>()
        });
        // An entry without a platform leaves it to the configuration.
        let listed = image.as_ref().map_or(listed, |image| &image.listed);
        let (layers, unreadable) = match layers {
            Ok(layers) => (layers, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let platform = listed.platform.as_ref().map(ToString::to_string);
        Self { names: &listed.names, digest: &listed.digest, platform, layers, unreadable }
    }
}

fn tell(layout: &LayoutJson<'_>) -> Result<(), Failure> {
    let mut out = Out::new();
    for image in &layout.images {
        let names = if image.names.is_empty() { "without a name".to_owned() } else { image.names.join(", ") };
        out.name(names.as_bytes())?;
        out.name(format!("  {}", image.platform.as_deref().unwrap_or("unknown platform")).as_bytes())?;
        write!(out, "\n  ")?;
        out.name(image.digest.as_bytes())?;
        writeln!(out)?;
        for LayerJson { media_type, size, digest } in &image.layers {
            let size = size.map_or_else(String::new, |size| format!("  {}", Human(size)));
            let media_type = media_type.as_deref().unwrap_or("tar");
            out.name(format!("    {digest}  {media_type}{size}").as_bytes())?;
            writeln!(out)?;
        }
        if let Some(error) = &image.unreadable {
            write!(out, "    ")?;
            out.name(error.as_bytes())?;
            writeln!(out)?;
        }
    }
    out.finish()
}

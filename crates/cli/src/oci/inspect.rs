//! `kiln oci inspect`

use crate::console::report::{Out, print_document};
use crate::console::size::Human;
use crate::exit::{Exit, Failure};
use crate::image::DEVICE_OPTION;
use crate::process::signals::Signals;
use kiln_source::oci::records::Annotations;
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
    /// Of the manifest: the seal of composefs is among them.
    annotations: Vec<AnnotationJson>,
    layers: Vec<LayerJson>,
    unreadable: Option<String>,
}

#[derive(Serialize)]
struct LayerJson {
    /// None of what `docker save` writes.
    media_type: Option<String>,
    size: Option<u64>,
    digest: String,
    /// The root hash of the hash tree behind it is among them.
    annotations: Vec<AnnotationJson>,
}

#[derive(Serialize)]
struct AnnotationJson {
    name: String,
    value: String,
}

/// Start of the names of annotations that people are shown: seals, and root hashes.
const SHOWN: [&str; 2] = ["composefs.merged.", "org.erofs.dmverity.root_digest"];

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
                let annotations = descriptor.map(|found| listed_as_json(&found.annotations)).unwrap_or_default();
                Ok(LayerJson { media_type, size: descriptor.map(|found| found.size), digest, annotations })
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
        let annotations = image.as_ref().map(|image| listed_as_json(&image.annotations)).unwrap_or_default();
        Self { names: &listed.names, digest: &listed.digest, platform, annotations, layers, unreadable }
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
        tell_annotations(&mut out, "    ", &image.annotations)?;
        for LayerJson { media_type, size, digest, annotations } in &image.layers {
            let size = size.map_or_else(String::new, |size| format!("  {}", Human(size)));
            let media_type = media_type.as_deref().unwrap_or("tar");
            out.name(format!("    {digest}  {media_type}{size}").as_bytes())?;
            writeln!(out)?;
            tell_annotations(&mut out, "      ", annotations)?;
        }
        if let Some(error) = &image.unreadable {
            write!(out, "    ")?;
            out.name(error.as_bytes())?;
            writeln!(out)?;
        }
    }
    out.finish()
}

fn listed_as_json(annotations: &Annotations) -> Vec<AnnotationJson> {
    annotations.iter().map(|(name, value)| AnnotationJson { name: name.clone(), value: value.clone() }).collect()
}

/// Prints what proves contents.
fn tell_annotations(out: &mut Out, indent: &str, annotations: &[AnnotationJson]) -> Result<(), Failure> {
    let is_shown = |one: &&AnnotationJson| SHOWN.iter().any(|shown| one.name.starts_with(shown));
    for AnnotationJson { name, value } in annotations.iter().filter(is_shown) {
        out.name(format!("{indent}{name}: {value}").as_bytes())?;
        writeln!(out)?;
    }
    Ok(())
}

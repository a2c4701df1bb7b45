//! `kiln oci pack`

use super::layers::{BuiltLayers, LayerArgs, open_layout};
use crate::exit::{Exit, Failure};
use crate::image::DEVICE_OPTION;
use crate::pack::{ConcatenatedArg, failure, notice_layout};
use crate::process::signals::Signals;
use kiln_source::merge::{MergePart, Merged};
use kiln_source::oci::Platform;
use kiln_source::oci::records::Annotations;
use kiln_source::{Source, SourceOptions};
use kiln_tree::merge::Whiteouts;
use kilnfs::oci::{NewImage, host_platform, naming, new_config, with_layers};
use std::path::{Path, PathBuf};

/// Pack sources as a container image with one EROFS layer
///
/// The layout is made, or the image is added to it; its index changes last, in one step. The same sources, options
/// and platform give the same digests.
#[derive(clap::Args)]
#[command(
    override_usage = "kiln oci pack [OPTIONS] SRC... LAYOUTDIR",
    after_help = "\
Examples:
  kiln oci pack rootfs/ layout/
  kiln oci pack --tag app:1.2 --as-platform linux/amd64 amd64.tar.zst layout/
  kiln oci pack --tag app:1.2 --as-platform linux/arm64 arm64.tar.zst layout/
  kiln oci pack --media-type containerd base.erofs changes/ layout/"
)]
pub struct Args {
    /// Sources to pack, of which later ones lie over earlier ones, and the layout to make or add to
    #[arg(value_name = "SRC|LAYOUTDIR", num_args = 2.., required = true)]
    operands: Vec<PathBuf>,

    /// Platform that the image is for; default: Linux on this processor
    #[arg(long, value_name = "OS/ARCH")]
    as_platform: Option<Platform>,

    #[command(flatten)]
    concatenated: ConcatenatedArg,

    #[command(flatten)]
    layer: LayerArgs,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let Some((layout_dir, sources)) = args.operands.split_last() else {
        return Err(Failure::Usage("name what to pack, and a layout".into()));
    };
    args.layer.build_args.check()?;
    args.layer.work.apply_nice()?;
    let signals = Signals::catch()?;
    let fail = |error| failure(error, &signals, layout_dir);
    let source = open(args, sources, &signals)?;
    let layout = open_layout(layout_dir, &signals)?;
    let mut built = BuiltLayers::default();
    args.layer.build(&*source, &layout, &signals, &mut built)?;
    let layers = built.descriptors.clone();
    let platform = args.as_platform.clone().unwrap_or_else(host_platform);
    let config = with_layers(new_config(&platform), &layers).map_err(fail)?;
    let composefs = args.layer.composefs_id(&built, 0, &signals)?;
    let image = NewImage { config, layers, annotations: Annotations::new(), platform, composefs };
    let namings: Vec<_> = args.layer.tag.as_deref().map(naming).into_iter().collect();
    let digest = layout.add_image(vec![image], &namings).map_err(fail)?;
    args.layer.finish(layout_dir, &digest, built, &[])
}

fn open(args: &Args, paths: &[PathBuf], signals: &Signals) -> Result<Box<dyn Source>, Failure> {
    if paths.iter().filter(|path| *path == Path::new("-")).count() > 1 {
        return Err(Failure::Usage("standard input can be one source only".into()));
    }
    let concatenated = args.concatenated.concatenated;
    let options = SourceOptions { concatenated, ..args.layer.spool.source_options(Some(signals)) };
    let open = |path: &PathBuf| {
        notice_layout(path, "use kiln oci convert");
        kiln_source::open(path, &options).map_err(|error| Failure::of_source(error, signals.caught(), DEVICE_OPTION))
    };
    if let [path] = paths {
        return open(path);
    }
    let parts = paths.iter().map(|path| Ok(MergePart::new(open(path)?, b""))).collect::<Result<_, Failure>>()?;
    Ok(Box::new(Merged::new(parts, Whiteouts::Apply)))
}

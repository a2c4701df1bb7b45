//! The operands of `kiln pack`: what goes in, and where it goes.

use crate::console::report::note;
use crate::exit::Failure;
use crate::image::DEVICE_OPTION;
use crate::objects::ObjectDirsArg;
use crate::pack::out_args::SpoolArgs;
use crate::process::signals::Signals;
use crate::root_hash::RootHashArgs;
use kiln_source::disk::PartitionChoice;
use kiln_source::merge::{MergePart, Merged};
use kiln_source::oci::{ImageChoice, OciSource, Platform, looks_like_dir_transport, looks_like_layout};
use kiln_source::{KINDS, Source, SourceKind, SourceOptions};
use kiln_tree::merge::Whiteouts;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct SourceArgs {
    /// Directories, archives or images to pack, then the image to write
    #[arg(value_name = "SRC|IMAGE", required_unless_present_any = ["at"], help_heading = None)]
    operands: Vec<PathBuf>,

    /// Image to write; every operand is then a source
    #[arg(short = 'o', long, value_name = "IMAGE", conflicts_with = "estimate", help_heading = None)]
    output: Option<PathBuf>,

    /// Put SRC below the directory DIR of the image
    #[arg(long, num_args = 2, value_names = ["DIR", "SRC"])]
    at: Vec<PathBuf>,

    /// Read every source as this kind (see `kiln help sources`)
    #[arg(long, value_name = "KIND", value_parser = parse_kind)]
    from: Option<SourceKind>,

    /// Container image to use: its name, tag or digest
    #[arg(long, value_name = "NAME|DIGEST")]
    image: Option<String>,

    /// Platform of the container image to use
    #[arg(long, value_name = "OS/ARCH")]
    platform: Option<Platform>,

    /// Partition of a disk or disk image to pack
    #[arg(long, value_name = "N|LABEL")]
    partition: Option<PartitionChoice>,

    /// Directory with the contents of an mtree manifest
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Refer to data of archives and EROFS images, without copies
    #[arg(long, conflicts_with = "estimate")]
    pub reference: bool,

    /// Extra device of the image that is read; repeat for each, in order
    #[arg(long, value_name = "FILE")]
    device: Vec<PathBuf>,

    #[command(flatten)]
    verified: RootHashArgs,

    #[command(flatten)]
    objects: ObjectDirsArg,

    #[command(flatten)]
    concatenated: ConcatenatedArg,
}

/// Extent to which tar archives are read.
#[derive(clap::Args)]
pub struct ConcatenatedArg {
    /// Read tar archives that lie one behind the other as one
    #[arg(long)]
    pub concatenated: bool,
}

/// Operands by their roles.
pub struct Operands<'a> {
    /// Sources that lie over each other, the lowest first.
    layers: &'a [PathBuf],
    /// Name of the image; `None` for an estimate and for a cache.
    pub image: Option<&'a Path>,
}

impl Operands<'_> {
    /// Returns the first source that is a pipe, a FIFO or a character device, if there is one.
    pub fn stream(&self) -> Option<&Path> {
        let is_stream = |path: &&PathBuf| {
            let kind = path.metadata().map(|found| found.file_type());
            *path == Path::new("-") || kind.is_ok_and(|kind| kind.is_fifo() || kind.is_char_device())
        };
        self.layers.iter().find(is_stream).map(PathBuf::as_path)
    }
}

/// Opens `path` as a source, of the kind `from` if one is named.
///
/// # Errors
/// A path that cannot be read, or is no source.
pub fn open_source(
    path: &Path,
    from: Option<SourceKind>,
    options: &SourceOptions,
    signals: Option<&Signals>,
) -> Result<Box<dyn Source>, Failure> {
    let source = match from {
        Some(kind) => kiln_source::open_as(&[kind], path, options),
        None => kiln_source::open(path, options),
    };
    source.map_err(|error| Failure::of_source(error, signals.and_then(Signals::caught), DEVICE_OPTION))
}

/// Value of `--from`.
pub fn parse_kind(text: &str) -> Result<SourceKind, String> {
    let kind = KINDS.iter().find(|kind| kind.name == text).copied();
    kind.ok_or_else(|| format!("use one of {}", KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ")))
}

/// Notes that a directory is most likely not meant as one. `help` says how the image in it is read.
pub fn notice_layout(path: &Path, help: &str) {
    let what = match path {
        path if looks_like_layout(path) => "OCI layout",
        path if looks_like_dir_transport(path) => "directory of skopeo",
        _ => return,
    };
    note(format_args!("{}: read as a directory; for the image in this {what}, {help}", path.display()));
}

impl SourceArgs {
    /// Returns the operands by their roles: sources and the image.
    ///
    /// # Errors
    /// An image without a source, several sources without `-o`.
    pub fn operands(&self, are_all_sources: bool) -> Result<Operands<'_>, Failure> {
        let refuse = |message: String| Err(Failure::Usage(message));
        match (&self.output, &*self.operands) {
            (_, layers) if are_all_sources => Ok(Operands { layers, image: None }),
            (Some(image), layers) => Ok(Operands { layers, image: Some(image) }),
            (None, [layer, image]) => Ok(Operands { layers: std::slice::from_ref(layer), image: Some(image) }),
            (None, [image]) if !self.at.is_empty() => Ok(Operands { layers: &[], image: Some(image) }),
            (None, []) => refuse("name the image to make: -o IMAGE".into()),
            (None, [one]) => refuse(format!("{}: name the image to make, too: SRC IMAGE", one.display())),
            (None, [.., last]) => refuse(format!(
                "several sources need -o IMAGE, so that {} is not taken for one of them",
                last.display()
            )),
        }
    }

    /// Opens the sources. A signal ends the wait for a stream, where signals are caught; else it ends the process.
    ///
    /// # Errors
    /// A path that cannot be read, or is no source; a signal.
    pub fn open(
        &self,
        operands: &Operands<'_>,
        spool: &SpoolArgs,
        signals: Option<&Signals>,
    ) -> Result<Box<dyn Source>, Failure> {
        let mut parts: Vec<(&Path, &Path)> =
            operands.layers.iter().map(|layer| (layer.as_path(), Path::new(""))).collect();
        parts.extend(self.at.chunks_exact(2).map(|pair| (pair[1].as_path(), pair[0].as_path())));
        if parts.len() > 1 && !self.device.is_empty() {
            return Err(Failure::Usage(format!("{DEVICE_OPTION}: of several sources it is not clear which has it")));
        }
        if parts.len() > 1 && self.verified.is_given() {
            return Err(Failure::Usage("--root-hash: of several sources it is not clear which has it".into()));
        }
        if parts.len() > 1 && self.partition.is_some() {
            return Err(Failure::Usage("--partition: of several sources it is not clear which has it".into()));
        }
        if parts.len() > 1 && self.root.is_some() {
            return Err(Failure::Usage("--root: of several sources it is not clear which has it".into()));
        }
        if parts.iter().filter(|(path, _)| *path == Path::new("-")).count() > 1 {
            return Err(Failure::Usage("standard input can be one source only".into()));
        }
        let source_layer = match parts.first() {
            Some((path, _)) => self.verified.layer(path, &self.device)?,
            None => None,
        };
        let options = SourceOptions { source_layer, ..self.options(spool, signals)? };
        let open = |path: &Path| {
            if self.from.is_none() {
                notice_layout(path, "use --from oci");
            }
            open_source(path, self.from, &options, signals)
        };
        if let [(path, at)] = *parts
            && at == Path::new("")
        {
            return open(path);
        }
        let part = |(path, at): (&Path, &Path)| Ok(MergePart::new(open(path)?, at.as_os_str().as_bytes()));
        let parts = parts.into_iter().map(part).collect::<Result<_, Failure>>()?;
        Ok(Box::new(Merged::new(parts, Whiteouts::Apply)))
    }

    /// Opens the only operand as images of containers.
    ///
    /// # Errors
    /// Several operands, and what is no source of that kind.
    pub fn open_images(
        &self,
        operands: &Operands<'_>,
        spool: &SpoolArgs,
        signals: &Signals,
    ) -> Result<OciSource, Failure> {
        let [path] = operands.layers else {
            return Err(Failure::Usage("--layers: name one image of a container".into()));
        };
        if let Some(kind) = self.from.filter(|kind| kind.name != "oci") {
            return Err(Failure::Usage(format!("--from {}: --layers are those of an image of a container", kind.name)));
        }
        let source_layer = self.verified.layer(path, &self.device)?;
        let source = OciSource::open(path, &SourceOptions { source_layer, ..self.options(spool, Some(signals))? });
        source.map_err(|error| Failure::of_source(error, signals.caught(), DEVICE_OPTION))
    }

    /// Returns options of sources.
    pub fn options(&self, spool: &SpoolArgs, signals: Option<&Signals>) -> Result<SourceOptions, Failure> {
        let (name, platform) = (self.image.clone(), self.platform.clone());
        let image = ImageChoice { name, platform, ..ImageChoice::default() };
        let (devices, root_dir) = (self.device.clone(), self.root.clone());
        let (partition, concatenated) = (self.partition.clone(), self.concatenated.concatenated);
        Ok(SourceOptions {
            devices,
            partition,
            image,
            root_dir,
            objects: self.objects.open()?,
            reference: self.reference,
            concatenated,
            ..spool.source_options(signals)
        })
    }

    /// Returns the source, if there is only one: messages about paths in it do not name it.
    pub fn only_source<'a>(&self, operands: &Operands<'a>) -> &'a Path {
        match operands.layers {
            [only] if self.at.is_empty() => only,
            _ => Path::new(""),
        }
    }
}

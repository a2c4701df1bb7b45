//! Layers of images: trees that become EROFS images among the blobs of a layout.

use crate::composefs::image::{Conversion, Output, failed};
use crate::composefs::versions::parse_algorithm;
use crate::console::progress::QuietArgs;
use crate::console::report::{PathJson, note, print_document};
use crate::exit::{Exit, Failure};
use crate::image::DEVICE_OPTION;
use crate::pack::out_args::SpoolArgs;
use crate::pack::preset::{self, BuildArgs};
use crate::pack::{PackJson, Report, failure, tell_skipped};
use crate::process::signals::Signals;
use crate::process::work::WorkArgs;
use crate::verity::sealing::{ImageIn, Sealing};
use crate::verity::{Hashing, MadeTree, SaltArg};
use kiln_builder::Out;
use kiln_source::merge::{MergePart, Merged};
use kiln_source::oci::StoredLayer;
use kiln_source::oci::records::Descriptor;
use kiln_source::{ScanOptions, Source, SourceOptions};
use kiln_tree::merge::Whiteouts;
use kiln_tree::storage::DataOrder;
use kilnfs::composefs::from_tree::container::container_tree;
use kilnfs::composefs::from_tree::{TreeOptions, XattrChoice};
use kilnfs::composefs::image::{ImageOptions, Version};
use kilnfs::digest::{Algorithm, Digest};
use kilnfs::oci::{LayerType, LayoutDir};
use serde::Serialize;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of a layer that are copied at once.
const PIECE_LEN: usize = 1 << 20;

/// Options of commands that make layers.
#[derive(clap::Args)]
pub struct LayerArgs {
    /// Name of the image in the new layout; replaces it for the same platform
    #[arg(long, value_parser = parse_tag)]
    pub tag: Option<String>,

    #[command(flatten)]
    pub build_args: BuildArgs,

    /// Media type of layers: application/vnd.erofs, the default, or containerd's
    #[arg(long, value_enum, value_name = "erofs|containerd", hide_possible_values = true)]
    media_type: Option<MediaType>,

    /// Append a hash tree of dm-verity to each layer, and describe it by annotations
    #[arg(long)]
    verity: bool,

    #[command(flatten)]
    salt: SaltArg,

    /// Seal the image: add the id of its composefs image, by sha256 or sha512, as annotations
    #[arg(
        long,
        value_name = "NAME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "sha512",
        value_parser = parse_algorithm
    )]
    composefs: Option<Algorithm>,

    /// Skip what cannot be read, list it, and exit with 3
    #[arg(long)]
    pub keep_going: bool,

    #[command(flatten)]
    pub spool: SpoolArgs,

    #[command(flatten)]
    pub work: WorkArgs,

    #[command(flatten)]
    pub quiet: QuietArgs,
}

/// Layers that were built, in the order of calls.
#[derive(Default)]
pub struct BuiltLayers {
    pub descriptors: Vec<Descriptor>,
    /// Files of the layers.
    paths: Vec<PathBuf>,
    documents: Vec<LayerJson>,
    exit: Option<Exit>,
}

/// For programs: a layer.
#[derive(Serialize)]
struct LayerJson {
    digest: String,
    /// `None`: it was copied as it was.
    #[serde(flatten)]
    packed: Option<PackJson>,
}

/// For programs, on standard output: an image that was added to a layout.
#[derive(Serialize)]
struct AddedJson<'a> {
    layout: PathJson,
    digest: &'a str,
    layers: Vec<LayerJson>,
    left_out: &'a [String],
}

#[derive(Clone, Copy, Default, clap::ValueEnum)]
enum MediaType {
    #[default]
    Erofs,
    Containerd,
}

impl LayerArgs {
    /// Builds `source` as a blob of `layout`, and appends it to `built`.
    ///
    /// # Errors
    /// A source that cannot be read, a layout that cannot be written.
    pub fn build(
        &self,
        source: &dyn Source,
        layout: &LayoutDir,
        signals: &Signals,
        built: &mut BuiltLayers,
    ) -> Result<(), Failure> {
        let blob = layout.new_blob()?;
        let name = blob.dir_path().to_owned();
        let fail = |error| failure(error, signals, &name);
        let packer = preset::packer(self.build_args.choices(), &self.work, self.keep_going, signals)?.output(&blob);
        let quiet = self.quiet.quiet;
        let scanned = self.work.watch(quiet, |progress| packer.scan_into(source, Out::from(&blob), progress));
        let scanned = scanned.map_err(fail)?;
        let image = self.work.watch(quiet, |progress| scanned.build(Out::from(&blob), progress)).map_err(fail)?;
        let sealing = self.verity.then(|| Sealing::new(self.salt.verity_salt.clone()));
        let hashing = Hashing { work: Some(&self.work), quiet, signals };
        let sealed = ImageIn { file: blob.file(), offset: 0, name: &name };
        let tree = sealing.map(|sealing| sealing.seal(&sealed, &image.summary, hashing)).transpose()?;
        let mut descriptor = layout.add_blob(blob, self.layer_type().media_type()).map_err(fail)?;
        descriptor.annotations.extend(tree.iter().flat_map(annotations));
        let path = name.join(descriptor.digest.trim_start_matches("sha256:"));
        let (summary, order) = (&image.summary, &DataOrder::Path);
        let report =
            Report { src: source.path(), image: &path, scan: Some(&scanned.scan), order, summary, tree: tree.as_ref() };
        built.exit = Some(built.exit.unwrap_or(Exit::Done).or(tell_skipped(&report)));
        if self.work.json {
            built.documents.push(LayerJson { digest: descriptor.digest.clone(), packed: Some(PackJson::new(&report)) });
        }
        built.descriptors.push(descriptor);
        built.paths.push(path);
        Ok(())
    }

    /// Returns true if layers that are EROFS images stay as they are: no option asks for others.
    pub fn keeps_images(&self) -> bool {
        self.build_args.are_default() && !self.verity
    }

    /// Copies a layer that is an EROFS image, with its annotations, as a blob of `layout`, and appends it to `built`.
    ///
    /// # Errors
    /// A layer that cannot be read, a layout that cannot be written; an interruption.
    pub fn copy(
        &self,
        StoredLayer { bytes, descriptor }: &StoredLayer<'_>,
        layout: &LayoutDir,
        signals: &Signals,
        built: &mut BuiltLayers,
    ) -> Result<(), Failure> {
        let blob = layout.new_blob()?;
        let name = blob.dir_path().to_owned();
        let failed = |action| {
            let path = name.clone();
            move |source| Failure::File { path, action, source }
        };
        let (mut at, mut piece) = (0, vec![0; PIECE_LEN.min(descriptor.size as usize)]);
        while at < descriptor.size {
            if let Some(number) = signals.caught() {
                return Err(Failure::Signal(number));
            }
            let part = &mut piece[..(descriptor.size - at).min(PIECE_LEN as u64) as usize];
            bytes.read_exact_at(part, at).map_err(failed("copy a layer to"))?;
            blob.file().write_all_at(part, at).map_err(failed("copy a layer to"))?;
            at += part.len() as u64;
        }
        let media_type = self.media_type.map_or(&*descriptor.media_type, |_| self.layer_type().media_type());
        let copied = layout.add_blob(blob, media_type).map_err(|error| failure(error, signals, &name))?;
        let copied = Descriptor { annotations: descriptor.annotations.clone(), ..copied };
        if self.work.json {
            built.documents.push(LayerJson { digest: copied.digest.clone(), packed: None });
        }
        built.paths.push(name.join(copied.digest.trim_start_matches("sha256:")));
        built.descriptors.push(copied);
        Ok(())
    }

    /// Returns the id of the composefs image of the layers from number `first` on, if images are to be sealed.
    ///
    /// # Errors
    /// Layers whose files cannot be read; an image without `/usr`.
    pub fn composefs_id(
        &self,
        built: &BuiltLayers,
        first: usize,
        signals: &Signals,
    ) -> Result<Option<Digest>, Failure> {
        let Some(algorithm) = self.composefs else { return Ok(None) };
        let of_source = |error| Failure::of_source(error, signals.caught(), DEVICE_OPTION);
        let open = |path: &PathBuf| Ok(MergePart::new(kiln_source::open(path, &SourceOptions::default())?, b""));
        let parts = built.paths[first..].iter().map(open).collect::<Result<Vec<_>, _>>().map_err(of_source)?;
        let (threads, stop) = (self.work.threads(), signals.stop());
        let layers = Merged::new(parts, Whiteouts::Apply);
        let scan = layers.scan(&ScanOptions { threads, ..ScanOptions::new(stop) }).map_err(of_source)?;
        let image = Path::new("the container image");
        let tree = container_tree(scan.tree).map_err(failed(image))?;
        let options = TreeOptions { xattrs: XattrChoice::Capability, ..TreeOptions::default() };
        let conversion = Conversion { options, algorithm, store: None, threads, stop };
        let tree = conversion.convert(&tree, image)?;
        let version = Version::V1;
        let options = ImageOptions { min_version: version, max_version: version, algorithm: Some(algorithm) };
        let id = Output::None.write(&tree, &options)?.digest;
        if let Some(id) = &id
            && !self.quiet.quiet
        {
            note(format_args!("sealed: its composefs image (version 1) has the id {}:{id}", id.algorithm()));
        }
        Ok(id)
    }

    /// Reports the image `digest`, which was added to the layout at `dir`. `left_out`: images of other platforms that
    /// were listed and not found.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn finish(&self, dir: &Path, digest: &str, built: BuiltLayers, left_out: &[String]) -> Result<Exit, Failure> {
        left_out.iter().for_each(|one| note(format_args!("left out: {one}")));
        if !self.quiet.quiet {
            note(format_args!("{}: {digest}", dir.display()));
        }
        if self.work.json {
            let layout = PathJson::new(dir.as_os_str().as_bytes());
            print_document(&AddedJson { layout, digest, layers: built.documents, left_out })?;
        }
        let exit = built.exit.unwrap_or(Exit::Done);
        Ok(if left_out.is_empty() { exit } else { Exit::Skipped })
    }

    fn layer_type(&self) -> LayerType {
        match self.media_type.unwrap_or_default() {
            MediaType::Erofs => LayerType::Erofs,
            MediaType::Containerd => LayerType::Containerd,
        }
    }
}

/// Parses a name in a layout, by the grammar of the annotation `org.opencontainers.image.ref.name`.
fn parse_tag(text: &str) -> Result<String, &'static str> {
    let is_part = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let words = text.replace("--", "-");
    match words.split(['-', '.', '_', ':', '@', '/', '+']).all(is_part) {
        true => Ok(text.to_owned()),
        false => Err("letters and digits, with one of -._:@/+ between them, such as app:1.2"),
    }
}

/// Returns the annotations that describe the tree in a blob.
fn annotations(tree: &MadeTree) -> [(String, String); 3] {
    [
        ("org.erofs.dmverity.hash_offset", tree.hash_off.to_string()),
        ("org.erofs.dmverity.root_digest", format!("{}:{}", tree.root_hash.algorithm(), tree.root_hash)),
        ("org.erofs.dmverity.block_size", tree.block_size.to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
}

/// Opens the layout at `path`, or creates it.
///
/// # Errors
/// Something else is there; errors of the system.
pub fn open_layout(path: &Path, signals: &Signals) -> Result<LayoutDir, Failure> {
    LayoutDir::open_or_create(path).map_err(|error| failure(error, signals, path))
}

//! `kiln convert`: packs or exports, depending on the kinds of input and output.

use crate::console::progress::QuietArgs;
use crate::console::report::{SkippedJson, note, print_document};
use crate::exit::{Exit, Failure};
use crate::export::{Archive, To, of_name, parse_to};
use crate::extract::CACHE_LEN;
use crate::image::ImageArgs;
use crate::objects::ObjectDirsArg;
use crate::pack::out_args::OutArgs;
use crate::pack::output::{Destination, spool_failure};
use crate::pack::preset::{self, BuildArgs};
use crate::pack::target::Target;
use crate::pack::{
    ConcatenatedArg, PackJson, Report, failure, open_source, parse_kind, skipped_json, tell, tell_skipped, verifiable,
};
use crate::process::signals::Signals;
use crate::process::work::WorkArgs;
use crate::root_hash::RootHashArgs;
use crate::verity::{Hashing, VerityArgs};
use kiln_builder::{BuildError, Choices, Out, Preset};
use kiln_format::superblock::{MAGIC, SUPERBLOCK_OFF};
use kiln_output::Spool;
use kiln_read::{FileSource, Image, ImageOptions, ReadError};
use kiln_sink::Selection;
use kiln_source::{Source, SourceKind, SourceOptions};
use kiln_tree::storage::DataOrder;
use kilnfs::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Turn one format into another
///
/// Reads all sources of `kiln pack`. The end of OUT's name is the format: that of an archive as for `kiln export`,
/// otherwise an EROFS image. An archive becomes another kind of archive through an uncompressed image in a
/// temporary file.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln convert rootfs.squashfs rootfs.erofs
  kiln convert data.zip data.tar.zst
  kiln convert --to tar image.erofs - | tar -t")]
pub struct Args {
    /// Directory, archive or image to read; - is standard input
    #[arg(value_name = "IN")]
    src: PathBuf,

    /// Image or archive to write; - is standard output
    out: PathBuf,

    /// Read every source as this kind (see `kiln help sources`)
    #[arg(long, value_name = "KIND", value_parser = parse_kind)]
    from: Option<SourceKind>,

    /// Write this format, whatever the name of OUT ends with
    #[arg(long, value_name = "FORMAT", value_parser = parse_wanted)]
    to: Option<Wanted>,

    #[command(flatten)]
    build: BuildArgs,

    /// Compression level of the archive: gzip, xz, ZIP 0 to 9, zstd 1 to 19, bzip2 1 to 9
    #[arg(long, value_name = "N")]
    level: Option<u32>,

    /// Skip what cannot be read, list it, and exit with 3
    #[arg(long)]
    keep_going: bool,

    #[command(flatten)]
    verity: VerityArgs,

    #[command(flatten)]
    out_args: OutArgs,

    #[command(flatten)]
    verified: RootHashArgs,

    #[command(flatten)]
    objects: ObjectDirsArg,

    #[command(flatten)]
    concatenated: ConcatenatedArg,

    #[command(flatten)]
    work: WorkArgs,

    #[command(flatten)]
    quiet: QuietArgs,
}

/// Kind of the output.
#[derive(Clone, Copy)]
enum Wanted {
    Erofs,
    Other(To),
}

fn parse_wanted(text: &str) -> Result<Wanted, &'static str> {
    if text == "erofs" { Ok(Wanted::Erofs) } else { parse_to(text).map(Wanted::Other) }
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let wanted = args.to.unwrap_or_else(|| of_name(&args.out).map_or(Wanted::Erofs, Wanted::Other));
    let (format, compression) = match wanted {
        Wanted::Erofs if args.level.is_some() => {
            return Err(Failure::Usage("--level is for archives: an image has --preset".into()));
        }
        Wanted::Other(_) if args.verity.wanted().is_some() => {
            return Err(Failure::Usage("--verity: an archive has no hash tree".into()));
        }
        Wanted::Erofs => return pack(args),
        Wanted::Other(To::Dir) => {
            return Err(Failure::Usage("a directory is made by kiln extract".into()));
        }
        Wanted::Other(To::ComposefsDump) => {
            return Err(Failure::Usage("a dump of composefs is made by kiln export".into()));
        }
        Wanted::Other(To::Archive(format, compression)) => (format, compression),
    };
    args.work.apply_nice()?;
    let signals = Signals::catch()?;
    let image = ImageArgs { image: args.src.clone(), verified: args.verified.clone(), ..ImageArgs::default() };
    let failure = |error: ReadError| image.failure(error);
    let archive = Archive {
        out: &args.out,
        format,
        compression,
        level: args.level,
        existing: args.out_args.existing(),
        keep_going: args.keep_going,
        work: &args.work,
        quiet: args.quiet.quiet,
    };
    let options = ImageOptions::default().with_cache_bytes(CACHE_LEN).with_objects(args.objects.open()?);
    let open = || {
        if args.from.is_none() && is_erofs(&args.src) {
            return Ok((image.open_with(&options)?, Vec::new()));
        }
        let (spool, skipped) = to_spool(args, &signals)?;
        let source = FileSource::from_file(spool.into_file());
        let source = source.map_err(|source| Failure::File { path: args.src.clone(), action: "read", source })?;
        let image = Image::open(Arc::new(source), Vec::new(), &options).map_err(failure)?;
        Ok((image, skipped))
    };
    archive.write(&Selection::everything(), open, &signals, &failure)
}

/// Returns true if the file at `path` has the magic number of EROFS. Opening it shows all other problems.
fn is_erofs(path: &Path) -> bool {
    let read = || {
        let mut magic = [0; 4];
        // To open a pipe would wait, and take from it.
        let file = path.metadata().ok().filter(|found| found.is_file()).and_then(|_| File::open(path).ok())?;
        file.read_exact_at(&mut magic, SUPERBLOCK_OFF).ok().map(|()| magic)
    };
    read() == Some(MAGIC.to_le_bytes())
}

/// Packs the source into an image.
fn pack(args: &Args) -> Result<Exit, Failure> {
    args.work.apply_nice()?;
    let destination = Destination::find(&args.out)?;
    if args.work.json {
        destination.refuse_json("image")?;
    }
    let (name, quiet) = (destination.name(&args.out), args.quiet.quiet || destination.is_stderr());
    let signals = Signals::catch()?;
    let existing = args.out_args.existing();
    let target = Target::create(destination, existing, 0, args.out_args.spool.asked())?;
    let target = target.with_tree(args.verity.wanted(), &args.out, existing)?;
    let fail = |error| failure(error, &signals, &args.out);
    let packer = preset::packer(args.build.choices(), &args.work, args.keep_going, &signals)?;
    let packer = target.prepare(packer);
    let source = open(args, &signals)?;
    let scanned = args.work.watch(args.quiet.quiet, |progress| packer.scan_into(&*source, target.out(), progress));
    let scanned = scanned.map_err(|error| target.failure(fail(error)))?;
    let built = args.work.watch(args.quiet.quiet, |progress| scanned.build(target.out(), progress));
    let mut built = built.map_err(|error| target.failure(fail(error)))?;
    let hashing = Hashing { work: Some(&args.work), quiet: args.quiet.quiet, signals: &signals };
    let tree = target.seal(&mut built.summary, &args.out, hashing)?;
    built.commit_by(|summary| target.commit(summary, &signals))?;
    let (scan, summary, order, tree) = (Some(&scanned.scan), &built.summary, &DataOrder::Path, tree.as_ref());
    let report = Report { src: &args.src, image: &name, scan, order, summary, tree };
    let exit = tell_skipped(&report);
    if !quiet {
        tell(&name, summary);
        if summary.digested_bytes == 0 {
            note(format_args!("{}", verifiable(summary)));
        }
        if let Some(tree) = tree {
            tree.tell_all(&name);
        }
    }
    if args.work.json {
        print_document(&PackJson::new(&report))?;
    }
    Ok(exit)
}

/// Packs the source into an uncompressed image in a nameless file. The list has the entries that are not in it as they
/// are in the source.
fn to_spool(args: &Args, signals: &Signals) -> Result<(Spool, Vec<SkippedJson>), Failure> {
    let spool = Spool::create(&args.out_args.spool.dir())?;
    let choices = Choices { preset: Preset::Plain, ..Choices::default() };
    let packer = preset::packer(choices, &args.work, args.keep_going, signals)?.scratch_dir(spool.dir());
    let source = open(args, signals)?;
    let fail = |error| failure(error, signals, spool.dir());
    let failed = |error| match error {
        Error::Build(BuildError::Write { source, .. }) => spool_failure(&spool, source),
        error => fail(error),
    };
    let out = Out { image: spool.file(), offset: 0, blob: None, behind: None };
    let scanned = packer.scan_into(&*source, out, &|_| {}).map_err(failed)?;
    let summary = scanned.build(out, &|_| {}).map_err(failed)?.summary;
    let (image, order) = (spool.dir(), &DataOrder::Path);
    let report = Report { src: &args.src, image, scan: Some(&scanned.scan), order, summary: &summary, tree: None };
    tell_skipped(&report);
    let skipped = skipped_json(&report);
    Ok((spool, skipped))
}

fn open(args: &Args, signals: &Signals) -> Result<Box<dyn Source>, Failure> {
    let concatenated = args.concatenated.concatenated;
    let (source_layer, objects) = (args.verified.layer(&args.src, &[])?, args.objects.open()?);
    let spooled = args.out_args.spool.source_options(Some(signals));
    let options = SourceOptions { source_layer, objects, concatenated, ..spooled };
    open_source(&args.src, args.from, &options, Some(signals))
}

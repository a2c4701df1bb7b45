//! `kiln convert`: pack or export, by the kinds of what is there and what is wanted.

use crate::console::progress::ProgressArgs;
use crate::console::report::note;
use crate::exit::{Exit, Failure};
use crate::export::{Archive, To, of_name, parse_to};
use crate::extract::CACHE_LEN;
use crate::image::DEVICE_OPTION;
use crate::pack::output::{Destination, Stream, spool_dir, spool_failure};
use crate::pack::preset::{PresetArg, refusal};

use crate::pack::target::Target;
use crate::pack::{
    ConcatenatedArg, Job, SpoolMaxArg, open_source, parse_kind, source_date_epoch, tell, tell_notes, verifiable,
};
use crate::process::signals::Signals;
use crate::process::threads::ThreadsArgs;
use kiln::PackRequest;
use kiln_builder::{BuildError, BuildOptions, Choices, IdentityOptions, Out, Preset, Progress, Summary, WorkOptions};
use kiln_format::superblock::{MAGIC, SUPERBLOCK_OFF};
use kiln_output::{Existing, Spool};
use kiln_read::{FileSource, Image, ImageOptions, ReadError};
use kiln_sink::Selection;
use kiln_source::dir::FileId;
use kiln_source::{SourceKind, SourceOptions};
use kiln_tree::filter::Filter;
use kiln_tree::policy::Policy;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Make one kind of archive or image another one
///
/// IN is anything that `kiln pack` takes. OUT becomes what the end of its name says: an archive (.tar, .tar.zst, .zip, .cpio, .mtree and their
/// kin), else an EROFS image. An archive of something else than an EROFS image is made by way of an uncompressed image in a nameless file.
/// With filters, owners and the like, use `kiln pack`, and then `kiln export`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln convert rootfs.squashfs rootfs.erofs
  kiln convert data.zip data.tar.zst
  kiln convert --to tar image.erofs - | tar -t")]
pub struct Args {
    /// What is there: a directory, an archive or an image; - is standard input
    #[arg(value_name = "IN")]
    src: PathBuf,

    /// What to make; - is standard output
    out: PathBuf,

    /// Take IN for this, whatever it looks like
    #[arg(long, value_name = "KIND", value_parser = parse_kind)]
    from: Option<SourceKind>,

    /// Make this, whatever the name of OUT ends with: erofs, tar, zip, cpio, mtree, squashfs-pseudo, or with compression as in tar.zst
    #[arg(long, value_name = "FORMAT", value_parser = parse_wanted)]
    to: Option<Wanted>,

    /// How an EROFS image is made
    #[arg(long, value_enum, default_value_t)]
    preset: PresetArg,

    /// How well an archive is compressed, see `kiln export`
    #[arg(long, value_name = "N")]
    level: Option<u32>,

    /// Replace OUT if it exists
    #[arg(long)]
    force: bool,

    /// Where files without a name take room
    #[arg(long, value_name = "DIR")]
    spool: Option<PathBuf>,

    #[command(flatten)]
    concatenated: ConcatenatedArg,

    #[command(flatten)]
    spool_max: SpoolMaxArg,

    #[command(flatten)]
    threads: ThreadsArgs,

    #[command(flatten)]
    progress: ProgressArgs,
}

/// What is wanted.
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
        Wanted::Erofs => return pack(args),
        Wanted::Other(To::Dir) => {
            return Err(Failure::Usage("a directory is made by kiln extract".into()));
        }
        Wanted::Other(To::Archive(format, compression)) => (format, compression),
    };
    let signals = Signals::catch()?;
    let failure = |error: ReadError| Failure::of_image(&args.src, 0, DEVICE_OPTION, error);
    let archive = Archive {
        out: &args.out,
        format,
        compression,
        level: args.level,
        force: args.force,
        keep_going: false,
        threads: args.threads.threads(),
        progress: &args.progress,
        json: false,
    };
    let options = ImageOptions::default().with_cache_bytes(CACHE_LEN);
    let open = || {
        if args.from.is_none() && is_erofs(&args.src) {
            let image = Image::open_path(&args.src, &[], &options).map_err(failure)?;
            return image.require_devices().map(|()| image).map_err(failure);
        }
        let spool = args.to_spool(&signals)?;
        let source = FileSource::from_file(spool.into_file());
        let source = source.map_err(|source| Failure::File { path: args.src.clone(), action: "read", source })?;
        Image::open(Arc::new(source), Vec::new(), &options).map_err(failure)
    };
    archive.write(&Selection::everything(), open, &signals, &failure)
}

/// Whether the file at `path` has the magic number of EROFS. What else may be wrong shows when it is opened.
fn is_erofs(path: &Path) -> bool {
    let read = || {
        let mut magic = [0; 4];
        // To open a pipe would wait, and take from it.
        let file = path.metadata().ok().filter(|found| found.is_file()).and_then(|_| File::open(path).ok())?;
        file.read_exact_at(&mut magic, SUPERBLOCK_OFF).ok().map(|()| magic)
    };
    read() == Some(MAGIC.to_le_bytes())
}

fn pack(args: &Args) -> Result<Exit, Failure> {
    let destination = Destination::find(&args.out)?;
    let stream = destination.stream();
    let name = stream.map_or(args.out.as_path(), Stream::name).to_owned();
    let quiet = args.progress.quiet || stream.is_some_and(Stream::is_stderr);
    let signals = Signals::catch()?;
    let existing = if args.force { Existing::Replace } else { Existing::Keep };
    let target = Target::create(destination, existing, 0, args.spool.as_deref())?;
    let wanted = Built {
        image: &args.out,
        preset: args.preset.into(),
        scratch_dir: target.scratch_dir(),
        outputs: &target.ids(),
    };
    let meter = args.progress.meter();
    let progress = |progress: Progress| meter.set(progress.done_bytes, progress.total_bytes);
    let built = args.build(&wanted, target.out(), &signals, &progress);
    drop(meter);
    let summary = built.map_err(|failure| target.failure(failure))?;
    target.commit(&summary, &signals)?;
    if !quiet {
        tell(&name, &summary);
        if summary.digested_bytes == 0 {
            note(format_args!("{}", verifiable(&summary)));
        }
    }
    Ok(Exit::Done)
}

/// An image to build.
struct Built<'a> {
    /// What messages call it.
    image: &'a Path,
    preset: Preset,
    scratch_dir: &'a Path,
    /// Files that are being written.
    outputs: &'a [FileId],
}

impl Args {
    /// Build an image of what is there into `out`.
    fn build(
        &self,
        wanted: &Built<'_>,
        out: Out<'_>,
        signals: &Signals,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Summary, Failure> {
        let choices = Choices { preset: wanted.preset, ..Choices::default() };
        let options = choices.build_options().map_err(|error| refusal(&error, &choices))?;
        let (threads, scratch_dir) = (self.threads.threads(), wanted.scratch_dir.to_owned());
        let options = BuildOptions {
            work: WorkOptions { threads, scratch_dir, ..options.work },
            identity: IdentityOptions { source_date_epoch: source_date_epoch()?, ..options.identity },
            ..options
        };
        let (spool_dir, spool_limit) = (self.spool.clone(), self.spool_max.limit());
        let (stop, concatenated) = (Some(signals.stop().clone()), self.concatenated.concatenated);
        let place = SourceOptions { spool_dir, spool_limit, concatenated, stop, ..SourceOptions::default() };
        let source = open_source(&self.src, self.from, &place, Some(signals))?;
        let (policy, filter, outputs, stop) = (Policy::default(), Filter::default(), wanted.outputs, signals.stop());
        let (source, base, is_backup) = (&*source, None, wanted.preset == Preset::Backup);
        let request = PackRequest { source, base, filter: &filter, policy: &policy, outputs, is_backup, stop };
        let job = Job { request, image: wanted.image, signals };
        let scan = job.scan(&options)?;
        tell_notes(&scan);
        job.build(&scan.tree, out, &options, progress).map(|(summary, _)| summary)
    }

    /// An uncompressed image of what is there, in a nameless file.
    fn to_spool(&self, signals: &Signals) -> Result<Spool, Failure> {
        let spool = Spool::create(&spool_dir(self.spool.as_deref()))?;
        let wanted = Built { image: spool.dir(), preset: Preset::Plain, scratch_dir: spool.dir(), outputs: &[] };
        let out = Out { image: spool.file(), offset: 0, blob: None, behind: None };
        match self.build(&wanted, out, signals, &|_| {}) {
            Ok(_) => Ok(spool),
            Err(Failure::Build { source: BuildError::Write { source, .. }, .. }) => Err(spool_failure(&spool, source)),
            Err(failure) => Err(failure),
        }
    }
}

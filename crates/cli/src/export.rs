//! `kiln export`

mod composefs_dump;

use crate::console::progress::QuietArgs;
use crate::console::report::{Counts, PathJson, SkippedJson, note, print_document};
use crate::console::text;
use crate::exit::{Exit, Failure};
use crate::extract;
use crate::image::ImageArgs;
use crate::pack::out_args::ForceArg;
use crate::pack::output::{Destination, Stream};
use crate::process::signals::Signals;
use crate::process::work::WorkArgs;
use kiln_output::{AtomicFile, Existing};
use kiln_read::{Image, ImageOptions, ReadError};
use kiln_sink::archive::{Control, ExportOptions, ExportReport, Format, Loss, LossCount, StreamCompression, export};
use kiln_sink::{Selection, SinkError};
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Export an image, or parts of it, to an archive
///
/// The end of OUT's name is the format: .tar, .cpio, .mtree and .pseudo, each with .gz, .zst, .xz, .bz2 or .lz4
/// behind it, .tgz and its kin, and .zip. OUT appears when it is complete; a pipe, or - for standard output, gets a
/// tar archive as it comes. Metadata that the format cannot hold is counted, and the exit code is 3.
#[derive(clap::Args)]
#[command(
    override_usage = "kiln export [OPTIONS] <IMAGE> [PATH|GLOB]... <OUT>",
    after_help = "\
Examples:
  kiln export image.erofs image.tar.zst
  kiln export image.erofs - | docker import - name
  kiln export image.erofs usr/share '**/*.conf' parts.zip
  kiln export --to composefs-dump image.erofs image.dump
  kiln export --to squashfs-pseudo image.erofs - | mksquashfs - out.squashfs -pf -"
)]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// Files, directories or globs to export, everything by default, and the archive to write
    #[arg(value_name = "OUT", required = true)]
    select_and_out: Vec<OsString>,

    /// Write this format, whatever the name of OUT ends with
    #[arg(long, value_name = "FORMAT", value_parser = parse_to)]
    to: Option<To>,

    /// Compression level of the archive: gzip, xz, ZIP 0 to 9, zstd 1 to 19, bzip2 1 to 9
    #[arg(long, value_name = "N")]
    level: Option<u32>,

    #[command(flatten)]
    replace: ForceArg,

    /// Skip what cannot be read, list it, and exit with 3
    #[arg(long)]
    keep_going: bool,

    #[command(flatten)]
    work: WorkArgs,

    #[command(flatten)]
    quiet: QuietArgs,
}

/// The format of the output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum To {
    Dir,
    /// A dump of composefs.
    ComposefsDump,
    Archive(Format, Option<StreamCompression>),
}

/// Parses the value of `--to`.
pub fn parse_to(text: &str) -> Result<To, &'static str> {
    match text {
        "dir" => Ok(To::Dir),
        "composefs-dump" => Ok(To::ComposefsDump),
        _ => of_name(format!(".{text}"))
            .ok_or("use tar, zip, cpio, mtree, squashfs-pseudo, composefs-dump, dir, or tar.zst and the like"),
    }
}

/// Returns the format that the end of a file's name indicates.
pub fn of_name(name: impl AsRef<Path>) -> Option<To> {
    let name = name.as_ref().as_os_str().as_bytes();
    Format::of_name(name).map(|(format, compression)| To::Archive(format, compression))
}

pub fn run(mut args: Args) -> Result<Exit, Failure> {
    // An option between them must not change which of the names is the last one, so they are one argument.
    let out = PathBuf::from(args.select_and_out.pop().unwrap_or_default());
    let default = || if out == Path::new("-") { Some(To::Archive(Format::Tar, None)) } else { of_name(&out) };
    match args.to.or_else(default) {
        None => {
            let out = out.display();
            Err(Failure::Usage(format!("{out}: the end of its name is no format that is known: name one with --to")))
        }
        Some(To::Dir) => {
            let Args { image, select_and_out: select, replace, keep_going, work, quiet, .. } = args;
            if replace.force {
                let message = "--force: replaces archives; kiln extract --into-existing adds to a directory";
                return Err(Failure::Usage(message.into()));
            }
            let way = extract::Way { keep_going, work, quiet };
            extract::run(&extract::Args::whole(image, out, select, way))
        }
        Some(To::ComposefsDump) => composefs_dump::run(&args, &out),
        Some(To::Archive(format, compression)) => archive(&args, &out, format, compression),
    }
}

fn archive(args: &Args, out: &Path, format: Format, compression: Option<StreamCompression>) -> Result<Exit, Failure> {
    let selection = match args.select_and_out.is_empty() {
        true => Selection::everything(),
        false => Selection::of(args.select_and_out.iter().map(|path| path.clone().into_vec()))
            .map_err(|error| Failure::Usage(error.to_string()))?,
    };
    let options = ImageOptions::default().with_cache_bytes(extract::CACHE_LEN);
    let image = || Ok((args.image.open_with(&options)?, Vec::new()));
    args.work.apply_nice()?;
    let Args { level, replace, keep_going, work, quiet, .. } = args;
    let (level, existing, keep_going, quiet) = (*level, replace.existing(), *keep_going, quiet.quiet);
    let archive = Archive { out, format, compression, level, existing, keep_going, work, quiet };
    archive.write(&selection, image, &Signals::catch()?, &|error| args.image.failure(error))
}

/// An archive to write.
pub struct Archive<'a> {
    /// Its name.
    pub out: &'a Path,
    pub format: Format,
    pub compression: Option<StreamCompression>,
    /// Level of compression.
    pub level: Option<u32>,
    /// Treatment of a file that exists.
    pub existing: Existing,
    /// True to write as much of a damaged image as can be read.
    pub keep_going: bool,
    pub work: &'a WorkArgs,
    pub quiet: bool,
}

impl Archive<'_> {
    /// Writes the selected parts of the image that `open` opens, and reports. `open` also lists entries of the source
    /// of the image that are not in it as they were. `failure` makes failures of errors of the image.
    pub fn write(
        &self,
        selection: &Selection,
        open: impl FnOnce() -> Result<(Image, Vec<SkippedJson>), Failure>,
        signals: &Signals,
        failure: &dyn Fn(ReadError) -> Failure,
    ) -> Result<Exit, Failure> {
        let Self { out, format, compression, level, existing, keep_going, work, quiet } = *self;
        check_level(level, format, compression)?;
        let (image, skipped) = open()?;
        let has_all = skipped.is_empty();
        let destination = Destination::find(out)?;
        if work.json {
            destination.refuse_json("archive")?;
        }
        let meter = work.meter(quiet);
        let (name, quiet) = (destination.name(out), quiet || destination.is_stderr());
        let target = Target::create(destination, existing)?;
        if meter.is_shown() {
            // The work itself will report an error.
            meter.set(0, selection.contents_len(&image).unwrap_or(0));
        }
        let options = ExportOptions { compression, level, keep_going, threads: work.threads(), format };
        let control = Control { stop: signals.stop(), progress: &|bytes| meter.advance(bytes) };
        let result = export(&image, selection, &options, &control, &mut target.writer());
        drop(meter);
        let report = result.map_err(|error| match (error, signals.caught()) {
            (SinkError::Stopped, Some(number)) => Failure::Signal(number),
            (SinkError::Read(error), _) => failure(error),
            (SinkError::Write(source), _) => Failure::File { path: name, action: "write", source },
            (error, _) => Failure::Sink(error),
        })?;
        target.commit()?;
        tell(&report, quiet);
        if work.json {
            print_document(&ReportJson::new(&report, skipped))?;
        }
        Ok(if report.is_incomplete() || !has_all { Exit::Skipped } else { Exit::Done })
    }
}

/// Refuses a level that does not exist.
fn check_level(level: Option<u32>, format: Format, compression: Option<StreamCompression>) -> Result<(), Failure> {
    let (name, levels) = match (format, compression) {
        (Format::Zip, _) => ("ZIP", 0..=9),
        (_, Some(compression)) => (compression.name(), compression.levels()),
        (_, None) if level.is_some() => {
            return Err(Failure::Usage("--level: nothing is compressed here: use tar.zst and the like".into()));
        }
        (_, None) => return Ok(()),
    };
    match level {
        Some(level) if !levels.contains(&level) => {
            let (least, most) = levels.into_inner();
            Err(Failure::Usage(format!("--level {level}: {name} has levels from {least} to {most}")))
        }
        _ => Ok(()),
    }
}

/// The destination of an archive.
enum Target {
    /// A file that gets its name when it is complete.
    File(AtomicFile),
    /// A stream that is written front to back.
    Stream(Stream),
}

impl Target {
    fn create(destination: Destination, existing: Existing) -> Result<Self, Failure> {
        match destination {
            Destination::Stream(stream) => Ok(Self::Stream(stream)),
            Destination::File(path) => Ok(Self::File(AtomicFile::create(&path, existing)?)),
            Destination::BlockDevice(path) => {
                let path = path.display();
                Err(Failure::Usage(format!("{path}: archives are written to files and streams, not to block devices")))
            }
        }
    }

    fn writer(&self) -> Writer<'_> {
        Writer(self)
    }

    fn commit(self) -> Result<(), Failure> {
        match self {
            Self::File(file) => Ok(file.commit()?),
            Self::Stream(stream) => stream.sync(),
        }
    }
}

/// Writes front to back.
struct Writer<'a>(&'a Target);

impl Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0 {
            Target::File(file) => file.file().write(bytes),
            Target::Stream(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn tell(report: &ExportReport, quiet: bool) {
    for (_, error) in &report.skipped {
        note(format_args!("skipped: {error}"));
    }
    for (_, error) in &report.damaged {
        note(format_args!("zeros stand for what is damaged: {error}"));
    }
    for (_, error) in &report.rotten {
        note(format_args!("damaged, written as it was read: {error}"));
    }
    let all = report.losses.iter().filter(|(loss, _)| loss.is_missing() || !quiet);
    for (loss, LossCount { count, first }) in all {
        note(format_args!("{count} {loss}, {} first", text::escape(first)));
    }
    if !quiet {
        note(format_args!("{}", counts(report)));
    }
}

fn counts(report: &ExportReport) -> Counts {
    let ExportReport { files, dirs: directories, others, hard_links, bytes, digested_bytes, .. } = *report;
    Counts { files, directories, others, hard_links, bytes, digested_bytes }
}

#[derive(Serialize)]
struct ReportJson {
    #[serde(flatten)]
    counts: Counts,
    losses: Vec<LossJson>,
    damaged: Vec<SkippedJson>,
    rotten: Vec<SkippedJson>,
    skipped: Vec<SkippedJson>,
}

#[derive(Serialize)]
struct LossJson {
    loss: &'static str,
    count: u64,
    first: PathJson,
}

impl ReportJson {
    fn new(report: &ExportReport, mut skipped: Vec<SkippedJson>) -> Self {
        skipped.extend(report.skipped.iter().map(|(path, error)| SkippedJson::new(path, error)));
        let loss = |(loss, lost): (&Loss, &LossCount)| LossJson {
            loss: loss.key(),
            count: lost.count,
            first: PathJson::new(&lost.first),
        };
        Self {
            counts: counts(report),
            losses: report.losses.iter().map(loss).collect(),
            damaged: report.damaged.iter().map(|(path, error)| SkippedJson::new(path, error)).collect(),
            rotten: report.rotten.iter().map(|(path, error)| SkippedJson::new(path, error)).collect(),
            skipped,
        }
    }
}

//! `kiln extract`

use crate::console::progress::QuietArgs;
use crate::console::report::{Counts, SkippedJson, note, print_document};
use crate::console::text;
use crate::exit::{Exit, Failure};
use crate::image::ImageArgs;
use crate::process::signals::Signals;
use crate::process::work::WorkArgs;
use kiln_read::ImageOptions;
use kiln_sink::dir::{Control, Existing, ExtractOptions, ExtractReport, LostContents, Owners};
use kiln_sink::{Selection, SinkError};
use rustix::fs::Mode;
use serde::Serialize;
use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Size of the cache of decoded data in bytes: files that share pclusters are neighbours in a walk.
pub const CACHE_LEN: u64 = 32 << 20;

/// Most ranges of a file that are shown; JSON has all.
const RANGES_SHOWN: usize = 8;

/// Extract an image, or parts of it, to a directory
///
/// As root, owners, devices and all extended attributes are restored. Nothing is ever written outside DIR. Contents
/// are compared with their digests, if the image has some. Files of composefs images whose contents lie outside the
/// image are listed and skipped, with exit code 3, unless --objects leads to them. See `kiln help filters` for globs.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln extract image.erofs out/
  kiln extract image.erofs out/ etc usr/share/doc
  kiln extract image.erofs out/ '**/*.conf'")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// Directory to extract to: a new or an empty one
    dir: PathBuf,

    /// Files or directories to extract; default: everything
    #[arg(value_name = "PATH|GLOB")]
    select: Vec<OsString>,

    /// Extract into a directory with files, and replace those with the same names
    #[arg(long)]
    into_existing: bool,

    /// Give all files to the calling user
    #[arg(long)]
    no_owners: bool,

    /// Apply the umask to permissions
    #[arg(long)]
    no_perms: bool,

    /// Leave out extended attributes
    #[arg(long)]
    no_xattrs: bool,

    /// Skip what cannot be read, list it, and exit with 3
    #[arg(long)]
    keep_going: bool,

    /// Write zeros for unreadable parts of files, and list these ranges
    #[arg(long, requires = "keep_going")]
    zeros: bool,

    #[command(flatten)]
    work: WorkArgs,

    #[command(flatten)]
    quiet: QuietArgs,
}

/// Options of `kiln export --to dir`.
pub struct Way {
    pub keep_going: bool,
    pub work: WorkArgs,
    pub quiet: QuietArgs,
}

impl Args {
    /// Returns the arguments of an extraction that restores as much as it can.
    pub fn whole(image: ImageArgs, dir: PathBuf, select: Vec<OsString>, way: Way) -> Self {
        let Way { keep_going, work, quiet } = way;
        let (no_owners, no_perms, no_xattrs, zeros) = (false, false, false, false);
        let into_existing = false;
        Self { image, dir, select, into_existing, no_owners, no_perms, no_xattrs, keep_going, zeros, work, quiet }
    }
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let selection = match args.select.is_empty() {
        true => Selection::everything(),
        false => Selection::of(args.select.iter().map(|path| path.clone().into_vec()))
            .map_err(|e| Failure::Usage(e.to_string()))?,
    };
    args.work.apply_nice()?;
    let image = args.image.open_with(&ImageOptions::default().with_cache_bytes(CACHE_LEN))?;
    let signals = Signals::catch()?;
    let options = ExtractOptions {
        threads: args.work.threads().count(),
        keep_going: args.keep_going,
        zeros: args.zeros,
        owners: if args.no_owners { Owners::Skip } else { Owners::IfRoot },
        umask: if args.no_perms { umask() } else { 0 },
        xattrs: !args.no_xattrs,
        existing: if args.into_existing { Existing::Replace } else { Existing::Refuse },
        ..ExtractOptions::default()
    };
    let meter = args.work.meter(args.quiet.quiet);
    if meter.is_shown() {
        // The work itself will report an error.
        meter.set(0, selection.contents_len(&image).unwrap_or(0));
    }
    let result = kiln_sink::dir::extract(
        &image,
        &args.dir,
        &selection,
        &options,
        &Control { stop: signals.stop(), progress: &|bytes| meter.advance(bytes) },
    );
    drop(meter);
    let report = result.map_err(|error| match (error, signals.caught()) {
        (SinkError::Stopped, Some(number)) => Failure::Signal(number),
        (SinkError::Read(error), _) => args.image.failure(error),
        (SinkError::TargetNotEmpty { path }, _) => Failure::NotEmpty { path },
        (error, _) => Failure::Sink(error),
    })?;
    tell(args, &report);
    if args.work.json {
        print_document(&ReportJson::new(&report))?;
    }
    Ok(if report.skipped.is_empty() && report.lost.is_empty() { Exit::Done } else { Exit::Skipped })
}

/// Returns the permission bits that new files of this process do not get.
pub fn umask() -> u16 {
    // It can only be read by setting it; no other thread makes files yet.
    let mask = rustix::process::umask(Mode::empty());
    rustix::process::umask(mask);
    mask.bits() as u16 & 0o777
}

fn tell(args: &Args, report: &ExtractReport) {
    for (_, error) in &report.skipped {
        note(format_args!("skipped: {error}"));
    }
    for LostContents { path, ranges, error } in &report.lost {
        let shown: Vec<String> = ranges.iter().take(RANGES_SHOWN).map(range_text).collect();
        let more = match ranges.len().saturating_sub(RANGES_SHOWN) {
            0 => String::new(),
            more => format!(" and {more} ranges more"),
        };
        let (path, shown) = (text::escape(path), shown.join(", "));
        note(format_args!("{path}: zeros instead of what is lost, bytes {shown}{more}: {error}"));
    }
    if let Some((path, name)) = &report.first_unset_xattr {
        let (path, name, count) = (text::escape(path), text::escape(name), report.unset_xattrs);
        note(format_args!("{count} extended attributes could not be set, {name} of {path} first"));
    }
    if !args.quiet.quiet {
        note(format_args!("{}", counts(report)));
    }
}

/// Formats a range as its first byte and its last one.
fn range_text(range: &Range<u64>) -> String {
    format!("{} to {}", range.start, range.end.saturating_sub(1))
}

fn counts(report: &ExtractReport) -> Counts {
    let ExtractReport { files, dirs: directories, others, hard_links, bytes, digested_bytes, .. } = *report;
    Counts { files, directories, others, hard_links, bytes, digested_bytes }
}

#[derive(Serialize)]
struct ReportJson {
    #[serde(flatten)]
    counts: Counts,
    unset_xattrs: u64,
    skipped: Vec<SkippedJson>,
    lost: Vec<LostJson>,
}

/// A file that has zeros in place of some of its contents.
#[derive(Serialize)]
struct LostJson {
    #[serde(flatten)]
    file: SkippedJson,
    /// Ranges in the file: the first byte, and the byte behind the last one.
    ranges: Vec<[u64; 2]>,
}

impl ReportJson {
    fn new(report: &ExtractReport) -> Self {
        Self {
            counts: counts(report),
            unset_xattrs: report.unset_xattrs,
            skipped: report.skipped.iter().map(|(path, error)| SkippedJson::new(path, error)).collect(),
            lost: report.lost.iter().map(LostJson::new).collect(),
        }
    }
}

impl LostJson {
    fn new(lost: &LostContents) -> Self {
        let ranges = lost.ranges.iter().map(|range| [range.start, range.end]).collect();
        Self { file: SkippedJson::new(&lost.path, &lost.error), ranges }
    }
}

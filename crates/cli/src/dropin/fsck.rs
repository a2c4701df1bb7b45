//! `fsck.erofs`

mod options;
mod walk;

use super::log::{self, Log};
use super::source::{Named, Opened};
use super::{Stop, getopt};
use crate::exit::Failure;
use crate::extract::{CACHE_LEN, umask};
use crate::inspect::check::forgive_checksum;
use crate::process::signals::Signals;
use crate::process::threads::processors;
use kiln_format::Escaped;
use kiln_read::{ImageOptions, Threads};
use kiln_sink::dir::{Control, Existing, ExtractOptions, Owners};
use kiln_sink::{Selection, SinkError};
use options::{Extract, Options};
use std::ffi::OsString;
use std::path::Path;

pub const USAGE: &str = "\
[OPTIONS] IMAGE
Check erofs filesystem compatibility and integrity of IMAGE.

General options:
 -V, --version          print the version number and exit
 -h, --help             display this help and exit

 -d<0-9>                set output verbosity; 0=quiet, 9=verbose (default=2)
 -p                     print total compression ratio of all files
 --device=X             specify an extra device to be used together
 --extract[=X]          check if all files are well encoded (always done),
                        optionally extract to X
 --offset=#             skip # bytes at the beginning of IMAGE
 --nid=#                check or extract from the target inode of nid #
 --path=X               check or extract from the target inode of path X
 --no-sbcrc             bypass the superblock checksum verification
 --xattr-inode-digest   fail if no digests of contents are stored; those that are
                        stored are always verified
 --[no-]xattrs          whether to extract extended attributes (default off)

 -a, -A, -y             no-op, for compatibility with fsck of other filesystems

Extraction options (--extract=X is required):
 --force                allow extracting to root
 --overwrite            overwrite files that already exist
 --[no-]preserve        same as --[no-]preserve-owner --[no-]preserve-perms
 --[no-]preserve-owner  whether to restore owners (default for superuser), or
                        to extract as yourself (default for ordinary users)
 --[no-]preserve-perms  whether to restore permissions exactly (default for
                        superuser), or less the umask (default for ordinary
                        users)
";

const DECOMPRESSORS: &str = "available decompressors: lz4, lz4hc, lzma, deflate, libdeflate, zstd\n";

pub fn run(args: Vec<OsString>) -> Result<(), Stop> {
    let options = Options::read(getopt::parse(&options::OPTIONS, args)?)?;
    let open = ImageOptions::default().with_cache_bytes(CACHE_LEN);
    let open = if options.no_sbcrc { open.with_any_checksum() } else { open };
    let opened = options.source.open(&open)?;
    if options.digests && !opened.image.has_content_digests() {
        log::error(format_args!("image has no inode digest xattrs (was --xattr-inode-digest used during mkfs?)"));
        return Err(Stop::Told);
    }
    let target = opened.target(&options.source)?;
    match &options.extract.dir {
        Some(dir) => extract(&opened, target.as_ref(), dir, &options)?,
        None => check(&opened, target.as_ref(), &options)?,
    }
    let done = if options.extract.dir.is_some() { "Extracted filesystem successfully" } else { "No errors found" };
    options.log.info(format_args!("{done}"));
    if options.ratio {
        let root = || opened.image.inode(opened.image.root_nid());
        let start = target.map_or_else(root, |target| Ok(target.inode));
        let ratio = start.and_then(|start| walk::ratio(&opened.image, &start));
        let ratio = ratio.map_err(|error| opened.failure(error))?;
        log::info(format_args!("Compression ratio: {ratio:.2}(%)"));
    }
    Ok(())
}

/// Reads and decodes everything, with or without `--extract`.
fn check(opened: &Opened, target: Option<&Named>, options: &Options) -> Result<(), Stop> {
    let image = &opened.image;
    if let Some(start) = target.filter(|target| target.inode.nid != image.root_nid()) {
        return match walk::check(image, start) {
            0 => Ok(()),
            _ => Err(Stop::Told),
        };
    }
    let mut report = image.check(Threads::at_least_one(processors())).map_err(|error| opened.failure(error))?;
    if options.no_sbcrc {
        forgive_checksum(&mut report);
    }
    for problem in &report.problems {
        log::error(format_args!("{problem}"));
    }
    for note in &report.notes {
        options.log.info(format_args!("{note}"));
    }
    match report.problem_count {
        0 => Ok(()),
        count => {
            log::error(format_args!("Found {count} problems: the filesystem is corrupted"));
            Err(Stop::Told)
        }
    }
}

fn extract(opened: &Opened, target: Option<&Named>, dir: &Path, options: &Options) -> Result<(), Stop> {
    let signals = Signals::catch()?;
    let report = kiln_sink::dir::extract(
        &opened.image,
        dir,
        &Selection::everything(),
        &sink_options(&options.extract, target),
        &Control { stop: signals.stop(), progress: &|_| {} },
    );
    match report {
        Ok(report) => {
            unset_xattrs(options.log, &report);
            // Contents outside of the image are errors here.
            report.skipped.iter().for_each(|(_, error)| log::error(format_args!("{error}")));
            if report.skipped.is_empty() { Ok(()) } else { Err(Stop::Told) }
        }
        Err(SinkError::Read(error)) => Err(opened.failure(error).into()),
        Err(error) => Err(Failure::Sink(error).into()),
    }
}

fn sink_options(extract: &Extract, target: Option<&Named>) -> ExtractOptions {
    let is_root = rustix::process::geteuid().is_root();
    ExtractOptions {
        threads: processors(),
        keep_going: false,
        zeros: false,
        owners: if extract.owners.unwrap_or(is_root) { Owners::Restore } else { Owners::Skip },
        umask: if extract.permissions.unwrap_or(is_root) { 0 } else { umask() },
        xattrs: extract.xattrs,
        existing: if extract.overwrite { Existing::Replace } else { Existing::Keep },
        root: target.map(|target| target.inode.nid),
    }
}

fn unset_xattrs(log: Log, report: &kiln_sink::dir::ExtractReport) {
    if let Some((path, name)) = &report.first_unset_xattr {
        let (path, name, count) = (Escaped(path), Escaped(name), report.unset_xattrs);
        log.warning(format_args!("{count} extended attributes could not be set, {name} of {path} first"));
    }
}

/// Returns the version to print.
fn version() -> Stop {
    Stop::Version(DECOMPRESSORS)
}

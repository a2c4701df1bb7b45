//! `mkcomposefs`

use super::getopt::{self, Item, Misuse, Opt, Takes, both, long, number};
use super::{Stop, log};
use crate::composefs::image::{Conversion, Output, read_dump};
use crate::exit::Failure;
use crate::image::DEVICE_OPTION;
use crate::process::signals::Signals;
use crate::process::threads::ThreadsArgs;
use kiln_output::Existing;
use kiln_source::dir::DirSource;
use kiln_source::{ScanOptions, Source};
use kilnfs::composefs::CfsTree;
use kilnfs::composefs::from_tree::{HardLinks, TreeOptions, XattrChoice};
use kilnfs::composefs::image::{ImageOptions, Version};
use kilnfs::digest::Algorithm;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

pub const USAGE: &str = "\
[OPTIONS] SOURCE IMAGE
Options:
  --digest-store=PATH   Store content files in this directory
  --use-epoch           Make all mtimes zero
  --skip-devices        Don't store device nodes
  --skip-xattrs         Don't store file xattrs
  --user-xattrs         Only store user.* xattrs
  --hardlinks           Keep hard links, as composefs-rs
  --print-digest        Print the digest of the image
  --print-digest-only   Print the digest of the image, don't write image
  --from-file           The source is a dump file, not a directory
  --min-version=N       Use this minimal format version (default=0)
  --max-version=N       Use this maximum format version (default=1); with
                        --min-version the default is that version
  --threads=N           Use this to override the default number of threads used
                        to calculate digest and copy files
";

const OPTIONS: [Opt; 13] = [
    both('h', "help", Takes::Nothing),
    long("digest-store", Takes::Value),
    long("use-epoch", Takes::Nothing),
    long("skip-devices", Takes::Nothing),
    long("skip-xattrs", Takes::Nothing),
    long("user-xattrs", Takes::Nothing),
    long("hardlinks", Takes::Nothing),
    long("print-digest", Takes::Nothing),
    long("print-digest-only", Takes::Nothing),
    long("from-file", Takes::Nothing),
    long("min-version", Takes::Value),
    long("max-version", Takes::Value),
    long("threads", Takes::Value),
];

#[derive(Default)]
struct Options {
    operands: Vec<PathBuf>,
    digest_store: Option<PathBuf>,
    tree: TreeOptions,
    skip_xattrs: bool,
    user_xattrs: bool,
    print_digest: bool,
    print_digest_only: bool,
    from_file: bool,
    min_version: Option<u64>,
    max_version: Option<u64>,
    threads: ThreadsArgs,
}

pub fn run(args: Vec<OsString>) -> Result<(), Stop> {
    let options = Options::read(getopt::parse(&OPTIONS, args)?)?;
    let (source, image) = options.paths()?;
    let versions = options.versions()?;
    let signals = Signals::catch()?;
    let tree = match options.from_file {
        true => read_dump(source, &mut |_| {})?,
        false => options.scan(source, &signals)?,
    };
    let summary = Output::create(image, Existing::Replace)?.write(&tree, &versions)?;
    if let Some(digest) = summary.digest.filter(|_| options.print_digest || options.print_digest_only) {
        writeln!(std::io::stdout(), "{digest}")?;
    }
    Ok(())
}

impl Options {
    fn read(items: Vec<Item>) -> Result<Self, Stop> {
        let mut options = Options::default();
        options.tree.hard_links = HardLinks::Broken;
        for item in items {
            match item {
                Item::Operand(operand) => options.operands.push(operand.into()),
                Item::Option("help", _) => return Err(Stop::Help),
                Item::Option(name, Some(value)) => options.with_value(name, value)?,
                Item::Option(name, None) => options.flag(name),
            }
        }
        Ok(options)
    }

    fn with_value(&mut self, name: &str, value: OsString) -> Result<(), Misuse> {
        let invalid = |what: &str| Misuse::Other(format!("Invalid {what} {}", value.display()));
        match name {
            "digest-store" => self.digest_store = Some(value.into()),
            "min-version" => self.min_version = Some(number(&value).ok_or_else(|| invalid("min version"))?),
            "max-version" => self.max_version = Some(number(&value).ok_or_else(|| invalid("max version"))?),
            _ => {
                let count = number(&value).filter(|&count| count > 0).ok_or_else(|| invalid("threads count"))?;
                self.threads = ThreadsArgs::about(count);
            }
        }
        Ok(())
    }

    fn flag(&mut self, name: &str) {
        match name {
            "use-epoch" => self.tree.use_epoch = true,
            "skip-devices" => self.tree.skip_devices = true,
            "skip-xattrs" => self.skip_xattrs = true,
            "user-xattrs" => self.user_xattrs = true,
            "hardlinks" => self.tree.hard_links = HardLinks::Kept,
            "print-digest" => self.print_digest = true,
            "print-digest-only" => self.print_digest_only = true,
            _ => self.from_file = true,
        }
    }

    /// Returns the source and the image, if one is to be written.
    fn paths(&self) -> Result<(&Path, Option<&Path>), Misuse> {
        match &*self.operands {
            [] => Err(Misuse::other("No source path specified")),
            [source] if self.print_digest_only => Ok((source, None)),
            [_] => Err(Misuse::other("No destination path specified")),
            [_, _] if self.print_digest_only => {
                Err(Misuse::other("Cannot specify destination path with --print-digest-only"))
            }
            [source, image] => Ok((source, Some(image))),
            _ => Err(Misuse::other("Too many arguments")),
        }
    }

    /// Returns the versions: if one is given, the default of the other is 0.
    fn versions(&self) -> Result<ImageOptions, Stop> {
        let version = |given: Option<u64>, default| match given {
            Some(0) => Ok(Version::V0),
            Some(1) => Ok(Version::V1),
            Some(_) => {
                log::line(format_args!("mkcomposefs: cannot write file: Invalid argument"));
                Err(Stop::Told)
            }
            None => Ok(default),
        };
        let max_default = if self.min_version.is_some() { Version::V0 } else { Version::V1 };
        let min_version = version(self.min_version, Version::V0)?;
        let max_version = version(self.max_version, max_default)?;
        Ok(ImageOptions { min_version, max_version, algorithm: Some(Algorithm::Sha256) })
    }

    fn scan(&self, source: &Path, signals: &Signals) -> Result<CfsTree, Stop> {
        let xattrs = match (self.skip_xattrs, self.user_xattrs) {
            (true, true) => {
                let source = source.display();
                log::line(format_args!("mkcomposefs: error accessing {source}: Invalid argument"));
                return Err(Stop::Told);
            }
            (true, false) => XattrChoice::None,
            (false, true) => XattrChoice::User,
            (false, false) => XattrChoice::All,
        };
        let threads = self.threads.threads();
        let scan = DirSource::new(source).scan(&ScanOptions { threads, ..ScanOptions::new(signals.stop()) });
        let scan = scan.map_err(|error| Failure::of_source(error, signals.caught(), DEVICE_OPTION))?;
        let options = TreeOptions { xattrs, ..self.tree };
        let store = self.digest_store.as_deref();
        let conversion = Conversion { options, algorithm: Algorithm::Sha256, store, threads, stop: signals.stop() };
        Ok(conversion.convert(&scan.tree, source)?)
    }
}

//! The command line of `fsck.erofs`.

use crate::dropin::Stop;
use crate::dropin::getopt::{Item, Misuse, Opt, Takes, both, long, short};
use crate::dropin::log::Log;
use crate::dropin::source::Source;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub const OPTIONS: [Opt; 24] = [
    both('V', "version", Takes::Nothing),
    both('h', "help", Takes::Nothing),
    short("d", Takes::Value),
    short("p", Takes::Nothing),
    short("a", Takes::Nothing),
    short("A", Takes::Nothing),
    short("y", Takes::Nothing),
    long("device", Takes::Value),
    long("extract", Takes::Optional),
    long("offset", Takes::Value),
    long("nid", Takes::Value),
    long("path", Takes::Value),
    long("no-sbcrc", Takes::Nothing),
    long("xattr-inode-digest", Takes::Nothing),
    long("xattrs", Takes::Nothing),
    long("no-xattrs", Takes::Nothing),
    long("force", Takes::Nothing),
    long("overwrite", Takes::Nothing),
    long("preserve", Takes::Nothing),
    long("no-preserve", Takes::Nothing),
    long("preserve-owner", Takes::Nothing),
    long("no-preserve-owner", Takes::Nothing),
    long("preserve-perms", Takes::Nothing),
    long("no-preserve-perms", Takes::Nothing),
];

/// The checks, and an extraction if there is one.
#[derive(Default)]
pub struct Options {
    pub source: Source,
    pub log: Log,
    /// `-p`
    pub ratio: bool,
    pub no_sbcrc: bool,
    /// `--xattr-inode-digest`
    pub digests: bool,
    pub extract: Extract,
}

/// Options of the extraction.
#[derive(Default)]
pub struct Extract {
    /// The directory to extract into; `None` for a check only.
    pub dir: Option<PathBuf>,
    pub xattrs: bool,
    force: bool,
    pub overwrite: bool,
    /// The option, if given; the default depends on whether the user is root.
    pub owners: Option<bool>,
    /// The option, if given.
    pub permissions: Option<bool>,
}

impl Options {
    pub fn read(items: Vec<Item>) -> Result<Self, Stop> {
        let mut options = Options::default();
        for item in items {
            match item {
                Item::Operand(operand) => options.source.operand(operand)?,
                Item::Option("help", _) => return Err(Stop::Help),
                Item::Option("version", _) => return Err(super::version()),
                Item::Option(name, Some(value)) => options.with_value(name, value)?,
                Item::Option(name, None) => options.flag(name),
            }
        }
        options.extract.check()?;
        Ok(options)
    }

    fn with_value(&mut self, name: &str, value: OsString) -> Result<(), Misuse> {
        match name {
            "d" => self.log = Log::parse(&value)?,
            "extract" if value.is_empty() => return Err(Misuse::other("empty value given for --extract=X")),
            "extract" => self.extract.dir = Some(value.into()),
            _ => self.source.option(name, value)?,
        }
        Ok(())
    }

    fn flag(&mut self, name: &str) {
        let Self { ratio, no_sbcrc, digests, extract, .. } = self;
        match name {
            "p" => *ratio = true,
            "no-sbcrc" => *no_sbcrc = true,
            "xattr-inode-digest" => *digests = true,
            "xattrs" => extract.xattrs = true,
            "no-xattrs" => extract.xattrs = false,
            "force" => extract.force = true,
            "overwrite" => extract.overwrite = true,
            "preserve" | "no-preserve" => {
                extract.owners = Some(name == "preserve");
                extract.permissions = Some(name == "preserve");
            }
            "preserve-owner" | "no-preserve-owner" => extract.owners = Some(name == "preserve-owner"),
            "preserve-perms" | "no-preserve-perms" => extract.permissions = Some(name == "preserve-perms"),
            // --extract without a directory decodes everything, which is always done; -a, -A and -y have no effect.
            _ => {}
        }
    }
}

impl Extract {
    /// Checks for contradicting options.
    fn check(&self) -> Result<(), Misuse> {
        let Some(dir) = &self.dir else {
            let alone = [
                (self.force, "--force"),
                (self.overwrite, "--overwrite"),
                (self.owners.or(self.permissions).is_some(), "--[no-]preserve[-owner/-perms]"),
            ];
            return match alone.into_iter().find(|(given, _)| *given) {
                Some((_, name)) => Err(Misuse::Other(format!("{name} must be used together with --extract=X"))),
                None => Ok(()),
            };
        };
        match is_root(dir) && !self.force {
            true => Err(Misuse::other("--extract=/ must be used together with --force")),
            false => Ok(()),
        }
    }
}

/// Returns whether `dir` is `/`, by whatever name.
fn is_root(dir: &Path) -> bool {
    dir.canonicalize().is_ok_and(|dir| dir == Path::new("/"))
}

//! The command line of `dump.erofs`.

use crate::dropin::Stop;
use crate::dropin::getopt::{Item, Misuse, Opt, Takes, both, long, short};
use crate::dropin::source::Source;

pub const OPTIONS: [Opt; 12] = [
    both('V', "version", Takes::Nothing),
    both('h', "help", Takes::Nothing),
    short("s", Takes::Nothing),
    short("S", Takes::Nothing),
    short("e", Takes::Nothing),
    long("blkid-udev", Takes::Nothing),
    long("device", Takes::Value),
    long("ls", Takes::Nothing),
    long("cat", Takes::Nothing),
    long("nid", Takes::Value),
    long("offset", Takes::Value),
    long("path", Takes::Value),
];

/// The parts of the report.
#[derive(Default)]
pub struct Options {
    pub source: Source,
    superblock: bool,
    pub statistics: bool,
    pub extents: bool,
    pub ls: bool,
    pub cat: bool,
    /// `--blkid-udev`
    pub udev: bool,
}

impl Options {
    pub fn read(items: Vec<Item>) -> Result<Self, Stop> {
        let mut options = Options::default();
        for item in items {
            match item {
                Item::Operand(operand) => options.source.operand(operand)?,
                Item::Option("help", _) => return Err(Stop::Help),
                Item::Option("version", _) => return Err(Stop::Version("")),
                Item::Option(name, Some(value)) => options.source.option(name, value)?,
                Item::Option(name, None) => options.flag(name),
            }
        }
        let wants_inode = [(options.extents, "-e"), (options.ls, "--ls"), (options.cat, "--cat")];
        match wants_inode.into_iter().find(|(given, _)| *given) {
            Some((_, name)) if options.source.target.is_none() => {
                Err(Misuse::Other(format!("{name} must be used together with --nid=# or --path=X")).into())
            }
            _ => Ok(options),
        }
    }

    fn flag(&mut self, name: &str) {
        let flag = match name {
            "s" => &mut self.superblock,
            "S" => &mut self.statistics,
            "e" => &mut self.extents,
            "ls" => &mut self.ls,
            "cat" => &mut self.cat,
            _ => &mut self.udev,
        };
        *flag = true;
    }

    /// Returns whether to show the superblock, which is the default report.
    pub fn shows_superblock(&self) -> bool {
        self.superblock || !self.statistics && self.source.target.is_none()
    }
}

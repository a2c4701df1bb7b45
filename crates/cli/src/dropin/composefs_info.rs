//! `composefs-info`

use super::Stop;
use super::getopt::{self, Item, Misuse, Opt, Takes, both, long};
use crate::composefs::info::{self, ImagesArgs};
use crate::console::report::Out;
use crate::process::threads::ThreadsArgs;
use kilnfs::digest::Algorithm;
use std::ffi::OsString;
use std::path::PathBuf;

pub const USAGE: &str = "\
[--basedir=path] [ls|objects|dump|missing-objects|measure-file] IMAGES
Options:
  --basedir=PATH        Content files that are there, for missing-objects
  --filter=NAME         Only this file of the root directory, and everything
                        below it; repeat for more
";

const OPTIONS: [Opt; 3] =
    [both('h', "help", Takes::Nothing), long("basedir", Takes::Value), long("filter", Takes::Value)];

pub fn run(args: Vec<OsString>) -> Result<(), Stop> {
    let (mut operands, mut basedir, mut filter) = (Vec::new(), None, Vec::new());
    for item in getopt::parse(&OPTIONS, args)? {
        match item {
            Item::Operand(operand) => operands.push(operand),
            Item::Option("help", _) => return Err(Stop::Help),
            Item::Option("basedir", value) => basedir = value.map(PathBuf::from),
            Item::Option(_, value) => filter.extend(value),
        }
    }
    let mut operands = operands.into_iter();
    let command = operands.next().ok_or_else(|| Misuse::other("No command specified"))?;
    let images: Vec<PathBuf> = operands.map(PathBuf::from).collect();
    if images.is_empty() {
        return Err(Misuse::other("No image path specified").into());
    }
    let mut out = Out::new();
    let threads = ThreadsArgs::default().threads();
    let done = match command.to_str() {
        Some("measure-file") => info::measure(&images, Algorithm::Sha256, threads, &mut out),
        Some("ls") => info::ls(&ImagesArgs { images, filter }, &mut out),
        Some("objects") => info::list_objects(&ImagesArgs { images, filter }, None, &mut out),
        Some("missing-objects") => info::list_objects(&ImagesArgs { images, filter }, basedir.as_deref(), &mut out),
        Some("dump") => info::print_dump(&ImagesArgs { images, filter }, &mut out),
        _ => return Err(Misuse::Other(format!("Unknown command '{}'", command.display())).into()),
    };
    // The lines before an error are right.
    let finished = out.finish();
    Ok(done.and(finished)?)
}

//! `kiln ls`

use crate::console::report::{EntryJson, JsonList, Out, note};
use crate::console::text;
use crate::exit::{Exit, Failure};
use crate::image::ImageArgs;
use kiln_format::inode::FileType;
use kiln_read::{DirEntries, FollowLast, Image, Inode, Nid, ReadError};
use std::ffi::OsString;
use std::io::Write;

/// List a directory of an image
///
/// Names are sorted by their bytes. Names with a leading dot are not hidden. Control characters are escaped on a
/// terminal.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln ls image.erofs
  kiln ls -l image.erofs /etc
  kiln ls -R --json image.erofs | jq '.entries[] | select(.size > 1000000) | .path'")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// Directory or file to list, from the root of the image
    #[arg(default_value = "/")]
    path: OsString,

    /// Show mode, links, owner, group, size, time (UTC) and link target
    #[arg(short, long)]
    long: bool,

    /// List everything below, one path a line
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Accepted out of habit: names with a leading dot are listed anyway
    #[arg(short, long)]
    all: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let image = args.image.open_metadata()?;
    let (inode, path) = args.image.resolve(&image, &args.path, FollowLast::Follow)?;
    let mut lister = Lister { args, image: &image, printer: Printer::new(args)?, bad: false };
    match (inode.is_dir(), args.recursive) {
        (false, _) => lister.entry(&path, &path, &inode)?,
        (true, true) => lister.below(&path, &inode)?,
        (true, false) => lister.directory(&path, &inode)?,
    }
    let Lister { printer, bad, .. } = lister;
    match (bad, printer) {
        (false, printer) => printer.finish().map(|()| Exit::Done),
        (true, Printer::Text(out)) => out.finish().and(Err(Failure::Incomplete)),
        // The error follows in the same document.
        (true, Printer::Json(list)) => {
            drop(list);
            Err(Failure::Incomplete)
        }
    }
}

enum Printer {
    Text(Out),
    Json(JsonList),
}

impl Printer {
    fn new(args: &Args) -> Result<Self, Failure> {
        Ok(if args.json { Printer::Json(JsonList::start("entries")?) } else { Printer::Text(Out::new()) })
    }

    fn finish(self) -> Result<(), Failure> {
        match self {
            Printer::Text(out) => out.finish(),
            Printer::Json(list) => list.finish(),
        }
    }
}

struct Lister<'a> {
    args: &'a Args,
    image: &'a Image,
    printer: Printer,
    /// An entry could not be listed.
    bad: bool,
}

impl Lister<'_> {
    fn directory(&mut self, path: &[u8], dir: &Inode) -> Result<(), Failure> {
        for entry in DirEntries::new(self.image, dir) {
            let entry = entry.map_err(|error| self.args.image.failure(error.at_path(path)))?;
            self.named(path, &entry.name, entry.nid)?;
        }
        Ok(())
    }

    fn named(&mut self, dir: &[u8], name: &[u8], nid: Nid) -> Result<(), Failure> {
        if let (Printer::Text(out), false) = (&mut self.printer, self.args.long) {
            out.name(name)?;
            return Ok(writeln!(out)?);
        }
        let path = if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() };
        match self.image.inode(nid) {
            Ok(inode) => self.entry(name, &path, &inode),
            Err(error) => {
                self.complain(error.at_path(&path));
                Ok(())
            }
        }
    }

    fn below(&mut self, path: &[u8], dir: &Inode) -> Result<(), Failure> {
        for entry in self.image.walk(dir, path) {
            match entry {
                Ok(entry) if entry.inode.nid == dir.nid => {}
                Ok(entry) => self.entry(&entry.path, &entry.path, &entry.inode)?,
                Err(error) => self.complain(error),
            }
        }
        Ok(())
    }

    fn complain(&mut self, error: ReadError) {
        self.bad = true;
        note(format_args!("{}", self.args.image.failure(error)));
    }

    /// Lists one inode as `name`.
    fn entry(&mut self, name: &[u8], path: &[u8], inode: &Inode) -> Result<(), Failure> {
        let failure = |error: ReadError| self.args.image.failure(error.at_path(path));
        match &mut self.printer {
            Printer::Json(list) => list.push(&EntryJson::new(self.image, path, inode).map_err(failure)?),
            Printer::Text(out) => {
                if self.args.long {
                    write!(out, "{} ", columns(inode))?;
                }
                out.name(name)?;
                if self.args.long && inode.meta.file_type == FileType::Symlink {
                    write!(out, " -> ")?;
                    out.name(&self.image.read_link(inode).map_err(failure)?)?;
                }
                Ok(writeln!(out)?)
            }
        }
    }
}

/// Returns the columns of `ls -l` in front of the name. Columns have a least width, so that a listing of any length
/// can stream.
fn columns(inode: &Inode) -> String {
    let meta = &inode.meta;
    let size = match meta.file_type {
        FileType::CharDevice | FileType::BlockDevice => format!("{}, {}", meta.rdev().major, meta.rdev().minor),
        _ => meta.size.to_string(),
    };
    let mode = text::mode(meta.file_type, meta.permissions);
    format!("{mode} {:>3} {:>5} {:>5} {size:>10} {}", meta.nlink, meta.uid, meta.gid, text::time(meta.mtime))
}

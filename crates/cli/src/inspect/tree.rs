//! `kiln tree`

use crate::console::report::{Out, note};
use crate::exit::{Exit, Failure};
use crate::image::ImageArgs;
use kiln_format::inode::FileType;
use kiln_read::{DirEntries, DirEntry, FollowLast, Image, Inode, Nid, ReadError};
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::vec::IntoIter;

/// Show a directory of an image as a tree
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln tree image.erofs
  kiln tree -L 2 image.erofs /usr")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// Directory to show, from the root of the image
    #[arg(default_value = "/")]
    path: OsString,

    /// Show this many levels of directories
    #[arg(short = 'L', long, value_name = "LEVELS")]
    depth: Option<usize>,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let image = args.image.open_metadata()?;
    let (inode, _) = args.image.resolve(&image, &args.path, FollowLast::Follow)?;
    let mut out = Out::new();
    out.name(args.path.as_bytes())?;
    writeln!(out)?;
    let mut drawer =
        Drawer { args, image: &image, out, levels: Vec::new(), seen: HashSet::new(), counts: Counts::default() };
    drawer.descend(&inode)?;
    drawer.draw()?;
    drawer.finish()
}

#[derive(Default)]
struct Counts {
    dirs: u64,
    others: u64,
    errors: u64,
}

struct Drawer<'a> {
    args: &'a Args,
    image: &'a Image,
    out: Out,
    /// The remaining entries of each directory on the way.
    levels: Vec<IntoIter<DirEntry>>,
    /// Directories shown: a second name of one could make the drawing endless.
    seen: HashSet<Nid>,
    counts: Counts,
}

impl Drawer<'_> {
    fn draw(&mut self) -> Result<(), Failure> {
        while let Some(level) = self.levels.last_mut() {
            let Some(entry) = level.next() else {
                self.levels.pop();
                continue;
            };
            let inode = self.image.inode(entry.nid);
            self.line(&entry.name, inode.as_ref().ok())?;
            match inode {
                Err(error) => self.complain(error.at_path(&entry.name)),
                Ok(inode) if inode.is_dir() => {
                    self.counts.dirs += 1;
                    self.descend(&inode)?;
                }
                Ok(_) => self.counts.others += 1,
            }
        }
        Ok(())
    }

    fn line(&mut self, name: &[u8], inode: Option<&Inode>) -> Result<(), Failure> {
        if let Some((here, above)) = self.levels.split_last() {
            for level in above {
                write!(self.out, "{}", if level.len() > 0 { "│   " } else { "    " })?;
            }
            write!(self.out, "{}", if here.len() > 0 { "├── " } else { "└── " })?;
        }
        self.out.name(name)?;
        if let Some(inode) = inode.filter(|inode| inode.meta.file_type == FileType::Symlink) {
            let target = self.image.read_link(inode).map_err(|error| self.args.image.failure(error.at_path(name)))?;
            write!(self.out, " -> ")?;
            self.out.name(&target)?;
        }
        Ok(writeln!(self.out)?)
    }

    fn descend(&mut self, dir: &Inode) -> Result<(), Failure> {
        if self.args.depth.is_some_and(|depth| self.levels.len() >= depth) {
            return Ok(());
        }
        if !self.seen.insert(dir.nid) {
            self.counts.errors += 1;
            note(format_args!(
                "{}: corrupt image: nid {}: a directory with several names",
                self.args.image.image.display(),
                dir.nid
            ));
            return Ok(());
        }
        match DirEntries::new(self.image, dir).collect::<Result<Vec<_>, _>>() {
            Ok(entries) => self.levels.push(entries.into_iter()),
            Err(error) => self.complain(error),
        }
        Ok(())
    }

    fn complain(&mut self, error: ReadError) {
        self.counts.errors += 1;
        note(format_args!("{}", self.args.image.failure(error)));
    }

    fn finish(mut self) -> Result<Exit, Failure> {
        writeln!(self.out, "\n{} directories, {} files", self.counts.dirs, self.counts.others)?;
        self.out.finish()?;
        if self.counts.errors > 0 { Err(Failure::Incomplete) } else { Ok(Exit::Done) }
    }
}

//! `kiln install-names`

use crate::console::report::Out;
use crate::dropin::PROGRAMS;
use crate::exit::{Exit, Failure};
use crate::process::program::is_embedded;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Install the names of erofs-utils, composefs and mount(8)
///
/// Called as mkfs.erofs, fsck.erofs, dump.erofs, erofsfuse, mount.erofs, mkcomposefs, composefs-info or
/// mount.composefs, this program takes the options of that program. mount(8) calls it as mount.erofs, mount.kiln or
/// mount.fuse.kiln, if it finds these names in /usr/sbin. Only names that lead to this program already are replaced
/// without --force.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln install-names /usr/local/sbin
  kiln install-names /usr/sbin
  kiln install-names --copy initramfs/sbin")]
pub struct Args {
    /// Directory of the names, which is made if needed
    dir: PathBuf,

    /// Replace existing output, or write to a block device
    #[arg(long)]
    force: bool,

    /// Copy this program instead of linking to it
    #[arg(long)]
    copy: bool,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    if is_embedded() {
        let message =
            "kiln runs within another program here, which has no other names: install the program kiln itself";
        return Err(Failure::Usage(message.to_owned()));
    }
    let program = std::env::current_exe().and_then(|path| path.canonicalize());
    let program = program.map_err(failed(Path::new("kiln"), "find this program"))?;
    fs::create_dir_all(&args.dir).map_err(failed(&args.dir, "create the directory"))?;
    let dir = args.dir.canonicalize().map_err(failed(&args.dir, "find the directory"))?;
    let content = match args.copy {
        true => Content::Copy(program),
        false if program.parent() == Some(&dir) => Content::Link { text: relative(&program), program },
        false => Content::Link { text: program.clone(), program },
    };
    // All names are looked at before the first one is made.
    let mut missing = Vec::new();
    for name in PROGRAMS.iter().map(|program| program.name) {
        let path = args.dir.join(name);
        match content.state(&path).map_err(failed(&path, "look at"))? {
            State::Ours => {}
            State::Missing => missing.push(path),
            State::Foreign if args.force => missing.push(path),
            State::Foreign => return Err(Failure::Exists { path }),
        }
    }
    let mut out = Out::new();
    for path in &missing {
        content.put(path).map_err(failed(path, "create"))?;
        out.name(path.as_os_str().as_bytes())?;
        out.write_all(if args.copy { b" is a copy of " } else { b" -> " })?;
        out.name(content.text().as_os_str().as_bytes())?;
        writeln!(out)?;
    }
    if missing.is_empty() {
        writeln!(out, "all names are there already")?;
    }
    out.finish()?;
    Ok(Exit::Done)
}

/// The intended file at a name.
enum Content {
    /// A symbolic link to `program` with the target `text`.
    Link {
        text: PathBuf,
        program: PathBuf,
    },
    Copy(PathBuf),
}

/// The state of a name.
enum State {
    Missing,
    /// The intended file.
    Ours,
    Foreign,
}

impl Content {
    fn text(&self) -> &Path {
        let (Content::Link { text, .. } | Content::Copy(text)) = self;
        text
    }

    fn state(&self, path: &Path) -> io::Result<State> {
        let is_link = match fs::symlink_metadata(path) {
            Ok(found) => found.is_symlink(),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(State::Missing),
            Err(error) => return Err(error),
        };
        let is_ours = match self {
            Content::Link { program, .. } => is_link && path.canonicalize().is_ok_and(|found| found == *program),
            Content::Copy(program) => !is_link && path.is_file() && fs::read(path)? == fs::read(program)?,
        };
        Ok(if is_ours { State::Ours } else { State::Foreign })
    }

    /// Creates the file under another name first, so that either the old or the new file exists at any moment.
    fn put(&self, path: &Path) -> io::Result<()> {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(format!(".{}", std::process::id()));
        let made = match self {
            Content::Link { text, .. } => symlink(text, &temporary),
            Content::Copy(program) => fs::copy(program, &temporary).map(drop),
        };
        made.and_then(|()| fs::rename(&temporary, path)).inspect_err(|_| drop(fs::remove_file(&temporary)))
    }
}

/// Returns a link within its own directory, which survives moves of the directory.
fn relative(program: &Path) -> PathBuf {
    program.file_name().map_or_else(|| program.to_owned(), PathBuf::from)
}

fn failed(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Failure {
    let path = path.to_owned();
    move |source| Failure::File { path, action, source }
}

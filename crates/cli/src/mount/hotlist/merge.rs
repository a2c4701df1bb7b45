//! `kiln hotlist merge`

use super::super::lists;
use crate::console::report::Out;
use crate::exit::{Exit, Failure};
use kiln_output::{AtomicFile, Existing};
use kiln_read::hotlist::HotList;
use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Merge several recordings into one list
///
/// First entries of all lists come before all second ones, and so on; each byte is listed once. The order of the
/// lists makes no difference.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln hotlist merge first.list second.list -o both.list
  kiln hotlist merge *.list -o - | kiln pack --order - tree/ tree.erofs")]
pub struct Args {
    /// Hot lists to merge
    #[arg(required = true, value_name = "LIST")]
    lists: Vec<PathBuf>,

    /// List to write; - is standard output
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,

    /// Replace existing output, or write to a block device
    #[arg(long)]
    force: bool,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    refuse_inputs(args)?;
    let lists = args.lists.iter().map(|path| lists::hot(path)).collect::<Result<Vec<_>, _>>()?;
    let merged = HotList::merge(&lists);
    if args.output == Path::new("-") {
        let mut out = Out::new();
        write!(out, "{merged}")?;
        out.finish()?;
        return Ok(Exit::Done);
    }
    let existing = if args.force { Existing::Replace } else { Existing::Keep };
    let file = AtomicFile::create(&args.output, existing)?;
    let failed = |source| Failure::File { path: args.output.clone(), action: "write", source };
    let mut out = BufWriter::new(file.file());
    write!(out, "{merged}").and_then(|()| out.flush()).map_err(failed)?;
    drop(out);
    file.commit()?;
    Ok(Exit::Done)
}

/// Checks that the output is none of the lists.
fn refuse_inputs(args: &Args) -> Result<(), Failure> {
    let id = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    let Some(output) = id(&args.output) else { return Ok(()) };
    match args.lists.iter().find(|path| id(path) == Some(output)) {
        Some(path) => {
            let (output, path) = (args.output.display(), path.display());
            Err(Failure::Usage(format!("{output}: is the list {path}: name another file")))
        }
        None => Ok(()),
    }
}

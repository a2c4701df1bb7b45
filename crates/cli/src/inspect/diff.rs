//! `kiln diff`

mod json;
mod side;
mod words;

use crate::console::report::{Out, note, print_document};
use crate::console::size::{self, Human};
use crate::console::text;
use crate::exit::{Exit, Failure};
use crate::objects::ObjectDirsArg;
use crate::pack::{ConcatenatedArg, notice_layout};
use crate::process::signals::Signals;
use crate::process::work::WorkArgs;
use crate::root_hash::{self, layer, root_hashes};
use json::{ChangeJson, DiffJson};
use kiln_diff::{Aspect, Change, ChangeKind, DiffError, DiffOptions, DiffSummary, Side};
use kiln_source::SourceOptions;
use kiln_verity::Digest;
use side::Compared;
use std::ffi::OsString;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Compare two trees: directories, archives or images
///
/// Prints a line for each path that differs: `+` only in B, `-` only in A, `~` in both, with the differences.
/// Contents of equal size are compared byte by byte. Exit codes as diff(1): 0 the same, 1 different, 2 trouble.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln diff old.erofs new.erofs
  kiln diff rootfs/ rootfs.erofs
  kiln diff --ignore mtime,owner a.erofs b.erofs /etc
  kiln diff --json a.erofs b.erofs | jq -r '.changes[] | select(.change == \"added\") | .path'")]
pub struct Args {
    /// First tree
    #[arg(value_name = "A")]
    a: PathBuf,

    /// Second tree
    #[arg(value_name = "B")]
    b: PathBuf,

    /// Path to compare, with everything below it, from the root of both
    #[arg(default_value = "/")]
    path: OsString,

    /// Ignore these differences
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',')]
    ignore: Vec<Ignore>,

    /// Compare contents byte by byte, or only their sizes
    #[arg(long, value_enum, default_value_t)]
    contents: ContentsArg,

    /// Print only paths, and directories instead of all that is in them
    #[arg(long)]
    brief: bool,

    /// Print nothing, and stop at the first difference
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,

    /// Extra device of the image A; repeat for each, in order
    #[arg(long, value_name = "FILE")]
    device_a: Vec<PathBuf>,

    /// Extra device of the image B; repeat for each, in order
    #[arg(long, value_name = "FILE")]
    device_b: Vec<PathBuf>,

    /// Byte at which the image A begins in its file
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "0", hide_default_value = true)]
    offset_a: u64,

    /// Byte at which the image B begins in its file
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "0", hide_default_value = true)]
    offset_b: u64,

    /// Verify all that is read of A by this root hash
    #[arg(long, value_name = "HEX|FILE", value_delimiter = ',', value_parser = root_hash::parser())]
    root_hash_a: Vec<Digest>,

    /// Verify all that is read of B by this root hash
    #[arg(long, value_name = "HEX|FILE", value_delimiter = ',', value_parser = root_hash::parser())]
    root_hash_b: Vec<Digest>,

    /// File with the hash tree of A; default: behind A, then A.verity
    #[arg(long, value_name = "FILE", requires = "root_hash_a")]
    hash_tree_a: Vec<PathBuf>,

    /// File with the hash tree of B; default: behind B, then B.verity
    #[arg(long, value_name = "FILE", requires = "root_hash_b")]
    hash_tree_b: Vec<PathBuf>,

    #[command(flatten)]
    objects: ObjectDirsArg,

    #[command(flatten)]
    concatenated: ConcatenatedArg,

    #[command(flatten)]
    work: WorkArgs,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Ignore {
    Mtime,
    #[value(alias = "owners")]
    Owner,
    #[value(alias = "permissions")]
    Mode,
    Xattrs,
    Links,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum ContentsArg {
    /// Byte by byte
    #[default]
    Full,
    /// Only sizes
    Size,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    args.work.apply_nice()?;
    let signals = Signals::catch()?;
    let objects = args.objects.open()?;
    let source = |devices: &[PathBuf], offset: u64, source_layer| {
        let (devices, objects, concatenated) = (devices.to_vec(), objects.clone(), args.concatenated.concatenated);
        SourceOptions { devices, offset, source_layer, objects, concatenated, ..SourceOptions::default() }
    };
    [&args.a, &args.b].into_iter().for_each(|path| notice_layout(path, "pack it first: kiln pack --from oci"));
    let layer_a = layer(&root_hashes(&args.root_hash_a, &args.hash_tree_a), &args.a, &args.device_a)?;
    let layer_b = layer(&root_hashes(&args.root_hash_b, &args.hash_tree_b), &args.b, &args.device_b)?;
    let a = Compared::new(&args.a, &source(&args.device_a, args.offset_a, layer_a), "--device-a")?;
    let b = Compared::new(&args.b, &source(&args.device_b, args.offset_b, layer_b), "--device-b")?;
    let threads = args.work.threads();
    let (tree_a, tree_b) = (a.scan(threads, &signals)?, b.scan(threads, &signals)?);
    let meter = args.work.meter(args.quiet);
    let tell = |done: u64, total: u64| meter.set(done, total);
    let options = DiffOptions {
        path: args.path.as_bytes(),
        ignore: &ignored(args),
        latest_mtime: None,
        is_same: None,
        brief: args.brief,
        threads,
        stop: signals.stop(),
        progress: if meter.is_shown() { Some(&tell) } else { None },
    };
    let mut printer = Printer { args, sides: [&a, &b], output: Output::new(args), failure: None };
    let summary = kiln_diff::diff(&tree_a, &tree_b, &options, &mut |change| printer.change(change));
    drop(meter);
    let summary = summary.map_err(|error| match (error, signals.caught()) {
        (DiffError::Interrupted, Some(number)) => Failure::Signal(number),
        (error, _) => Failure::Diff(error),
    })?;
    match printer.finish(&summary) {
        // A reader that closes the pipe early still gets the answer from the exit code.
        Err(failure) if !failure.is_broken_pipe() => return Err(failure),
        _ => {}
    }
    match summary {
        DiffSummary { unreadable: 1.., .. } => Err(Failure::Uncompared(summary.unreadable)),
        DiffSummary { added: 0, removed: 0, changed: 0, .. } => Ok(Exit::Done),
        _ => Ok(Exit::Different),
    }
}

fn ignored(args: &Args) -> Vec<Aspect> {
    let aspect = |ignore: &Ignore| match ignore {
        Ignore::Mtime => Aspect::Mtime,
        Ignore::Owner => Aspect::Owners,
        Ignore::Mode => Aspect::Permissions,
        Ignore::Xattrs => Aspect::Xattrs,
        Ignore::Links => Aspect::Links,
    };
    let contents = (args.contents == ContentsArg::Size).then_some(Aspect::Contents);
    args.ignore.iter().map(aspect).chain(contents).collect()
}

enum Output {
    Quiet,
    Text(Out),
    Json(Vec<ChangeJson>),
}

impl Output {
    fn new(args: &Args) -> Self {
        match args {
            Args { quiet: true, .. } => Output::Quiet,
            Args { work: WorkArgs { json: true, .. }, .. } => Output::Json(Vec::new()),
            _ => Output::Text(Out::new()),
        }
    }
}

struct Printer<'a> {
    args: &'a Args,
    sides: [&'a Compared; 2],
    output: Output,
    /// The reason why printing ended early.
    failure: Option<Failure>,
}

impl Printer<'_> {
    fn change(&mut self, change: Change) -> ControlFlow<()> {
        if let ChangeKind::Unreadable { side, error } = &change.kind {
            let side = self.sides[usize::from(*side == Side::B)];
            note(format_args!("{side}: {}: {error}", text::escape(&change.path)));
        }
        match &mut self.output {
            Output::Quiet if matches!(change.kind, ChangeKind::Unreadable { .. }) => ControlFlow::Continue(()),
            Output::Quiet => ControlFlow::Break(()),
            Output::Json(list) => {
                list.push(ChangeJson::new(&change));
                ControlFlow::Continue(())
            }
            Output::Text(out) => match print(out, &change, self.args.brief) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    self.failure = Some(error.into());
                    ControlFlow::Break(())
                }
            },
        }
    }

    fn finish(self, summary: &DiffSummary) -> Result<(), Failure> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        match self.output {
            Output::Quiet => return Ok(()),
            Output::Text(out) => out.finish()?,
            Output::Json(changes) => print_document(&DiffJson::new(changes, summary))?,
        }
        let DiffSummary { added, removed, changed, same, bytes, .. } = summary;
        let bytes = Human(*bytes);
        note(format_args!("{added} added, {removed} removed, {changed} changed, {same} the same; {bytes} compared"));
        Ok(())
    }
}

fn print(out: &mut Out, change: &Change, brief: bool) -> std::io::Result<()> {
    let sign = match &change.kind {
        ChangeKind::Added(_) => '+',
        ChangeKind::Removed(_) => '-',
        ChangeKind::Changed(_) => '~',
        ChangeKind::Unreadable { .. } => return Ok(()),
    };
    write!(out, "{sign} ")?;
    out.name(if change.path.is_empty() { b"/" } else { &change.path })?;
    if let ChangeKind::Changed(differences) = &change.kind
        && !brief
    {
        for (idx, difference) in differences.iter().enumerate() {
            write!(out, "{}", if idx == 0 { " (" } else { ", " })?;
            words::print(out, difference)?;
        }
        write!(out, ")")?;
    }
    writeln!(out)
}

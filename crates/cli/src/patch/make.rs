//! `kiln patch make`

use crate::console::progress::{QuietArgs, ShownArgs};
use crate::console::report::{note, print_document};
use crate::console::size::Human;
use crate::exit::{Exit, Failure};
use crate::pack::out_args::{ForceArg, SpoolDirArg};
use crate::process::signals::Signals;
use crate::process::threads::NiceArgs;
use crate::verity::{Hashing, has_tree, patched};
use kiln_builder::Control;
use kiln_delta::{DeltaError, MakeOptions, MakeReport};
use kiln_format::Hex;
use kiln_output::AtomicFile;
use kiln_read::{FileSource, ReadAt};
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Write a patch from one image to another
///
/// The patch has differences of plain text, which `kiln patch apply` compresses again as NEW is compressed; it
/// refuses to if its encoders differ. --portable makes larger patches that need no encoder. If little is shared,
/// pack NEW with `kiln pack --base OLD`. Takes about 500 MiB of memory, and 1/20 of the plain text of OLD.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln patch make v1.erofs v2.erofs v1-v2.patch
  kiln patch make v1.erofs v2.erofs - | ssh host kiln patch apply v1.erofs - v2.erofs
  kiln patch make --portable v1.erofs v2.erofs v1-v2.patch")]
pub struct Args {
    /// Image that receivers have
    old: PathBuf,

    /// Image to update them to
    new: PathBuf,

    /// Patch to write; - is standard output
    patch: PathBuf,

    /// Carry compressed bytes, so that any version of kiln can apply the patch
    #[arg(long)]
    portable: bool,

    #[command(flatten)]
    replace: ForceArg,

    #[command(flatten)]
    spool: SpoolDirArg,

    #[command(flatten)]
    quiet: QuietArgs,

    #[command(flatten)]
    nice: NiceArgs,

    #[command(flatten)]
    progress: ShownArgs,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The document of `--json`.
#[derive(Serialize)]
struct MadeJson {
    patch_bytes: u64,
    old_bytes: u64,
    new_bytes: u64,
    copied_bytes: u64,
    encoded_bytes: u64,
    carried_bytes: u64,
    literal_bytes: u64,
    /// If NEW were packed with OLD as its base, the patch would be far shorter.
    base_helps: bool,
    /// Of the hash tree behind NEW.
    root_hash: Option<String>,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let to_stdout = args.patch == Path::new("-");
    if to_stdout && args.json {
        let message = "the patch goes to standard output, so --json, which prints there, is not possible";
        return Err(Failure::Usage(message.into()));
    }
    args.nice.apply()?;
    let signals = Signals::catch()?;
    let (old, new) = (open(&args.old)?, open(&args.new)?);
    let trees = [(&args.old, &old), (&args.new, &new)].map(|(path, source)| patched::behind(path, source));
    let [old_tree, new_tree] = trees;
    let (old_tree, new_tree) = (old_tree?, new_tree?);
    let (old, new) = (patched::front(old, old_tree), patched::front(new, new_tree));
    let hashing = Hashing { work: None, quiet: args.quiet.quiet, signals: &signals };
    let new_tree = new_tree.map(|hash_off| patched::describe(&args.new, hash_off, hashing)).transpose()?;
    let root_hash = new_tree.as_ref().map(|tree| Hex(&tree.root_hash).to_string());
    let is_beside = new_tree.is_none() && has_tree(&args.new);
    let (portable, spool_dir) = (args.portable, args.spool.dir());
    let options = MakeOptions { portable, spool_dir, new_tree, ..MakeOptions::default() };
    let make = |out: &mut dyn Write| {
        let meter = args.progress.meter(args.quiet.quiet);
        let made = meter
            .watch(|progress| kiln_delta::make(&old, &new, out, &options, &Control { stop: signals.stop(), progress }));
        made.map_err(|error| failure(error, &signals, &args.old, Some(&args.new), &args.patch))
    };
    let made = if to_stdout {
        make(&mut io::stdout().lock())?
    } else {
        let file = AtomicFile::create(&args.patch, args.replace.existing())?;
        let made = make(&mut BufWriter::new(file.file()))?;
        file.commit()?;
        made
    };
    if !args.quiet.quiet {
        tell(&made);
        if let Some(root_hash) = &root_hash {
            note(format_args!("root hash of the hash tree that kiln patch apply makes: {root_hash}"));
        }
        if is_beside {
            note(format_args!("{}: only hash trees behind an image are in a patch", args.new.display()));
        }
        if made.base_helps() {
            let (old, new) = (args.old.display(), args.new.display());
            note(format_args!(
                "most contents of {new} are those of {old}, but stored in other ways: packed with kiln pack \
                 --base {old}, it would need a far smaller patch"
            ));
        }
    }
    if args.json {
        let MakeReport { patch_len, old_len, new_len, copied, encoded, carried, literal, .. } = made;
        print_document(&MadeJson {
            patch_bytes: patch_len,
            old_bytes: old_len,
            new_bytes: new_len,
            copied_bytes: copied,
            encoded_bytes: encoded,
            carried_bytes: carried,
            literal_bytes: literal,
            base_helps: made.base_helps(),
            root_hash,
        })?;
    }
    Ok(Exit::Done)
}

fn tell(made: &MakeReport) {
    let share = made.patch_len as f64 * 100.0 / made.new_len.max(1) as f64;
    note(format_args!(
        "{} for an image of {} ({share:.2} %): {} copied, {} encoded again, {} carried encoded",
        Human(made.patch_len),
        Human(made.new_len),
        Human(made.copied),
        Human(made.encoded),
        Human(made.carried),
    ));
}

/// Opens an image in a file or a block device.
pub(super) fn open(path: &Path) -> Result<Arc<dyn ReadAt>, Failure> {
    let source = FileSource::open(path);
    let source = source.map_err(|source| Failure::Read { image: path.to_owned(), source })?;
    Ok(Arc::new(source))
}

/// Converts an error, with the names that the user knows.
pub(super) fn failure(error: DeltaError, signals: &Signals, old: &Path, new: Option<&Path>, out: &Path) -> Failure {
    use kiln_delta::Side;
    match (error, signals.caught()) {
        (DeltaError::Interrupted, Some(number)) => Failure::Signal(number),
        (DeltaError::Write { source, .. }, _)
            if out == Path::new("-") && source.kind() == io::ErrorKind::BrokenPipe =>
        {
            Failure::Stdout(source)
        }
        (DeltaError::Image { side: Side::Old, source }, _) => Failure::Read { image: old.to_owned(), source },
        (DeltaError::Image { side: Side::New, source }, _) if let Some(new) = new => {
            Failure::Read { image: new.to_owned(), source }
        }
        (error @ DeltaError::WrongOld { .. }, _) => Failure::Delta { path: old.to_owned(), source: error },
        (error, _) => Failure::Delta { path: out.to_owned(), source: error },
    }
}

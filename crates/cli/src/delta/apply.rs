//! `kiln apply`

use super::make::{failure, open};
use crate::console::report::note;
use crate::console::size::Human;
use crate::exit::{Exit, Failure};
use crate::process::signals::Signals;
use kiln_builder::{AtomicFile, Existing, Output};
use kiln_delta::in_place::{self, InPlace, Resize, Target};
use kiln_delta::{DeltaError, Patch};
use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the journal of a block device lies by default: not lost when the system starts again.
const DEVICE_JOURNAL_DIR: &str = "/var/tmp";
/// Permission of the group and of all others to write.
const OTHERS_MAY_WRITE: u32 = 0o022;

/// Make the new image of the old one and a patch
///
/// OLD is checked first: nothing is written if the patch was made for another image, or needs encoders that this program does not have. NEW is
/// verified (BLAKE3) before it gets its name; it appears when it is complete, or not at all.
///
/// With --in-place, NEW takes the place of OLD, in a file or on a block device that nothing has mounted. What changes is first written to a
/// journal, which takes as much room. After a crash OLD is there as it was, or the same command completes NEW.
///
/// Memory: 64 MiB, and what the encoder takes.
#[derive(clap::Args)]
#[command(
    override_usage = "kiln apply [OPTIONS] <OLD> <PATCH> <NEW>\n       kiln apply [OPTIONS] --in-place <OLD> <PATCH>",
    after_help = "\
Examples:
  kiln apply v1.erofs v1-v2.patch v2.erofs
  curl -s https://example.org/v1-v2.patch | kiln apply v1.erofs - v2.erofs
  kiln apply --in-place /dev/vdb v1-v2.patch"
)]
pub struct Args {
    /// The image that the patch was made for
    old: PathBuf,

    /// What `kiln delta` has written; - is standard input
    patch: PathBuf,

    /// The image to make
    #[arg(required_unless_present = "in_place", conflicts_with = "in_place")]
    new: Option<PathBuf>,

    /// Make the new image where the old one is
    #[arg(long)]
    in_place: bool,

    /// With --in-place: the journal, by default beside OLD, and in /var/tmp for a block device; it is removed in the end
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,

    /// Replace NEW if it exists
    #[arg(long, conflicts_with = "in_place")]
    force: bool,

    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    if args.journal.is_some() && !args.in_place {
        return Err(Failure::Usage("--journal is for --in-place".into()));
    }
    let signals = Signals::catch()?;
    let input: Box<dyn Read> = match args.patch == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => Box::new(BufReader::new(File::open(&args.patch).map_err(file_failure(&args.patch, "open"))?)),
    };
    let of_patch = |error| match error {
        error @ (DeltaError::WrongOld { .. } | DeltaError::Image { .. } | DeltaError::ImageBytes { .. }) => {
            failure(error, &signals, &args.old, None, &args.patch)
        }
        DeltaError::Interrupted => failure(DeltaError::Interrupted, &signals, &args.old, None, &args.patch),
        error @ DeltaError::Write { .. } => {
            let out = args.new.as_ref().unwrap_or(&args.old);
            failure(error, &signals, &args.old, None, out)
        }
        error => Failure::Delta { path: args.patch.clone(), source: error },
    };
    let patch = Patch::open(input).map_err(of_patch)?;
    match &args.new {
        Some(new) => {
            let old = open(&args.old)?;
            let existing = if args.force { Existing::Replace } else { Existing::Keep };
            let file = AtomicFile::create(new, existing)?;
            let mut write = |off: u64, bytes: &[u8]| {
                let written = std::os::unix::fs::FileExt::write_all_at(file.file(), bytes, off);
                written.map_err(|source| DeltaError::Write { action: "write the new image", source })
            };
            let applied = patch.apply(old, &mut write, signals.stop()).map_err(of_patch)?;
            file.commit()?;
            if !args.quiet {
                let (copied, encoded) = (Human(applied.copied), Human(applied.encoded));
                note(format_args!("{}: {copied} copied, {encoded} encoded", Human(applied.new_len)));
            }
        }
        None => in_place(args, patch, &signals, &of_patch)?,
    }
    Ok(Exit::Done)
}

fn file_failure(path: &Path, action: &'static str) -> impl Fn(io::Error) -> Failure {
    move |source| Failure::File { path: path.to_owned(), action, source }
}

fn in_place(
    args: &Args,
    patch: Patch<Box<dyn Read>>,
    signals: &Signals,
    of_patch: &dyn Fn(DeltaError) -> Failure,
) -> Result<(), Failure> {
    let (target, is_device) = open_target(&args.old)?;
    let path = args.journal.clone().unwrap_or_else(|| journal_path(&args.old, is_device));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    // A link that someone else has put there is not followed.
    options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
    let journal = options.open(&path).map_err(file_failure(&path, "open"))?;
    check_journal(&path, &journal.metadata().map_err(file_failure(&path, "look at"))?)?;
    sync_dir_of(&path)?;
    let result = in_place::apply(patch, &target, &journal, signals.stop());
    let is_complete = result.is_ok();
    // Where nothing was begun, nothing has to be resumed.
    if is_complete || is_empty(&journal) {
        std::fs::remove_file(&path).map_err(file_failure(&path, "remove"))?;
        sync_dir_of(&path)?;
    }
    let done = result.map_err(of_patch)?;
    if !args.quiet {
        match done {
            InPlace::Applied(applied) => {
                let (copied, encoded) = (Human(applied.copied), Human(applied.encoded));
                note(format_args!("{}: {copied} copied, {encoded} encoded", Human(applied.new_len)));
            }
            InPlace::Resumed => note(format_args!("{}: completed from {}", args.old.display(), path.display())),
            InPlace::WasThere => note(format_args!("{}: is the new image already", args.old.display())),
        }
    }
    Ok(())
}

/// Refuse a journal that somebody else may have written: what it holds would be written to the device.
fn check_journal(path: &Path, metadata: &Metadata) -> Result<(), Failure> {
    let refuse = |what: &str| Err(Failure::Usage(format!("{}: {what}", path.display())));
    if !metadata.is_file() {
        return refuse("a journal is a regular file");
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() || metadata.mode() & OTHERS_MAY_WRITE != 0 {
        return refuse("another user could have written this journal: remove it, or name another one with --journal");
    }
    Ok(())
}

/// Whether a journal has no head: then the old image is as it was.
fn is_empty(journal: &File) -> bool {
    let mut head = [0; 8];
    !matches!(Output::read_at(journal, &mut head, 0), Ok(8) if head != [0; 8])
}

/// Make the name of a new file durable.
fn sync_dir_of(path: &Path) -> Result<(), Failure> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(file_failure(dir, "sync"))
}

/// The file or device at `path`, and whether it is a device. A device is opened for itself alone: one that is mounted is refused.
fn open_target(path: &Path) -> Result<(Target<File>, bool), Failure> {
    let failed = |action| file_failure(path, action);
    let is_device = std::fs::metadata(path).map_err(failed("look at"))?.file_type().is_block_device();
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    if is_device {
        options.custom_flags(rustix::fs::OFlags::EXCL.bits() as i32);
    }
    let mut device = options.open(path).map_err(failed("open for writing"))?;
    let metadata = device.metadata().map_err(failed("look at"))?;
    if !is_device && !metadata.is_file() {
        return Err(Failure::Usage(format!("{}: neither a file nor a block device", path.display())));
    }
    let len = device.seek(SeekFrom::End(0)).map_err(failed("find the end of"))?;
    let resize = if is_device { Resize::Never } else { Resize::ToImage };
    Ok((Target { device: Arc::new(device), len, resize }, is_device))
}

/// Where the journal lies by default.
fn journal_path(old: &Path, is_device: bool) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(old.file_name().unwrap_or_default());
    name.push(".kiln-journal");
    match is_device {
        true => Path::new(DEVICE_JOURNAL_DIR).join(name),
        false => old.with_file_name(name),
    }
}

//! Results of commands, and one function from a failure to an exit code.

use crate::patch::left_over;
use crate::process::{interpreter, memory};
use kiln_builder::BuildError;
use kiln_codec::CodecError;
use kiln_delta::DeltaError;
use kiln_diff::DiffError;
use kiln_mount::MountError;
use kiln_output::OutputError;
use kiln_read::ReadError;
use kiln_revise::update::UpdateError;
use kiln_signature::SignatureError;
use kiln_sink::SinkError;
use kiln_source::{SourceError, UnfitXattr};
use kiln_tree::policy::PolicyError;
use kiln_verity::VerityError;
use kilnfs::composefs::ComposefsError;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Words about a hash tree that what is written does not get.
pub const NOT_CARRIED: &str = "hash tree not carried over: --verity makes a new one";

/// Results other than failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All is done.
    Done,
    /// Done, but some inputs were skipped.
    Skipped,
    /// `check` has found errors.
    ErrorsFound,
    /// `diff` has found differences.
    Different,
    /// State that `apply --in-place --status` has found.
    InPlace(InPlaceState),
    /// A program that was run for the user has ended with this exit code, or with 128 plus the number of a signal.
    Command(u8),
}

/// State of a target of `apply --in-place`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InPlaceState {
    /// The old image: nothing was written.
    Old,
    /// The new image.
    New,
    /// Partly old and partly new: the journal completes it.
    Unfinished,
    /// Another image, or too little is known.
    Unknown,
}

impl InPlaceState {
    /// Returns the word that scripts read.
    pub fn name(self) -> &'static str {
        match self {
            Self::Old => "old",
            Self::New => "new",
            Self::Unfinished => "unfinished",
            Self::Unknown => "unknown",
        }
    }
}

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line makes no sense.
    #[error("{0}")]
    Usage(String),
    /// An image could not be read.
    #[error("{}{source}", image_prefix(image, source))]
    Read { image: PathBuf, source: ReadError },
    /// A file is no image, and no source of which a view could be read.
    #[error("{}: neither an EROFS image nor an archive that kiln reads: {source}", image.display())]
    NotAnImage { image: PathBuf, source: ReadError },
    /// A source could not be read to its end when it was checked.
    #[error("{}{source}: the rest was not checked", image_prefix(image, source))]
    Unsound { image: PathBuf, source: ReadError },
    /// Extra devices were not named.
    #[error("{}: {source}: name {} with {option}", image.display(), it_or_them(source))]
    MissingDevices { image: PathBuf, option: &'static str, source: ReadError },
    /// A tree could not be extracted.
    #[error("{0}")]
    Sink(SinkError),
    /// A source could not be read, or is not a tree.
    #[error("{0}")]
    Source(SourceError),
    /// A part of a source may not be read, and could be left out.
    #[error("{0}: --keep-going packs the rest")]
    Denied(Box<Failure>),
    /// Options do not suit a tree.
    #[error("{0}")]
    Policy(PolicyError),
    /// An attribute cannot be stored, and may not be left out.
    #[error("{0}")]
    Xattr(UnfitXattr),
    /// Trees could not be compared.
    #[error("{0}")]
    Diff(DiffError),
    /// A patch could not be made or applied.
    #[error("{}: {source}", path.display())]
    Delta { path: PathBuf, source: DeltaError },
    /// The old image of a patch is not the expected one, and there is no journal either.
    #[error("{}: {source} (no journal at {}; --journal names another one)", old.display(), journal.display())]
    NoJournal { old: PathBuf, journal: PathBuf, source: Box<DeltaError> },
    /// A journal is not of the target, or could not be replayed.
    #[error("{}: {source}: the journal is {}: complete its own target, or use another --journal for this one; if its \
             own target is gone for good, remove it", old.display(), journal.display())]
    Journal { old: PathBuf, journal: PathBuf, source: Box<DeltaError> },
    /// A journal lies beside an image that cannot be read, or that is about to be changed.
    #[error("{}: {}{}", image.display(), source.as_ref().map(|source| format!("{source}: ")).unwrap_or_default(),
            left_over::hint(image, journal))]
    LeftOver { image: PathBuf, journal: PathBuf, source: Option<Box<ReadError>> },
    /// An image could not be updated in place.
    #[error("{}: {source}", image.display())]
    Update { image: PathBuf, source: UpdateError },
    /// A hash tree could not be made or used.
    #[error("{}: {source}", path.display())]
    Verity { path: PathBuf, source: Box<VerityError> },
    /// A key, a certificate or a signature could not be used.
    #[error("{}: {source}", path.display())]
    Signature { path: PathBuf, source: Box<SignatureError> },
    /// An image has a hash tree already.
    #[error("{}: has a hash tree already, at byte {hash_off}: use --force to replace it", image.display())]
    HasTree { image: PathBuf, hash_off: u64 },
    /// An image that is to be changed in place has a hash tree.
    #[error("{}: a hash tree of dm-verity lies behind it, at byte {hash_off}, which would not fit any more: --verity \
             makes a new one, --drop-verity drops it", image.display())]
    TreeInTheWay { image: PathBuf, hash_off: u64 },
    /// The tree of an image is that of another one.
    #[error("{}: its hash tree fits neither the image nor the root hash beside it: kiln verity verify tells more, \
             --drop-verity drops it", image.display())]
    UnfitTree { image: PathBuf },
    /// An image has no hash tree.
    #[error("{}: no hash tree, neither behind nor beside it", image.display())]
    NoTree { image: PathBuf },
    /// An image is not the one that its root hash names; the differences have been listed.
    #[error("{}: not the image of this root hash: {problems} problems", image.display())]
    Unverified { image: PathBuf, problems: u64 },
    /// An image has a hash tree, and what is made of it would have none.
    #[error("{}: {NOT_CARRIED}", image.display())]
    NotCarried { image: PathBuf },
    /// Some files could not be compared; they have been listed.
    #[error("the comparison is incomplete: {0} unreadable")]
    Uncompared(u64),
    /// An image could not be built.
    #[error("{}{source}{}", output_prefix(image, source), memory_help(source))]
    Build { image: PathBuf, source: BuildError },
    /// Mounting failed.
    #[error("{0}")]
    Mount(MountError),
    /// The directory to extract into is not empty.
    #[error("{}: not empty: name a new directory, or use --into-existing to add to it and replace files", path.display())]
    NotEmpty { path: PathBuf },
    /// A file could not be made or changed.
    #[error("{}: cannot {action}: {source}", path.display())]
    File { path: PathBuf, action: &'static str, source: io::Error },
    /// A spool failed for an output that can only be written front to back.
    #[error("{}: cannot store the image until it is complete: {source}: choose a directory with more room by TMPDIR or \
             kiln pack --spool", dir.display())]
    Spool { dir: PathBuf, source: io::Error },
    /// The image exists already.
    #[error("{}: exists already: use --force to replace it", path.display())]
    Exists { path: PathBuf },
    /// Standard output could not be written.
    #[error("cannot write to standard output: {0}")]
    Stdout(#[from] io::Error),
    /// Parts were left out; they have been listed.
    #[error("errors in the image: the output is incomplete")]
    Incomplete,
    /// The background process has failed with this exit code, and has printed the reason.
    #[error("the background process has failed")]
    Background(u8),
    /// A program could not be run for the user.
    #[error("{}: cannot be run: {}", program.display(), missing.clone().unwrap_or_else(|| source.to_string()))]
    Command { program: PathBuf, missing: Option<String>, source: io::Error },
    /// `kiln run` could not set up what a program sees.
    #[error("cannot {action}: {source}{}", after_colon(help))]
    Run { action: &'static str, source: io::Error, help: &'static str },
    /// A composefs image, dump or store could not be read or made.
    #[error("{}{source}", composefs_prefix(path, source))]
    Composefs { path: PathBuf, source: ComposefsError },
    /// Any other error of the library.
    #[error("{0}")]
    Library(kilnfs::Error),
    /// A signal has asked to stop.
    #[error("stopped by signal {0}")]
    Signal(u8),
}

impl From<OutputError> for Failure {
    fn from(error: OutputError) -> Self {
        match error {
            OutputError::File { path, action, source } => Failure::File { path, action, source },
            OutputError::Exists { path } => Failure::Exists { path },
            misuse => Failure::Usage(misuse.to_string()),
        }
    }
}

impl Failure {
    /// Converts the error of a source after the signal `caught`; `device_option` names the extra devices of an
    /// image.
    pub fn of_source(error: SourceError, caught: Option<u8>, device_option: &'static str) -> Self {
        match (error, caught) {
            (SourceError::Interrupted, Some(number)) => Failure::Signal(number),
            (SourceError::Image { path, offset, source }, _) => Failure::of_image(&path, offset, device_option, source),
            (
                error @ (SourceError::Options { .. }
                | SourceError::Unknown { .. }
                | SourceError::IsOutput { .. }
                | SourceError::Choice { .. }),
                _,
            ) => Failure::Usage(error.to_string()),
            (error, _) => Failure::Source(error),
        }
    }

    /// Converts an error of the image at `path`, from byte `offset` of its file on.
    pub fn of_image(path: &Path, offset: u64, device_option: &'static str, source: ReadError) -> Self {
        let mut image = path.as_os_str().to_owned();
        if offset > 0 {
            image.push(format!(" (image at byte {offset})"));
        }
        match source {
            ReadError::Corrupt { .. } | ReadError::Unsupported { .. } if let Some(journal) = left_over::find(path) => {
                Failure::LeftOver { image: image.into(), journal, source: Some(Box::new(source)) }
            }
            ReadError::MissingDevices { .. } => {
                Failure::MissingDevices { image: image.into(), option: device_option, source }
            }
            source if source.is_no_image() => Failure::NotAnImage { image: image.into(), source },
            source => Failure::Read { image: image.into(), source },
        }
    }

    /// Converts the error of a program that could not be started.
    pub fn of_program(program: &OsStr, source: io::Error) -> Self {
        let is_found = source.kind() == ErrorKind::NotFound;
        let missing = if is_found { interpreter::missing(program) } else { None };
        Failure::Command { program: program.into(), missing, source }
    }

    /// Returns a function that makes failures of `kiln run` of errors, given the action.
    pub fn of_run(action: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Failure::Run { action, source, help: "" }
    }

    /// Returns whether the reader of our output has gone: that is not an error.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Failure::Stdout(error) if error.kind() == ErrorKind::BrokenPipe)
    }

    /// Returns whether there is nothing to print: the reader of our output has gone, or the error has been printed.
    pub fn is_silent(&self) -> bool {
        self.is_broken_pipe() || matches!(self, Failure::Background(_))
    }

    /// Returns the exit code of most commands.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Usage(_) => 2,
            Failure::Signal(number) => 128 + number,
            Failure::Background(code) => *code,
            // Like env(1).
            Failure::Command { source, .. } if source.kind() == ErrorKind::NotFound => 127,
            Failure::Command { .. } => 126,
            _ => 1,
        }
    }

    /// Returns the exit code of `diff`, like diff(1).
    pub fn diff_code(&self) -> u8 {
        match self {
            Failure::Signal(number) => 128 + number,
            _ => 2,
        }
    }

    /// Returns the exit code of `check`, like fsck(8).
    pub fn fsck_code(&self) -> u8 {
        match self {
            Failure::Usage(_) => 16,
            Failure::Read { source: ReadError::Corrupt { .. } | ReadError::Unsupported { .. }, .. }
            | Failure::NotAnImage { .. }
            | Failure::Unsound { .. }
            | Failure::Source(SourceError::Malformed { .. })
            | Failure::LeftOver { .. } => 4,
            Failure::Verity { source, .. } if source.is_of_image() => 4,
            _ => 8,
        }
    }
}

impl Exit {
    /// Returns the end of two steps: `other`, if this one has skipped nothing.
    pub fn or(self, other: Self) -> Self {
        if self == Exit::Done { other } else { self }
    }

    /// Returns the exit code.
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Skipped => 3,
            Exit::ErrorsFound => 4,
            Exit::Different => 1,
            Exit::InPlace(InPlaceState::New) => 0,
            Exit::InPlace(InPlaceState::Old) => 10,
            Exit::InPlace(InPlaceState::Unfinished) => 11,
            Exit::InPlace(InPlaceState::Unknown) => 12,
            Exit::Command(code) => code,
        }
    }
}

/// Returns the source in front of a message, unless the message names a file of its own.
fn composefs_prefix(path: &Path, source: &ComposefsError) -> String {
    match source {
        ComposefsError::Store(_) => String::new(),
        _ if path == Path::new("") => String::new(),
        _ => format!("{}: ", path.display()),
    }
}

/// Returns advice that follows a message.
fn after_colon(help: &str) -> String {
    if help.is_empty() { String::new() } else { format!(": {help}") }
}

/// Returns a pronoun for the devices that are missing.
fn it_or_them(source: &ReadError) -> &'static str {
    match source {
        ReadError::MissingDevices { tags } if tags.len() > 1 => "all of them in order",
        _ => "it",
    }
}

/// Returns the image in front of a message, unless it is there already.
fn image_prefix(image: &Path, source: &ReadError) -> String {
    match source {
        ReadError::Corrupt { path: Some(path), .. }
        | ReadError::Unsupported { path: Some(path), .. }
        | ReadError::Io { path: Some(path), .. }
            if is_name_of(path, image.as_os_str().as_bytes()) =>
        {
            String::new()
        }
        _ => format!("{}: ", image.display()),
    }
}

/// Returns whether `path` is that of the image called `image`, which may contain a place in the file, too.
fn is_name_of(path: &[u8], image: &[u8]) -> bool {
    image.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(b" (image at byte "))
}

/// Returns advice that follows a message about too little memory.
fn memory_help(source: &BuildError) -> String {
    match source {
        BuildError::Codec(CodecError::Memory) => format!(": {}", memory::help()),
        _ => String::new(),
    }
}

/// Returns the image in front of a message about writing it.
fn output_prefix(image: &Path, source: &BuildError) -> String {
    match source {
        BuildError::Write { .. } | BuildError::TooLarge(_) => format!("{}: ", image.display()),
        _ => String::new(),
    }
}

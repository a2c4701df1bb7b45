//! A failure as JSON.

use super::Bytes;
use crate::exit::Failure;
use kiln_builder::BuildError;
use kiln_delta::DeltaError;
use kiln_format::{FormatError, Problem};
use kiln_read::{Defect, ReadError};
use kiln_revise::update::UpdateError;
use kiln_sink::SinkError;
use kiln_source::SourceError;
use kiln_tree::TreeError;
use kiln_verity::VerityError;
use kilnfs::composefs::dump::DumpError;
use kilnfs::composefs::{ComposefsError, ImageError, StoreError};
use serde::Serialize;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The reason why a command failed.
#[derive(Clone, Serialize)]
pub struct ErrorJson {
    kind: &'static str,
    message: String,
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_b64: Option<String>,
    offset: Option<u64>,
    record: Option<&'static str>,
    field: Option<&'static str>,
    value: Option<u64>,
    exit_code: u8,
}

impl ErrorJson {
    pub fn new(failure: &Failure, exit_code: u8) -> Self {
        let mut error = Self::of("io", failure.to_string(), exit_code);
        error.fill(failure);
        error
    }

    fn of(kind: &'static str, message: String, exit_code: u8) -> Self {
        let (path, path_b64, offset, record, field, value) = (None, None, None, None, None, None);
        Self { kind, message, path, path_b64, offset, record, field, value, exit_code }
    }

    fn at(&mut self, path: &[u8]) {
        (self.path, self.path_b64) = (Some(Bytes(path).lossy()), Bytes(path).b64_if_lossy());
    }

    fn fill(&mut self, failure: &Failure) {
        let mut at = |path: &Path| self.at(path.as_os_str().as_bytes());
        match failure {
            Failure::File { path, .. } => at(path),
            Failure::Command { program, .. } => at(program),
            Failure::Spool { dir, .. } => at(dir),
            Failure::Source(error) => self.source(error),
            Failure::Denied(cause) => self.fill(cause),
            Failure::Build { image, source } => {
                at(image);
                self.build(source);
            }
            Failure::Read { image, source }
            | Failure::NotAnImage { image, source }
            | Failure::MissingDevices { image, source, .. } => {
                at(image);
                self.read(source);
            }
            Failure::Unsound { image, source } => {
                at(image);
                self.read(source);
                self.kind = "corrupt";
            }
            Failure::Sink(SinkError::Io { path, .. }) => at(path),
            Failure::Sink(error) => self.sink(error),
            Failure::LeftOver { image, source, .. } => {
                at(image);
                self.kind = "input";
                if let Some(source) = source {
                    self.read(source);
                }
            }
            Failure::Journal { old, source, .. } | Failure::NoJournal { old, source, .. } => {
                at(old);
                self.delta(source);
            }
            Failure::Delta { path, source } => {
                at(path);
                self.delta(source);
            }
            Failure::Update { image, source } => {
                at(image);
                match source {
                    UpdateError::Unsupported { .. } | UpdateError::TooManyGenerations => self.kind = "unsupported",
                    UpdateError::SomethingBehind { end, .. } => (self.kind, self.offset) = ("exists", Some(*end)),
                    UpdateError::Short { .. } => self.kind = "corrupt",
                    UpdateError::Generation { .. } => self.kind = "usage",
                    _ => {}
                }
            }
            Failure::Verity { path, source } => {
                at(path);
                self.verity(source);
            }
            Failure::Signature { path, .. } => {
                at(path);
                self.kind = "input";
            }
            Failure::HasTree { image, hash_off } | Failure::TreeInTheWay { image, hash_off } => {
                at(image);
                (self.kind, self.offset) = ("exists", Some(*hash_off));
            }
            Failure::NotCarried { image } => {
                at(image);
                self.kind = "input";
            }
            Failure::UnfitTree { image } | Failure::Unverified { image, .. } => {
                at(image);
                self.kind = "corrupt";
            }
            Failure::NoTree { image } => {
                at(image);
                self.kind = "not_found";
            }
            Failure::NotEmpty { path } | Failure::Exists { path } => {
                at(path);
                self.kind = "exists";
            }
            Failure::Usage(_) => self.kind = "usage",
            Failure::Policy(_) | Failure::Xattr(_) => self.kind = "input",
            Failure::Diff(_) => self.kind = "not_found",
            Failure::Uncompared(_) | Failure::Incomplete => self.kind = "incomplete",
            Failure::Mount(_) | Failure::Background(_) | Failure::Run { .. } => self.kind = "mount",
            Failure::Composefs { path, source } => {
                at(path);
                self.composefs(source);
            }
            Failure::Library(_) => self.kind = "internal",
            Failure::Signal(_) => self.kind = "signal",
            Failure::Stdout(_) => {}
        }
    }

    fn composefs(&mut self, error: &ComposefsError) {
        match error {
            ComposefsError::Read(error) => self.read(error),
            ComposefsError::Source(error) => self.at(&error.path),
            ComposefsError::Store(StoreError::Source(error)) => self.at(&error.path),
            ComposefsError::Store(StoreError::File { path, .. }) => self.at(path.as_os_str().as_bytes()),
            ComposefsError::Store(StoreError::NoObject { path, .. } | StoreError::Damaged { path, .. }) => {
                self.at(path.as_os_str().as_bytes());
                self.kind = "corrupt";
            }
            ComposefsError::Store(StoreError::Stopped) => self.kind = "signal",
            ComposefsError::Store(_) | ComposefsError::Dump(DumpError::Io(_)) => {}
            ComposefsError::Image(ImageError::Io(_)) => {}
            ComposefsError::Tree(error) => {
                self.at(&error.path);
                self.kind = "input";
            }
            ComposefsError::Restore { path, .. } | ComposefsError::Contents { path, .. } => {
                self.at(path);
                self.kind = "unsupported";
            }
            _ => self.kind = "input",
        }
    }

    fn source(&mut self, error: &SourceError) {
        match error {
            SourceError::Unreadable(one) => self.at(one.path.as_os_str().as_bytes()),
            SourceError::Image { path, source, .. } => {
                self.at(path.as_os_str().as_bytes());
                self.read(source);
            }
            SourceError::Tree { source, .. } => {
                self.at(&source.path);
                self.kind = "input";
            }
            SourceError::Line(line) => {
                self.at(line.name.as_bytes());
                self.kind = "input";
            }
            SourceError::Malformed { path, offset, .. } => {
                self.at(path.as_os_str().as_bytes());
                (self.kind, self.offset) = ("corrupt", Some(*offset));
            }
            SourceError::TooLarge { path, .. } | SourceError::Unknown { path, .. } => {
                self.at(path.as_os_str().as_bytes());
                self.kind = "input";
            }
            SourceError::Unsupported { path, .. } => {
                self.at(path.as_os_str().as_bytes());
                self.kind = "unsupported";
            }
            SourceError::Options { .. } | SourceError::IsOutput { .. } | SourceError::Choice { .. } => {
                self.kind = "usage"
            }
            SourceError::Interrupted => self.kind = "signal",
        }
    }

    fn verity(&mut self, error: &VerityError) {
        self.kind = match error {
            VerityError::Superblock(error) => {
                let kind = if error.problem == Problem::Unsupported { "unsupported" } else { "corrupt" };
                return self.record(kind, error);
            }
            VerityError::Mismatch(mismatch) => {
                self.offset = Some(mismatch.off);
                "corrupt"
            }
            VerityError::TooShort { .. } | VerityError::Overlap { .. } | VerityError::Spare { .. } => "corrupt",
            VerityError::RootHashLength { .. } | VerityError::Sidecar { .. } => "input",
            VerityError::Memory { .. } => "memory",
            _ => "io",
        };
    }

    fn delta(&mut self, error: &DeltaError) {
        match error {
            DeltaError::Image { source, .. } => self.read(source),
            DeltaError::NotAPatch(_)
            | DeltaError::WrongOld { .. }
            | DeltaError::WrongTarget { .. }
            | DeltaError::Journal { .. } => self.kind = "input",
            DeltaError::Version { .. } | DeltaError::Encoder { .. } => self.kind = "unsupported",
            DeltaError::Patch(defect) => {
                (self.kind, self.offset) = ("corrupt", Some(defect.at));
                (self.record, self.field, self.value) = (Some(defect.record), Some(defect.field), Some(defect.value));
            }
            DeltaError::WrongNew | DeltaError::NotWritten => self.kind = "corrupt",
            DeltaError::Encode(error) => self.build(error),
            DeltaError::Interrupted => self.kind = "signal",
            _ => {}
        }
    }

    fn build(&mut self, error: &BuildError) {
        match error {
            BuildError::Read { path, .. } => self.at(path),
            BuildError::Input { path, .. } | BuildError::Tree(TreeError { path, .. }) => {
                self.at(path);
                self.kind = "input";
            }
            BuildError::Write { .. } | BuildError::BaseChanged { .. } => {}
            BuildError::BaseRange { pa, .. } => (self.kind, self.offset) = ("corrupt", Some(*pa)),
            BuildError::BaseRead { pa, .. } => self.offset = Some(*pa),
            BuildError::Codec(_) => self.kind = "memory",
            BuildError::TooLarge(error) => self.record("input", error),
            BuildError::Interrupted => self.kind = "signal",
            BuildError::Internal(_) => self.kind = "internal",
            // All others concern options.
            _ => self.kind = "usage",
        }
    }

    fn read(&mut self, error: &ReadError) {
        match error {
            ReadError::Corrupt { path, defect, .. } => {
                self.kind = "corrupt";
                self.defect(path.as_deref(), defect);
            }
            ReadError::Unsupported { path, defect, .. } => {
                self.kind = "unsupported";
                self.defect(path.as_deref(), defect);
            }
            ReadError::Io { path, range, .. } => {
                path.iter().for_each(|path| self.at(path));
                self.offset = range.map(|(offset, _)| offset);
            }
            ReadError::Object { path, .. } => {
                self.kind = "object";
                path.iter().for_each(|path| self.at(path));
            }
            ReadError::NotFound { path } => {
                self.kind = "not_found";
                self.at(path);
            }
            ReadError::NotADirectory { path }
            | ReadError::IsADirectory { path }
            | ReadError::TooManySymlinks { path } => {
                self.kind = "file_type";
                self.at(path);
            }
            ReadError::NotASymlink { .. } | ReadError::NoContents { .. } => self.kind = "file_type",
            ReadError::Internal { .. } => self.kind = "internal",
            _ => self.kind = "usage",
        }
    }

    fn sink(&mut self, error: &SinkError) {
        match error {
            SinkError::Read(error) => self.read(error),
            SinkError::BadName { path, .. } => {
                self.kind = "corrupt";
                self.at(path);
            }
            SinkError::NoMatch { pattern } => {
                self.kind = "not_found";
                self.at(pattern);
            }
            SinkError::BadPattern { .. } => self.kind = "usage",
            SinkError::Stopped => self.kind = "signal",
            _ => {}
        }
    }

    fn defect(&mut self, path: Option<&[u8]>, defect: &Defect) {
        path.into_iter().for_each(|path| self.at(path));
        match defect {
            Defect::Field(error) => self.record(self.kind, error),
            Defect::Stream { pa, .. } => self.offset = Some(*pa),
            _ => {}
        }
    }

    fn record(&mut self, kind: &'static str, error: &FormatError) {
        let FormatError { record, offset, field, value, .. } = *error;
        self.kind = kind;
        (self.record, self.offset, self.field, self.value) = (Some(record), Some(offset), Some(field), Some(value.0));
    }
}

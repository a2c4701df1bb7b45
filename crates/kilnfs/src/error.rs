//! Error of all operations.

use crate::composefs::ComposefsError;
use kiln_builder::{BuildError, OptionError};
use kiln_diff::DiffError;
use kiln_mount::MountError;
use kiln_output::OutputError;
use kiln_read::ReadError;
use kiln_revise::ReviseError;
use kiln_revise::update::UpdateError;
use kiln_sink::SinkError;
use kiln_source::{SourceError, UnfitXattr};
use kiln_tree::policy::PolicyError;
use kiln_verity::VerityError;
use kiln_view::IndexError;
use std::path::PathBuf;

/// Reason why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Options that contradict each other, or that the target kernel lacks.
    #[error(transparent)]
    Options(#[from] OptionError),
    /// The source of an image cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A tree cannot be what the policy wants.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// An attribute cannot be stored, and may not be left out.
    #[error(transparent)]
    Xattr(#[from] UnfitXattr),
    /// An image cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// An output cannot be made.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A directory is no OCI layout to which something could be added.
    #[error("{}: {reason}: name an OCI layout, an empty directory, or one that does not exist", path.display())]
    NotALayout {
        /// The directory.
        path: PathBuf,
        /// Contents that do not belong there.
        reason: String,
    },
    /// The configuration of an image of a container is no object.
    #[error("the configuration of the image is no object")]
    NoConfig,
    /// An image cannot be read.
    #[error("{}: {source}", image.display())]
    Read {
        /// The image.
        image: PathBuf,
        /// Defect, or error of the system.
        source: ReadError,
    },
    /// A hash tree cannot be used.
    #[error("{}: {source}", image.display())]
    Verity {
        /// The image, or an extra device of it.
        image: PathBuf,
        /// Why not.
        source: VerityError,
    },
    /// An image cannot be updated in place.
    #[error("{}: {source}", image.display())]
    Update {
        /// The image.
        image: PathBuf,
        /// Why not.
        source: UpdateError,
    },
    /// The name of an archive does not tell its format.
    #[error("{}: the end of its name is no format of archives: .tar, .zip, .cpio, .mtree, .tar.zst and the like are", path.display())]
    ArchiveName {
        /// The archive.
        path: PathBuf,
    },
    /// Two trees cannot be compared.
    #[error(transparent)]
    Diff(#[from] DiffError),
    /// An image cannot be extracted or exported.
    #[error(transparent)]
    Extract(#[from] SinkError),
    /// An image cannot be mounted or unmounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// An index of an archive cannot be used or kept.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// A composefs image, dump or store cannot be read or made.
    #[error(transparent)]
    Composefs(#[from] ComposefsError),
}

impl From<ReviseError> for Error {
    fn from(error: ReviseError) -> Self {
        match error {
            ReviseError::Source(source) => Self::Source(source),
            ReviseError::Build(source) => Self::Build(source),
            ReviseError::Output(source) => Self::Output(source),
            ReviseError::Read { image, source } => Self::Read { image, source },
            ReviseError::Update { image, source } => Self::Update { image, source },
        }
    }
}

//! Errors of mounts, sorted by the party that must act: the user, the administrator, or the author
//! of the image.

use crate::users::MountUser;
use kiln_read::ReadError;
use std::io;
use std::path::PathBuf;

/// Error of mounting, serving or unmounting. Every message contains the path.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel refused for lack of privilege.
    #[error("{}: not permitted to {action}: {reason}", path.display())]
    NotPermitted {
        /// The image or the mount point.
        path: PathBuf,
        /// Action that was tried.
        action: &'static str,
        /// Message of the kernel.
        reason: String,
    },
    /// This kernel lacks something that the image, or this way of mounting it, needs. As far as we
    /// can tell, the image is sound.
    #[error("{}: this kernel cannot mount it: {reason}", path.display())]
    Unavailable {
        /// The image.
        path: PathBuf,
        /// Message of the kernel.
        reason: String,
    },
    /// The kernel refused the image, and our own reader rejects it, too.
    #[error("{}: the kernel refused the image: {reason}", path.display())]
    Refused {
        /// The image.
        path: PathBuf,
        /// Message of the kernel.
        reason: String,
    },
    /// The image has no such directory to be the root of the mount.
    #[error("{}: {}: {source}", path.display(), subdir.display())]
    Subdir {
        /// The image.
        path: PathBuf,
        /// Path in the image.
        subdir: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The image or an extra device cannot be opened.
    #[error("{}: {source}", path.display())]
    Source {
        /// The image or the device.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The image or an extra device is neither a regular file nor a block device: a directory or a
    /// FIFO, for example.
    #[error("{}: neither a regular file nor a block device", path.display())]
    NotASource {
        /// The image or the device.
        path: PathBuf,
    },
    /// Our own reader cannot open the image that FUSE would serve.
    #[error("{source}")]
    Image {
        /// Error of the reader, with the name of the image if it has one.
        source: Box<ReadError>,
    },
    /// Nothing can be mounted at this path.
    #[error("{}: cannot mount here: {source}", path.display())]
    MountPoint {
        /// The mount point.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The mount would hide existing files or another mount.
    #[error("{}: {by}: use --over to mount over it", path.display())]
    Occupied {
        /// The mount point.
        path: PathBuf,
        /// Description of the files or the mount.
        by: String,
    },
    /// The machine lacks something that FUSE needs.
    #[error("{}: FUSE is not available: {what}", path.display())]
    FuseMissing {
        /// The mount point.
        path: PathBuf,
        /// Missing part, and the action that provides it.
        what: &'static str,
    },
    /// The FUSE mount failed, or its session ended with an error.
    #[error("{}: FUSE mount failed: {source}", path.display())]
    Fuse {
        /// The mount point.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The image is in use by a reader that would read a mixture of two images, or by a writer.
    #[error("{}: in use: {by}", path.display())]
    InUse {
        /// The image.
        path: PathBuf,
        /// Description of the user, and of the action to take.
        by: String,
    },
    /// Nothing is mounted at this path.
    #[error("{}: not mounted", path.display())]
    NotMounted {
        /// Path as the caller gave it.
        path: PathBuf,
    },
    /// The filesystem at this path is not an image.
    #[error("{}: a mount of type {fs_type}, not an EROFS image: unmount it with umount(8)", path.display())]
    NotAnImage {
        /// Path as the caller gave it.
        path: PathBuf,
        /// Type in the mount table.
        fs_type: String,
    },
    /// The counters could not be read.
    #[error("{}: cannot read the counters: {source}", path.display())]
    Stats {
        /// Path as the caller gave it.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The mount has no counters.
    #[error("{}: not the root of a FUSE mount of kiln: only those have counters", path.display())]
    NoStats {
        /// Path as the caller gave it.
        path: PathBuf,
    },
    /// The metrics file cannot be written.
    #[error("{}: cannot write counters: {source}", path.display())]
    Metrics {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Reads on a mount could not be recorded.
    #[error("{}: cannot record: {source}", path.display())]
    Record {
        /// Path as the caller gave it.
        path: PathBuf,
        /// Error of the system or the server.
        source: io::Error,
    },
    /// The filesystem at this path cannot report its reads.
    #[error("{}: cannot record a mount of type {fs_type}: only mounts of EROFS images, by kiln or by the kernel", path.display())]
    NoRecorder {
        /// Path as the caller gave it.
        path: PathBuf,
        /// Type in the mount table.
        fs_type: String,
    },
    /// A process has open files or its working directory in the mount.
    #[error("{}: in use{}: close the files and leave the directories below it first", path.display(), by(users))]
    Busy {
        /// The mount point.
        path: PathBuf,
        /// Processes that use it, as far as this user may see them.
        users: Vec<MountUser>,
    },
    /// Unmounting failed for another reason.
    #[error("{}: cannot unmount: {source}", path.display())]
    Unmount {
        /// The mount point.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// Returns the users of a mount for a message: the first ones, and the number of others.
fn by(users: &[MountUser]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<String> = users.iter().take(SHOWN).map(MountUser::to_string).collect();
    match users.len() {
        0 => String::new(),
        count @ 1..=SHOWN => format!(" by {}", shown[..count].join(", ")),
        count => format!(" by {} and {} more", shown.join(", "), count - SHOWN),
    }
}

impl MountError {
    /// Returns true if a kernel mount failed for a reason that does not affect
    /// [`fuse::serve`](crate::fuse::serve): missing privilege, or a kernel without EROFS or without
    /// a feature of this image.
    pub fn falls_back_to_fuse(&self) -> bool {
        matches!(self, MountError::NotPermitted { .. } | MountError::Unavailable { .. })
    }
}

//! Errors of mounts, sorted by the party that must act: the user, the administrator, or the author of the image.

use kiln_read::ReadError;
use std::io;
use std::path::PathBuf;

/// Why something could not be mounted, served or unmounted. Every message names the path.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel refused for want of privilege.
    #[error("{}: not permitted to {action}: {reason}", path.display())]
    NotPermitted {
        /// The image, or the mount point.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        reason: String,
    },
    /// This kernel lacks what the image, or the way of mounting it, needs. The image itself is sound as far as we see.
    #[error("{}: this kernel cannot mount it: {reason}", path.display())]
    Unavailable {
        /// The image.
        path: PathBuf,
        /// What the kernel said.
        reason: String,
    },
    /// The kernel refused the image, and our own reader refuses it, too.
    #[error("{}: the kernel refused the image: {reason}", path.display())]
    Refused {
        /// The image.
        path: PathBuf,
        /// What the kernel said.
        reason: String,
    },
    /// The image or an extra device cannot be opened.
    #[error("{}: {source}", path.display())]
    Source {
        /// The image or the device.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The image or an extra device is a directory, a FIFO or the like.
    #[error("{}: neither a regular file nor a block device", path.display())]
    NotASource {
        /// The image or the device.
        path: PathBuf,
    },
    /// Our own reader cannot open the image that is to be served by FUSE.
    #[error("{source}")]
    Image {
        /// Why, with the name of the image if it has one.
        source: Box<ReadError>,
    },
    /// Nothing can be mounted at this place.
    #[error("{}: cannot mount here: {source}", path.display())]
    MountPoint {
        /// The mount point.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A mount would hide what is there.
    #[error("{}: {by}: --over mounts over it", path.display())]
    Taken {
        /// The mount point.
        path: PathBuf,
        /// What is in the way.
        by: String,
    },
    /// The machine lacks what FUSE needs.
    #[error("{}: no FUSE: {what}", path.display())]
    FuseMissing {
        /// The mount point.
        path: PathBuf,
        /// What is missing, and what to do.
        what: &'static str,
    },
    /// The FUSE mount failed, or its session broke off.
    #[error("{}: FUSE mount failed: {source}", path.display())]
    Fuse {
        /// The mount point.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The image is in use by something that would read a mixture of two images, or that writes one.
    #[error("{}: in use: {by}", path.display())]
    InUse {
        /// The image.
        path: PathBuf,
        /// Description of what uses it, and of what to do.
        by: String,
    },
    /// There is nothing to unmount.
    #[error("{}: not mounted", path.display())]
    NotMounted {
        /// As the caller gave it.
        path: PathBuf,
    },
    /// The filesystem that is mounted there is no image.
    #[error("{}: a mount of type {fs_type}, not an EROFS image: umount(8) unmounts it", path.display())]
    NotAnImage {
        /// As the caller gave it.
        path: PathBuf,
        /// The type in the mount table.
        fs_type: String,
    },
    /// Counters could not be fetched.
    #[error("{}: cannot ask for counters: {source}", path.display())]
    Stats {
        /// As the caller gave it.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There are no counters.
    #[error("{}: not the root of a mount that kiln serves by FUSE: only those have counters", path.display())]
    NoStats {
        /// As the caller gave it.
        path: PathBuf,
    },
    /// The file for counters cannot be written.
    #[error("{}: cannot write counters: {source}", path.display())]
    Metrics {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// What is read on a mount could not be recorded.
    #[error("{}: cannot record: {source}", path.display())]
    Record {
        /// As the caller gave it.
        path: PathBuf,
        /// What the system said, or the server.
        source: io::Error,
    },
    /// Nobody tells what is read there.
    #[error("{}: a mount of type {fs_type} cannot be recorded: only those of EROFS images, by kiln or by the kernel", path.display())]
    NoRecorder {
        /// As the caller gave it.
        path: PathBuf,
        /// The type in the mount table.
        fs_type: String,
    },
    /// A process has open files or a working directory there.
    #[error("{}: in use: close the files and leave the directories below it first", path.display())]
    Busy {
        /// The mount point.
        path: PathBuf,
    },
    /// Unmounting failed for another reason.
    #[error("{}: cannot unmount: {source}", path.display())]
    Unmount {
        /// The mount point.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl MountError {
    /// Whether a kernel mount failed for a reason that does not hinder [`fuse::serve`](crate::fuse::serve): missing
    /// privilege, or a kernel without EROFS or without what this image needs.
    pub fn falls_back_to_fuse(&self) -> bool {
        matches!(self, MountError::NotPermitted { .. } | MountError::Unavailable { .. })
    }
}

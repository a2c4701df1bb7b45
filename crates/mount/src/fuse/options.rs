//! Options of serving an image.

use super::hot::Hot;
use super::protocol::owners::Owners;
use crate::Attributes;
use kiln_read::ImageOptions;
use std::path::PathBuf;
use std::time::Duration;

/// Options of a FUSE server.
#[derive(Clone, Debug)]
pub struct FuseOptions {
    /// Number of threads that answer requests, 1 to 256. A slow source needs many, as each thread
    /// blocks on it.
    pub threads: usize,
    /// Bytes of metadata and decoded data that the server caches.
    pub cache_bytes: u64,
    /// True if other users may enter the mount.
    pub allow_other: bool,
    /// Effect of the modes in the image on access.
    pub modes: Modes,
    /// Owners of files, as the mount shows and enforces them.
    pub owners: Owners,
    /// Uses that the mount permits besides reading.
    pub attributes: Attributes,
    /// Source that the mount table shows: the image's path.
    pub fsname: String,
    /// The kernel's readahead window for sequential reads, in bytes; setting it needs root. `None`
    /// means 1 MiB if that can be set, else the kernel's default of 128 KiB. A page fault in a file
    /// that is mapped into memory also reads that many bytes around the page, until the kernel
    /// notices that most of them are not used.
    pub read_ahead: Option<u64>,
    /// Directory of the image that is the root of the mount; `None`: the image's root.
    pub subdir: Option<PathBuf>,
    /// Data that the kernel gets before it asks.
    pub prefetch: Prefetch,
    /// Time after which the mount ends by itself if there was no request and no file is open. Between one and two of
    /// these times pass.
    pub idle: Option<Duration>,
    /// Ranges that are read and decoded once the image is mounted.
    pub hot: Option<Hot>,
    /// File for the counters, in the text format of Prometheus with
    /// [`MetricLabels`](crate::fuse::MetricLabels), written every ten seconds and at the end.
    pub metrics: Option<PathBuf>,
}

impl Default for FuseOptions {
    /// Returns four threads, 64 MiB of cache, access for this user only, 1 MiB of readahead if
    /// possible, all prefetch, no hot list, and no metrics file.
    fn default() -> Self {
        Self {
            threads: 4,
            cache_bytes: ImageOptions::default().cache_bytes,
            allow_other: false,
            modes: Modes::default(),
            owners: Owners::default(),
            attributes: Attributes::default(),
            fsname: "kiln".into(),
            read_ahead: None,
            prefetch: Prefetch::default(),
            subdir: None,
            idle: None,
            hot: None,
            metrics: None,
        }
    }
}

/// Data that a server prefetches into the kernel's caches, which saves requests. This is
/// independent of the kernel's own readahead within files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefetch {
    /// Nothing: the server only answers requests.
    Off,
    /// Contents: small files, and the rest of decoded extents, are pushed into the page cache.
    Data,
    /// Contents and names: a thread of the server also lists directories through the mount.
    #[default]
    DataAndNames,
}

/// Effect of owners, modes and ACLs in an image on the users of a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Modes {
    /// They are enforced if root serves the image, or if other users may enter. Otherwise the user
    /// who mounts the image can read all files: the image itself is readable, so enforcing would
    /// protect nothing.
    #[default]
    AmongUsers,
    /// They are enforced: `default_permissions`.
    Enforced,
    /// They are shown but not enforced: each user who may enter can read everything.
    Shown,
}

impl FuseOptions {
    pub(super) fn enforces_modes(&self) -> bool {
        match self.modes {
            Modes::AmongUsers => self.allow_other || rustix::process::geteuid().is_root(),
            Modes::Enforced => true,
            Modes::Shown => false,
        }
    }
}

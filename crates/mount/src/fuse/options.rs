//! How an image is served.

use super::hot::Hot;
use super::protocol::owners::Owners;
use crate::Attributes;
use kiln_read::ImageOptions;
use std::path::PathBuf;

/// How to serve an image.
#[derive(Clone, Debug)]
pub struct FuseOptions {
    /// Threads that answer requests, 1 to 256. A slow source needs many, as each blocks on it.
    pub threads: usize,
    /// Bytes of metadata and decoded data that the server keeps.
    pub cache_bytes: u64,
    /// Other users may enter the mount.
    pub allow_other: bool,
    /// Whether the modes in the image say what may be read.
    pub modes: Modes,
    /// Owners of files, as the mount shows and enforces them.
    pub owners: Owners,
    /// What the mount allows beside reading.
    pub attributes: Attributes,
    /// What the mount table shows as the source: the image's path.
    pub fsname: String,
    /// The kernel's readahead window for sequential reads, in bytes; setting it needs root. `None` is 1 MiB where that can be set, else
    /// the kernel's default of 128 KiB. Pages of a file that is mapped into memory are read with as much around them, wherever a
    /// program touches it, until the kernel notices that most of that is in vain.
    pub read_ahead: Option<u64>,
    /// What the kernel gets before it asks.
    pub prefetch: Prefetch,
    /// What is read and decoded once the image is mounted.
    pub hot: Option<Hot>,
    /// A file for the counters, in the text format of Prometheus with [`Labels`](crate::fuse::Labels), written every ten seconds and at
    /// the end.
    pub metrics: Option<PathBuf>,
}

impl Default for FuseOptions {
    /// Four threads, 64 MiB of cache, for this user alone, 1 MiB of readahead if possible, all prefetch, no hot list, and no file for counters.
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
            hot: None,
            metrics: None,
        }
    }
}

/// What a server prefetches into the kernel's caches, which spares requests. The kernel's own readahead within files is another thing, and
/// goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefetch {
    /// Nothing: the server answers requests, and does no more.
    Off,
    /// Contents: small files, and the rest of extents that were decoded, are pushed into the page cache.
    Data,
    /// Contents, and names: a thread of the server lists directories through the mount.
    #[default]
    DataAndNames,
}

/// What owners, modes and ACLs in an image mean to the users of a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Modes {
    /// They are enforced if root serves the image, or other users may enter. A user who mounts an image alone reads all files: the image
    /// itself can be read, so enforcing would protect nothing.
    #[default]
    AmongUsers,
    /// They are enforced: `default_permissions`.
    Enforced,
    /// They are shown, and each user who may enter reads everything.
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

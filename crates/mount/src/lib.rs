//! Mounting of EROFS images: by the kernel or by FUSE.
//!
//! [`kernel::mount`] uses Linux's own EROFS driver, which needs root; [`fuse::serve`] serves an
//! image by FUSE, which does not. If the first fails but the second may succeed,
//! [`MountError::falls_back_to_fuse`] returns true. [`unmount`] ends either mount, [`preload`]
//! warms it up, and [`Recording`] records reads on it. [`fuse::query_stats`] fetches the counters
//! of a FUSE server.
//!
//! # Inside
//!
//! `mount::kernel` uses the kernel's driver; `mount::fuse` serves images where the kernel refuses.
//! Its folders are `protocol/` (requests and answers), `threads/`, `prefetch/`, `metrics/` and
//! `recorder/`. `mount::record` records reads on both kinds of mounts.
//!
//! * **Threads** follow the leader/followers pattern: one thread waits for requests, and promotes a
//!   follower only while another request is queued. The leader spins for a moment before it sleeps,
//!   and an idle server does not wake up.
//! * **Prefetch**: the cost of FUSE is its requests, so the server pushes pages that the kernel
//!   will ask for (`FUSE_NOTIFY_STORE`): the files that follow in readdir order (`sequential`),
//!   files of a directory that are already decoded (`siblings`), and the rest of an extent that was
//!   decoded for one page. FUSE has no notification that adds dentries, so a thread lists the
//!   directory through the mount (`dentry_thread`). The rules that prevent deadlocks between these
//!   are at the head of `prefetch.rs`.
//! * **Node ids** are nids (the root is 1; nids 0 and 1 are moved), so that lookups need no table.
//! * **Metrics** have one form, the text of Prometheus, which an ioctl on the root of the mount
//!   fetches (`ask`): clients need not find a socket.
//! * **Recordings**: the server stores reads in a bounded ring while a client fetches them by
//!   ioctls, and prefetches nothing meanwhile. It records inodes, not paths; the client finds the
//!   names at the end, by a walk through the mount.
//! * **In use**: a server holds a shared lock on its image (`in_use`), so that no other image is
//!   written over it.
//! * The server's process makes glibc use one heap and return freed memory (`heap`), and maps all
//!   of its own code (`program`).
#![deny(unsafe_code)]
#![warn(unreachable_pub)]

mod attributes;
mod error;
pub mod fuse;
mod fusermount;
mod heap;
mod in_use;
pub mod kernel;
mod mount_source;
mod preload;
mod program;
mod record;
mod remount;
mod table;
mod unmount;
mod users;

pub use attributes::Attributes;
pub use error::MountError;
pub use fusermount::NAMES as FUSERMOUNT_NAMES;
pub use heap::return_freed_memory;
pub use in_use::claim_unused;
pub use mount_source::check_free;
pub use preload::{Preload, Preloaded, default_preload, preload};
pub use program::load_program;
pub use record::{Granularity, Recorded, Recording};
pub use remount::remount;
pub use unmount::unmount;
pub use users::{MountUser, users};

//! An EROFS image as a mounted filesystem.
//!
//! [`kernel::mount`] asks Linux's own EROFS, which needs root; [`fuse::serve`] serves an image by FUSE, which does
//! not. Where the first cannot work but the second may, [`MountError::falls_back_to_fuse`] says so. [`unmount`] ends
//! either, [`preload`] warms either up, [`Recording`] tells what is read on either, and [`fuse::query_stats`] asks a server what it has done.
//!
//! # Inside
//!
//! `mount::kernel` uses the kernel's driver; `mount::fuse` serves where that is refused. Its folders: `protocol/` (requests and answers), `threads/`,
//! `prefetch/`, `metrics/`, `recorder/`. `mount::record` records reads on the mounts of either.
//!
//! * **Threads** follow the leader/followers pattern: one thread waits for requests, and promotes a follower only while another request is queued.
//!   The leader spins for a moment before it sleeps, and an idle server does not wake up.
//! * **Prefetch**: requests are what FUSE costs, so the server pushes pages that the kernel will ask for (`FUSE_NOTIFY_STORE`): the files that follow
//!   in readdir order (`sequential`), files of a directory that are decoded already (`siblings`), the rest of an extent that was decoded for one
//!   page. FUSE has no notification that adds dentries, so a thread lists the directory through the mount (`dentry_thread`). The rules that keep
//!   these from waiting in a circle stand at the head of `prefetch.rs`.
//! * **Node ids** are nids (the root is 1; nids 0 and 1 are moved aside), so that lookups need no table.
//! * **Metrics** have one form, the text of Prometheus, which an ioctl on the root of the mount fetches (`ask`): no socket has to be found.
//! * **Recordings**: the server keeps reads in a bounded ring while a client fetches them by ioctls, and prefetches nothing meanwhile. It knows
//!   inodes and no paths; the client finds names at the end, by a walk through the mount.
//! * **In use**: a server holds a shared lock on its image (`in_use`), so that nobody writes another image over it.
//! * The server's process tells glibc to keep one heap and to return what is freed (`heap`), and maps all of its own code (`program`).
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
mod table;
mod unmount;

pub use attributes::Attributes;
pub use error::MountError;
pub use heap::return_freed_memory;
pub use in_use::claim_unused;
pub use mount_source::check_free;
pub use preload::{Preload, Preloaded, default_preload, preload};
pub use program::load_program;
pub use record::{Granularity, Recorded, Recording};
pub use unmount::unmount;

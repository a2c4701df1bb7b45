//! An EROFS image as a mounted filesystem.
//!
//! [`kernel::mount`] asks Linux's own EROFS, which needs root; [`fuse::serve`] serves an image by FUSE, which does
//! not. Where the first cannot work but the second may, [`MountError::falls_back_to_fuse`] says so. [`unmount`] ends
//! either, [`preload`] warms either up, [`Recording`] tells what is read on either, and [`fuse::query_stats`] asks a server what it has done.
#![deny(unsafe_code)]
#![warn(unreachable_pub)]

mod attributes;
mod error;
pub mod fuse;
mod fusermount;
mod heap;
pub mod kernel;
mod mount_source;
mod preload;
mod record;
mod table;
mod unmount;

pub use attributes::Attributes;
pub use error::MountError;
pub use heap::return_freed_memory;
pub use mount_source::check_free;
pub use preload::{Preload, Preloaded, default_preload, preload};
pub use record::{Granularity, Recorded, Recording};
pub use unmount::unmount;

//! Hot lists: which ranges of which files a program has read, in which order.

mod coverage;
mod error;
mod list;
mod merge;
pub mod path;

pub use error::HotListError;
pub use list::{HotEntry, HotList};

//! Preferences for the storage of files, by path: the order of their data, the data that is read
//! first, and hints about single files. They are values about the nodes of a tree; a builder of
//! images follows them.

mod hints;
mod hot_zone;
mod order;

pub use hints::{Hint, HintRules};
pub use hot_zone::HotZone;
pub use order::{DataOrder, PathOrder};

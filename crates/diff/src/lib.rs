//! What is different between two trees.
//!
//! Both trees are walked at once, name by name. Metadata is compared on the way; contents, where lengths are equal, by any
//! number of threads, in pieces, so that one large file keeps all of them busy. Changes come out in the order of the walk,
//! whatever the number of threads, and all that is held for that is a bounded number of them.
#![warn(unreachable_pub)]
#![forbid(unsafe_code)]

mod change;
mod compare;
mod diff;
mod jobs;
mod links;
mod pairs;
mod reporter;
mod walk;

pub use change::{Aspect, Change, ChangeKind, Difference, Side, XattrChange};
pub use diff::{DiffError, DiffOptions, diff};
pub use reporter::DiffSummary;

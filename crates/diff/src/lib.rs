//! Comparison of two file trees.
//!
//! Both trees are walked together, name by name. Metadata is compared along the way. Contents of
//! equal length are compared in pieces by several threads, so that one large file keeps all of them
//! busy. Changes are reported in walk order for any number of threads, with only a bounded number
//! of them in memory.
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

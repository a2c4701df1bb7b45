//! Merges of trees: later ones over earlier ones, as overlayfs shows its layers, or in directories
//! of their own.
//!
//! A [`MergeBuilder`] merges whole trees and their contents. [`Overlay`] and [`MergedContents`] are
//! its two halves, for merges that also change entries.

mod builder;
mod contents;
mod lost_links;
mod overlay;

pub use builder::MergeBuilder;
pub use contents::MergedContents;
pub use lost_links::LostLinks;
pub use overlay::{Overlay, Whiteouts, with_marks};

//! A tree as an EROFS image.
//!
//! Building is a sequence of values, each complete when it is made:
//!
//! ```text
//! Tree ──► Facts ──► Plan ──► Packed ──► Layout ──► bytes
//! names,   inode     order,   where      nids,      every region filled
//! contents forms     dedupe   data lies  addresses  to its last byte
//! ```
//!
//! [`build`] runs them all. The same tree and options give the same bytes, whatever the number of threads.
#![forbid(unsafe_code)]

mod checks;
mod chunker;
mod cuts;
mod dedupe;
mod emit;
mod error;
mod facts;
mod fill;
mod hole;
mod jobs;
mod layout;
mod matching;
mod options;
mod pack;
mod packed;
mod part;
mod plan;
mod pool;
mod records;
mod space;
mod stats;
mod streams;
mod survey;
mod tails;
pub mod tree;
mod trial;
mod write;
mod xattr;
mod zeros;
mod zindex;

pub use error::{BuildError, InputProblem};
pub use kiln_codec::Spec;
pub use options::{BuildOptions, Control, Dedupe, Fragments, Hints, Progress};
pub use stats::{Phase, PhaseClock, Skipped, Summary, WayUse};
pub use tree::Tree;
pub use trial::Trial;

use std::fs::File;

/// Build `tree` into `out`, an empty file open for reading and writing. On an error `out` holds rubbish: the caller
/// gives it its final name only after success.
///
/// # Errors
/// An input that cannot be read or represented, by its path; an output that cannot be written; options that ask for
/// what the chosen kernel does not have; an interruption.
pub fn build(tree: &Tree, out: &File, options: &BuildOptions, control: &Control<'_>) -> Result<Summary, BuildError> {
    options.check()?;
    let mut clock = PhaseClock::start();
    let facts = facts::Facts::gather(tree, options)?;
    let plan = plan::Plan::make(tree, &facts, options, control)?;
    clock.finish("plan");
    let packed = pack::pack(tree, &plan, out, options, control)?;
    clock.finish("pack");
    let view = layout::View::new(tree, &facts, &plan, &packed, options);
    let layout = layout::Layout::make(&view)?;
    let written = write::write(&view, &layout, out, options, control)?;
    clock.finish("write");
    let mut summary = stats::summarize(&view, &layout, &written);
    summary.phases = clock.phases();
    summary.skipped = facts.left_out;
    summary.skipped.extend(plan.left_out);
    summary.skipped.extend(packed.left_out.into_values());
    Ok(summary)
}

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

mod chunker;
mod chunks;
mod cuts;
mod dedupe;
mod device;
mod digest;
mod emit;
mod error;
mod facts;
mod fill;
mod hole;
mod jobs;
mod layout;
mod matching;
mod options;
mod out;
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
mod write;
mod xattr;
mod zindex;

pub use error::{BuildError, InputProblem};
pub use options::{BuildOptions, ChunkEntries, Control, Dedupe, Fragments, Progress};
pub use out::{Blob, Out};
pub use stats::{Phase, PhaseClock, Skipped, Summary};
pub use tree::Tree;

/// Build `tree` into `out`, for example an empty file. On an error it holds rubbish: the caller gives it its final name only
/// after success.
///
/// # Errors
/// An input that cannot be read or represented, by its path; an output that cannot be written; options that ask for
/// what the chosen kernel does not have; an interruption.
pub fn build<'a>(
    tree: &Tree,
    out: impl Into<Out<'a>>,
    options: &BuildOptions,
    control: &Control<'_>,
) -> Result<Summary, BuildError> {
    options.check()?;
    let out = out.into();
    let mut clock = PhaseClock::start();
    let digests = digest::all(tree, options, control)?;
    let facts = facts::Facts::gather(tree, &digests, options)?;
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

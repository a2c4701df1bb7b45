//! What an image will be, before it is built: size, time and oldest kernel, from a sample.
//!
//! The plan is made for real: duplicates, equal parts, holes and packed files are known, not estimated. What is sampled is
//! packing, which takes nearly all the time. The jobs of the plan are put into strata, and of each a systematic sample is
//! packed, by the code that builds images; `frame` says how it is drawn, `figure` what follows from it. Metadata is laid out
//! for real, with the lengths that the sample has shown (`imagined`). A tree that is no larger than the sample is packed as a
//! whole, and its estimate is exact.
//!
//! The sample is the same for the same tree and options. Only times depend on the machine.

mod figure;
mod frame;
mod imagined;
mod observe;
mod zone;

pub use figure::Figure;

use kiln_format::KernelVersion;
use kiln_format::feature::{Feature, OLDEST_KERNEL};

use crate::facts::Facts;
use crate::layout::{Layout, View};
use crate::plan::Plan;
use crate::tree::Kind;
use crate::{BuildError, BuildOptions, Control, Dedupe, PhaseClock, Tree, write};
use frame::{Frame, Stratum};
use observe::Observed;

/// Trees of more bytes are not read as a whole, as looking for equal parts would do.
const PARTS_MAX_LEN: u64 = 16 << 30;
/// What the times of a build have beside the sampling error: other work on the machine, caches, the file system. Chosen so
/// that the bars hold the times of real builds of three trees.
const TIME_ERROR: f64 = 0.1;

/// What a build would make.
#[derive(Clone, Debug)]
pub struct Estimate {
    /// Bytes of all regular files, hard links counted once.
    pub bytes_in: u64,
    /// Size of the image in bytes.
    pub image_bytes: Figure,
    /// User and system time of the build in seconds, without the scan of the source.
    pub cpu_secs: Figure,
    /// Seconds of the build with as many free processors as threads, without the scan of the source and without what the
    /// disk then still has to write.
    pub wall_secs: Figure,
    /// The oldest kernel that mounts the image.
    pub oldest_kernel: KernelVersion,
    /// What needs it.
    pub oldest_kernel_because: Option<Feature>,
    /// Bytes of text that are to be packed.
    pub text_bytes: u64,
    /// Bytes of text that were packed for the estimate.
    pub sampled_bytes: u64,
    /// Equal parts are to be stored once, but were not looked for, since the tree is too large: the image may become smaller.
    pub parts_ignored: bool,
}

/// Estimate what [`crate::build`] would make of `tree`.
///
/// # Errors
/// As [`crate::build`], but for output.
pub fn estimate(tree: &Tree, options: &BuildOptions, control: &Control<'_>) -> Result<Estimate, BuildError> {
    options.check()?;
    let parts_ignored = options.dedupes_parts() && len(tree) > PARTS_MAX_LEN;
    let dedupe = if parts_ignored { Dedupe::Files } else { options.dedupe };
    let options = &BuildOptions { dedupe, ..options.clone() };
    let mut clock = PhaseClock::start();
    let facts = Facts::gather(tree, options)?;
    let plan = Plan::make(tree, &facts, options, control)?;
    clock.finish("plan");
    let frame = Frame::of(&plan, options);
    let observed = observe::observe(tree, &plan, &frame, options, control)?;
    let mut layout_clock = PhaseClock::start();
    let imagined = imagined::packed(&plan, &frame, &observed, options);
    let view = View::new(tree, &facts, &plan, &imagined, options);
    let layout = Layout::make(&view)?;
    layout_clock.finish("layout");

    let stored = total(&frame, &observed, |one| (one.blocks + one.inline) as f64 + padding(one, options));
    let header_len = write::header_blocks(options)? * options.block_bits().len();
    // What is imagined beside inodes is part of the layout and of what is stored, too.
    let known = header_len as f64 - imagined::inline_len(&imagined) as f64;
    let (metadata, special) = zone::measure(&view, &layout, options)?;
    let image_bytes = Figure::exact(known) + metadata + stored;
    let pack_secs = total(&frame, &observed, |one| one.secs);
    let write_secs = Figure::exact(observe::write_secs_per_byte()? * image_bytes.value);
    let (plan_time, layout_time) = (clock.phases()[0], layout_clock.phases()[0]);
    let alone_secs = Figure::exact(layout_time.cpu.as_secs_f64());
    let busy_secs = (pack_secs + write_secs).with_error(TIME_ERROR);
    let features = write::superblock(&view, &layout, special, options)?.features();
    let because = features.into_iter().max_by_key(|feature| feature.since());
    Ok(Estimate {
        bytes_in: len(tree),
        image_bytes,
        cpu_secs: Figure::exact(plan_time.cpu.as_secs_f64()) + busy_secs + alone_secs,
        wall_secs: Figure::exact(plan_time.wall.as_secs_f64()) + busy_secs / options.threads as f64 + alone_secs,
        oldest_kernel: because.map_or(OLDEST_KERNEL, Feature::since),
        oldest_kernel_because: because,
        text_bytes: frame.strata.iter().map(Stratum::text).sum(),
        sampled_bytes: observed.iter().flatten().map(|one| one.text).sum(),
        parts_ignored,
    })
}

/// Bytes of all regular files.
fn len(tree: &Tree) -> u64 {
    let len = |kind: &Kind| match kind {
        Kind::File { len, .. } => *len,
        _ => 0,
    };
    tree.nodes().map(|(_, node)| len(&node.kind)).sum()
}

/// What lies in front of a job on average: blocks behind encoded extents start at the next boundary.
fn padding(one: &Observed, options: &BuildOptions) -> f64 {
    match options.encoded_extents && one.is_flat && one.blocks > 0 {
        true => options.block_bits().len() as f64 / 2.0,
        false => 0.0,
    }
}

/// The sum over all jobs of the number that `of` reads off an observation.
fn total(frame: &Frame, observed: &[Vec<Observed>], of: impl Fn(&Observed) -> f64) -> Figure {
    frame.strata.iter().zip(observed).map(|(stratum, observed)| stratum.figure(observed, &of)).sum()
}

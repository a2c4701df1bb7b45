//! What an image will be, before it is built: size, time and oldest kernel, from a sample.
//!
//! The plan is made for real: duplicates, equal parts, holes and packed files are known, not estimated. What is sampled is
//! packing, which takes nearly all the time. The jobs of the plan are put into strata, and of each a systematic sample is
//! packed, by the code that builds images; `frame` says how it is drawn, `interval` what follows from it. Metadata is laid out
//! for real, with the lengths that the sample has shown (`synthetic`). A tree that is no larger than the sample is packed as a
//! whole, and its estimate is exact.
//!
//! The sample is the same for the same tree and options. Only times depend on the machine.

mod frame;
mod interval;
mod observe;
mod observed;
mod padding;
mod synthetic;
mod zone;

pub use interval::Interval;

use kiln_format::KernelVersion;
use kiln_format::feature::{Feature, OLDEST_KERNEL};

use crate::context::Context;
use crate::context::clock::PhaseClock;
use crate::context::ledger::Ledger;
use crate::context::progress::Control;
use crate::error::BuildError;
use crate::inodes::Inodes;
use crate::inodes::digest;
use crate::layout::Layout;
use crate::layout::view::View;
use crate::options::{BuildOptions, Dedupe, Fragments};
use crate::plan::Plan;
use crate::tree::Kind;
use crate::tree::Tree;
use crate::write::superblock::{self, Header};
use frame::{Frame, Stratum};
use observed::Observed;

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
    pub image_bytes: Interval,
    /// Size of the extra device in bytes, if there is to be one.
    pub blob_bytes: Interval,
    /// User and system time of the build in seconds, without the scan of the source.
    pub cpu_secs: Interval,
    /// Seconds of the build with as many free processors as threads, without the scan of the source and without what the
    /// disk then still has to write.
    pub wall_secs: Interval,
    /// The oldest kernel that mounts the image.
    pub oldest_kernel: KernelVersion,
    /// What needs it.
    pub oldest_kernel_because: Option<Feature>,
    /// Bytes of text that are to be packed.
    pub text_bytes: u64,
    /// Bytes of text that were packed for the estimate.
    pub sampled_bytes: u64,
    /// Equal parts or chunks are to be stored once, but were not looked for everywhere, since the tree is too large: the image
    /// may become smaller.
    pub parts_ignored: bool,
}

/// Estimate what [`crate::build`] would make of `tree`, with an extra device for chunks if `has_blob`.
///
/// # Errors
/// As [`crate::build`], but for output.
pub fn estimate(
    tree: &Tree,
    has_blob: bool,
    options: &BuildOptions,
    control: &Control<'_>,
) -> Result<Estimate, BuildError> {
    options.check()?;
    let bytes_in = len(tree);
    let parts_ignored = options.dedupes_parts() && bytes_in > PARTS_MAX_LEN;
    let dedupe = if parts_ignored { Dedupe::Files } else { options.dedupe };
    // What ends of files would save, half a percent or less, is not known before they are packed.
    let fragments = match options.fragments {
        Fragments::Tails(len) => Fragments::UpTo(len),
        other => other,
    };
    let options = &BuildOptions { dedupe, fragments, ..options.clone() };
    let clock = PhaseClock::start();
    let ledger = Ledger::default();
    let context = Context { tree, options, control, ledger: &ledger };
    let digests = digest::synthetic(tree, options);
    let inodes = Inodes::gather(&digests, context)?;
    let (plan, sources) = Plan::make(&inodes, context)?;
    clock.finish("plan");
    let frame = Frame::of(&plan, options);
    let observed = observe::observe(&plan, &sources, &frame, context)?;
    let layout_clock = PhaseClock::start();
    let outcomes = synthetic::outcomes(&frame, &observed);
    let synthetic = synthetic::stored(&plan, (&sources.fragments, has_blob), &outcomes, options);
    let view = View::new(&inodes, &plan, &synthetic, context);
    let layout = Layout::make(&view)?;
    layout_clock.finish("layout");

    let goes_to_blob = |one: &Observed| has_blob && one.in_chunks;
    let of_image = |one: &Observed| match goes_to_blob(one) {
        true => 0.0,
        false => (one.blocks + one.inline) as f64 + padding::behind(one, options),
    };
    let stored = total(&frame, &observed, of_image) + padding::behind_streams(&frame, &plan, has_blob, options);
    let blob_bytes = total(&frame, &observed, |one| if goes_to_blob(one) { one.blocks as f64 } else { 0.0 });
    let header = Header::new(has_blob, options)?;
    let header_len = (header.blocks * options.block_bits.len()).next_multiple_of(options.data_align);
    // What the synthetic data has beside inodes is part of the layout and of what is stored, too.
    let known = header_len as f64 - synthetic::inline_len(&synthetic) as f64;
    let random_len = (digests.len() * digest::DIGEST_LEN) as u64;
    let (metadata, special) = zone::measure(&view, &layout, random_len, options)?;
    let image_bytes = padding::whole(Interval::exact(known) + metadata + stored, options.image_align);
    let pack_secs = total(&frame, &observed, |one| one.secs);
    let write_secs = Interval::exact(observe::write_secs_per_byte()? * (image_bytes + blob_bytes).value);
    let (plan_time, layout_time) = (clock.phases()[0], layout_clock.phases()[0]);
    let alone_secs = Interval::exact(layout_time.cpu.as_secs_f64());
    let hashed = if digests.is_empty() { 0 } else { bytes_in };
    let hash_secs = Interval::exact(digest::secs_per_byte() * hashed as f64);
    let busy_secs = (pack_secs + write_secs + hash_secs).with_error(TIME_ERROR);
    let records = superblock::records(&view, special);
    let features = header.superblock(&view, &layout, special, &records)?.features();
    let because = features.into_iter().max_by_key(|feature| feature.since());
    let text_bytes = frame.strata.iter().map(Stratum::text).sum();
    let sampled_bytes = observed.iter().flatten().map(|one| one.text).sum();
    let chunks_ignored = options.chunk_bits.is_some() && options.dedupe != Dedupe::Off && sampled_bytes < text_bytes;
    Ok(Estimate {
        bytes_in,
        image_bytes,
        blob_bytes,
        cpu_secs: Interval::exact(plan_time.cpu.as_secs_f64()) + busy_secs + alone_secs,
        wall_secs: Interval::exact(plan_time.wall.as_secs_f64())
            + busy_secs / options.threads.count() as f64
            + alone_secs,
        oldest_kernel: because.map_or(OLDEST_KERNEL, Feature::since),
        oldest_kernel_because: because,
        text_bytes,
        sampled_bytes,
        parts_ignored: parts_ignored || chunks_ignored,
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

/// The sum over all jobs of the number that `of` reads off an observation.
fn total(frame: &Frame, observed: &[Vec<Observed>], of: impl Fn(&Observed) -> f64) -> Interval {
    frame.strata.iter().zip(observed).map(|(stratum, observed)| stratum.interval(observed, &of)).sum()
}

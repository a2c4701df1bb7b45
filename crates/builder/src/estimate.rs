//! What an image will be, before it is built: size, time and oldest kernel, from a sample.
//!
//! A tree that is no larger than the sample is built, into memory, and its estimate is exact. Of a larger one the plan is made for
//! real: duplicates, equal parts, holes and packed files are known, not estimated. What is sampled is packing, which takes nearly
//! all the time. The jobs of the plan are put into strata (`frame`), the text of a sample of each becomes a tree of its own
//! (`sample_tree`), and that is built like any other (`sample`); `interval` says what follows from it. Metadata is laid out for
//! real, with the lengths that the sample has shown (`synthetic`).
//!
//! The sample is the same for the same tree and options. Only times depend on the machine.

mod drawn;
mod frame;
mod in_memory;
mod interval;
mod observed;
mod padding;
mod planned_text;
mod sample;
mod sample_tree;
mod synthetic;
mod zone;

pub use interval::Interval;

use kiln_format::KernelVersion;
use kiln_format::compr_cfg::ComprCfgs;
use kiln_format::feature::{Feature, OLDEST_KERNEL};
use sha2::{Digest, Sha256};
use std::time::Duration;

use crate::build::Built;
use crate::context::Context;
use crate::context::clock::{Phase, PhaseClock, thread_cpu};
use crate::context::ledger::Ledger;
use crate::context::progress::Control;
use crate::error::BuildError;
use crate::format::{Format, Packing, check};
use crate::inodes::Inodes;
use crate::inodes::digest::DIGEST_LEN;
use crate::layout::Layout;
use crate::layout::view::View;
use crate::options::{BuildOptions, Dedupe};
use crate::pack::jobs;
use crate::plan::Plan;
use crate::write::superblock::{self, Header};
use frame::{Frame, Stratum};
use kiln_tree::{Kind, Tree};
use observed::{Observed, Sample};
use sample::Sampler;

/// Trees of more bytes are not read as a whole, as looking for equal parts would do.
const PARTS_MAX_LEN: u64 = 16 << 30;
/// What the times of a build have beside the sampling error: other work on the machine, caches, the file system. Chosen so
/// that the bars hold the times of real builds of three trees.
const TIME_ERROR: f64 = 0.1;
/// Bytes that are hashed to see how long that takes.
const HASHED_LEN: usize = 4 << 20;

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
    let format = &Format::of(options, tree)?;
    // What a caller sees as progress is that of one build.
    let (ledger, control) = (Ledger::default(), Control { stop: control.stop, progress: &|_| {} });
    let context = Context { tree, format, control: &control, ledger: &ledger };
    let estimate = match len(tree) <= frame::sample_len(format) {
        true => from_build(has_blob, context),
        false => from_sample(has_blob, context),
    }?;
    check::features(estimate.oldest_kernel_because.as_slice(), options)?;
    Ok(estimate)
}

/// What a build makes of a small tree.
fn from_build(has_blob: bool, context: Context<'_>) -> Result<Estimate, BuildError> {
    let (Built { summary, plan, .. }, phases) = in_memory::build(has_blob, context)?;
    let text_bytes = jobs::jobs(&plan, context.format).map(|job| job.range.end - job.range.start).sum();
    let secs = |of: fn(&Phase) -> Duration| {
        Interval::exact(phases.iter().map(of).sum::<Duration>().as_secs_f64()).with_error(TIME_ERROR)
    };
    Ok(Estimate {
        bytes_in: len(context.tree),
        image_bytes: Interval::exact(summary.image_bytes as f64),
        blob_bytes: Interval::exact(summary.blob_bytes as f64),
        cpu_secs: secs(|phase| phase.cpu),
        wall_secs: secs(|phase| phase.wall),
        oldest_kernel: summary.oldest_kernel.unwrap_or(OLDEST_KERNEL),
        oldest_kernel_because: summary.oldest_kernel_because,
        text_bytes,
        sampled_bytes: text_bytes,
        parts_ignored: false,
    })
}

/// What a sample says of a tree.
fn from_sample(has_blob: bool, context: Context<'_>) -> Result<Estimate, BuildError> {
    let Context { tree, format, .. } = context;
    let bytes_in = len(tree);
    let parts_ignored = format.dedupes_parts() && bytes_in > PARTS_MAX_LEN;
    let dedupe = if parts_ignored { Dedupe::Files } else { format.dedupe };
    // What ends of files would save, half a percent or less, is not known before they are packed.
    let packing = Packing { ends: false, ..format.packing };
    let format = &Format { dedupe, packing, ..format.clone() };
    let context = Context { format, ..context };
    let clock = PhaseClock::start();
    let digests = synthetic::digests(tree, format);
    let inodes = Inodes::gather(&digests, context)?;
    let (plan, sources) = Plan::make(&inodes, context)?;
    clock.finish("plan");
    let frame = Frame::of(&plan, format);
    let sampler = Sampler::new(&plan, &sources, &frame, context);
    let samples = frame.strata.iter().map(|stratum| sampler.take(stratum)).collect::<Result<Vec<_>, _>>()?;
    let layout_clock = PhaseClock::start();
    let outcomes = synthetic::outcomes(&frame, &samples);
    let devices = tree.stores().devices.len() + usize::from(has_blob);
    let mut synthetic = synthetic::stored(&plan, (&sources.fragments, has_blob), &outcomes, format);
    synthetic.features.extend((devices > 0).then_some(Feature::DeviceTable));
    let view = View::new(&inodes, &plan, &synthetic, context);
    let layout = Layout::make(&view)?;
    layout_clock.finish("layout");

    let goes_to_blob = |one: &Observed| has_blob && one.in_chunks;
    let of_image = |one: &Observed| match goes_to_blob(one) {
        true => 0.0,
        false => (one.blocks + one.inline) as f64 + padding::behind(one, format),
    };
    let stored = total(&frame, &samples, of_image) + padding::behind_streams(&frame, &plan, has_blob, format);
    let blob_bytes = total(&frame, &samples, |one| if goes_to_blob(one) { one.blocks as f64 } else { 0.0 });
    let header = Header::new(devices, ComprCfgs::default(), format)?;
    let header_len = (header.blocks * format.block_bits.len()).next_multiple_of(format.layout.data_align);
    // What the synthetic data has beside inodes is part of the layout and of what is stored, too.
    let known = header_len as f64 - synthetic::inline_len(&synthetic) as f64;
    let random_len = (digests.len() * DIGEST_LEN) as u64;
    let (metadata, special) = zone::measure(&view, &layout, random_len, format)?;
    let image_bytes = padding::whole(Interval::exact(known) + metadata + stored, format.layout.image_align);
    let pack_secs = frame.strata.iter().zip(&samples).map(|(stratum, sample)| stratum.pack_secs(sample)).sum();
    let (plan_time, layout_time) = (clock.phases()[0], layout_clock.phases()[0]);
    let alone_secs = Interval::exact(layout_time.cpu.as_secs_f64());
    let hash_secs = if digests.is_empty() { 0.0 } else { hash_secs_per_byte() * bytes_in as f64 };
    let busy_secs = (Interval::exact(hash_secs) + pack_secs).with_error(TIME_ERROR);
    let records = superblock::records(&view, special);
    let features = header.superblock(&view, &layout, special, &records)?.features();
    let because = features.into_iter().max_by_key(|feature| feature.since());
    let text_bytes = frame.strata.iter().map(Stratum::text).sum();
    let is_whole = frame.strata.iter().all(Stratum::is_whole);
    let chunks_ignored = format.layout.chunk_bits.is_some() && format.dedupe != Dedupe::Off && !is_whole;
    Ok(Estimate {
        bytes_in,
        image_bytes,
        blob_bytes,
        cpu_secs: Interval::exact(plan_time.cpu.as_secs_f64()) + busy_secs + alone_secs,
        wall_secs: Interval::exact(plan_time.wall.as_secs_f64())
            + busy_secs / format.work.threads.count() as f64
            + alone_secs,
        oldest_kernel: because.map_or(OLDEST_KERNEL, Feature::since),
        oldest_kernel_because: because,
        text_bytes,
        sampled_bytes: samples.iter().map(|sample| sample.text).sum(),
        parts_ignored: parts_ignored || chunks_ignored,
    })
}

/// CPU time that takes a byte into a digest.
fn hash_secs_per_byte() -> f64 {
    let (bytes, start) = (vec![1; HASHED_LEN], thread_cpu());
    std::hint::black_box(Sha256::digest(&bytes));
    (thread_cpu() - start).as_secs_f64() / HASHED_LEN as f64
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
fn total(frame: &Frame, samples: &[Sample], of: impl Fn(&Observed) -> f64) -> Interval {
    frame.strata.iter().zip(samples).map(|(stratum, sample)| stratum.interval(sample, &of)).sum()
}

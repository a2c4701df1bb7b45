//! Estimates of an image before it is built: size, time and oldest kernel, from a sample.
//!
//! A tree that is no larger than the sample is built into memory, and its estimate is exact. For a larger tree the
//! plan is real: duplicates, equal parts, holes and packed files are known, not estimated. Only packing is sampled,
//! as it takes nearly all the time. The jobs of the plan are divided into strata (`frame`), text drawn from each
//! becomes a tree of its own (`sample_tree`), which is built like any other (`sample`), and `interval` computes the
//! estimates from the results. The metadata has a real layout, with lengths taken from the sample (`synthetic`).
//!
//! The same tree and options give the same sample. Only times depend on the machine.

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

use kiln_digest::contents::ContentHash;
use kiln_format::KernelVersion;
use kiln_format::compr_cfg::ComprCfgs;
use kiln_format::feature::{Feature, OLDEST_KERNEL};
use std::time::Duration;

use crate::build::Built;
use crate::context::Context;
use crate::context::clock::{Phase, PhaseClock, thread_cpu};
use crate::context::ledger::Ledger;
use crate::context::progress::Control;
use crate::error::BuildError;
use crate::format::{Format, Packing, check};
use crate::inodes::Inodes;
use crate::inodes::digest;
use crate::layout::Layout;
use crate::layout::view::View;
use crate::options::{BuildOptions, Dedupe};
use crate::write::superblock::{self, Header};
use frame::{Frame, Stratum};
use kiln_tree::{Kind, Tree};
use observed::{Observed, Sample};
use planned_text::Planned;
use sample::Sampler;

/// Trees of more bytes are not read as a whole, which the search for equal parts would require.
const PARTS_MAX_LEN: u64 = 16 << 30;
/// Error of the times of a build beside the sampling error: other work on the machine, caches, the file system.
/// Chosen so that the intervals contain the times of real builds of three trees.
const TIME_ERROR: f64 = 0.1;
/// Bytes that are hashed to measure the speed of hashing.
const HASHED_LEN: usize = 4 << 20;

/// Estimated size and time of a build.
#[derive(Clone, Debug)]
pub struct Estimate {
    /// Bytes of all regular files, hard links counted once.
    pub bytes_in: u64,
    /// Size of the image in bytes.
    pub image_bytes: Interval,
    /// Size of the extra device in bytes, if there is one.
    pub blob_bytes: Interval,
    /// User and system time of the build in seconds, without the scan of the source.
    pub cpu_secs: Interval,
    /// Elapsed seconds of the build with as many free processors as threads, without the scan of the source and
    /// without data that the disk still has to write afterwards.
    pub wall_secs: Interval,
    /// The oldest kernel that mounts the image.
    pub oldest_kernel: KernelVersion,
    /// The feature that needs this kernel.
    pub oldest_kernel_because: Option<Feature>,
    /// Bytes of text that a build would pack.
    pub text_bytes: u64,
    /// Bytes of text that were packed for the estimate.
    pub sampled_bytes: u64,
    /// Equal parts or chunks were asked for, but were not searched for everywhere, since the tree is too large. The
    /// image may become smaller.
    pub parts_ignored: bool,
}

/// Estimates the image that [`crate::build`] would make of `tree`, with an extra device for chunks if `has_blob`.
///
/// # Errors
/// Those of [`crate::build`], except errors of outputs.
pub fn estimate(
    tree: &Tree,
    has_blob: bool,
    options: &BuildOptions,
    control: &Control<'_>,
) -> Result<Estimate, BuildError> {
    let format = &Format::of(options, tree.stores().digests)?;
    // The caller sees the progress of a single build, so the inner ones report nothing.
    let (ledger, control) = (Ledger::default(), Control { stop: control.stop, progress: &|_| {} });
    let context = Context { tree, format, control: &control, ledger: &ledger, previous: None };
    let estimate = match len(tree) <= frame::sample_len(format) {
        true => from_build(has_blob, context),
        false => from_sample(has_blob, context),
    }?;
    check::features(estimate.oldest_kernel_because.as_slice(), options)?;
    Ok(estimate)
}

/// Builds a small tree and returns the exact result.
fn from_build(has_blob: bool, context: Context<'_>) -> Result<Estimate, BuildError> {
    let (Built { summary, data, .. }, phases) = in_memory::build(has_blob, context)?;
    let text_bytes = data.text_bytes;
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

/// Estimates from a sample of a tree.
fn from_sample(has_blob: bool, context: Context<'_>) -> Result<Estimate, BuildError> {
    let Context { tree, format, .. } = context;
    let bytes_in = len(tree);
    let parts_ignored = format.dedupes_parts() && bytes_in > PARTS_MAX_LEN;
    let dedupe = if parts_ignored { Dedupe::Files } else { format.dedupe };
    // Savings from ends of files, half a percent or less, are unknown before they are packed.
    let packing = Packing { ends: false, ..format.packing };
    let format = &Format { dedupe, packing, ..format.clone() };
    let context = Context { format, ..context };
    let clock = PhaseClock::start();
    let digests = digest::placeholders(tree, format);
    let inodes = Inodes::gather(&digests, context)?;
    let Planned { plan, jobs, fragments } = planned_text::plan(&inodes, context)?;
    clock.finish("plan");
    let frame = Frame::of(jobs, format);
    let sampler = Sampler::new(&plan, &fragments, &frame, context);
    let samples = frame.strata.iter().map(|stratum| sampler.take(stratum)).collect::<Result<Vec<_>, _>>()?;
    let layout_clock = PhaseClock::start();
    let outcomes = synthetic::outcomes(&frame, &samples);
    let devices = tree.stores().devices.len() + usize::from(has_blob);
    let mut synthetic = synthetic::stored(&plan, (&fragments, has_blob), &outcomes, format);
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
    // Inline data of the synthetic files is part of the layout and of the stored data: count it once.
    let known = header_len as f64 - synthetic::inline_len(&synthetic) as f64;
    let hash = format.metadata.digest_hash;
    let random_len = (digests.len() * hash.map_or(0, ContentHash::digest_len)) as u64;
    let (metadata, special) = zone::measure(&view, &layout, random_len, format)?;
    let image_bytes = padding::whole(Interval::exact(known) + metadata + stored, format.layout.image_align);
    let pack_secs = frame.strata.iter().zip(&samples).map(|(stratum, sample)| stratum.pack_secs(sample)).sum();
    let (plan_time, layout_time) = (clock.phases()[0], layout_clock.phases()[0]);
    let alone_secs = Interval::exact(layout_time.cpu.as_secs_f64());
    let hash_secs = hash.map_or(0.0, |hash| hash_secs_per_byte(hash) * bytes_in as f64);
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

/// Returns the CPU time of hashing a byte.
fn hash_secs_per_byte(hash: ContentHash) -> f64 {
    let (bytes, start) = (vec![1; HASHED_LEN], thread_cpu());
    std::hint::black_box(hash.digest(&bytes));
    (thread_cpu() - start).as_secs_f64() / HASHED_LEN as f64
}

/// Returns the bytes of all regular files.
fn len(tree: &Tree) -> u64 {
    let len = |kind: &Kind| match kind {
        Kind::File { len, .. } => *len,
        _ => 0,
    };
    tree.nodes().map(|(_, node)| len(&node.kind)).sum()
}

/// Returns the sum over all jobs of the number that `of` reads off an observation.
fn total(frame: &Frame, samples: &[Sample], of: impl Fn(&Observed) -> f64) -> Interval {
    frame.strata.iter().zip(samples).map(|(stratum, sample)| stratum.interval(sample, &of)).sum()
}

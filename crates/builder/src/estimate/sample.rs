//! The sample of a stratum: its text becomes the files of a tree, and that tree is built.

use kiln_codec::{Spec, probe};
use std::collections::HashSet;

use super::drawn::{Draw, DrawnFile};
use super::frame::{Frame, Stratum};
use super::in_memory;
use super::observed::{Observed, Sample};
use super::planned_text::PlannedText;
use super::sample_tree::{SampleFile, SampleTree};
use crate::build::Built;
use crate::context::Context;
use crate::context::clock::thread_cpu;
use crate::context::ledger::Ledger;
use crate::context::progress::Control;
use crate::error::BuildError;
use crate::format::{Format, Packing};
use crate::options::Dedupe;
use crate::options::data::{CompressionOptions, LayoutOptions, Trial};
use crate::options::hints::Hints;
use crate::pack::jobs::{PackJob, Task};
use crate::plan::Plan;
use crate::plan::fragments::FragmentStream;
use crate::plan::text::TextSource;
use crate::read::{PIECE_COST, skippable};
use kiln_parallel::ordered::{self, Costed};

/// A file of a sample, with the LZ4 length of each unit of its text.
struct ReadFile {
    drawn: DrawnFile,
    text: Vec<u8>,
    lz4: Lz4Lens,
    /// CPU time of reading, in seconds.
    secs: f64,
}

/// Takes samples of a plan.
pub(super) struct Sampler<'a> {
    plan: &'a Plan,
    text: PlannedText<'a>,
    frame: &'a Frame,
    context: Context<'a>,
}

impl<'a> Sampler<'a> {
    /// Creates a sampler of `frame`.
    pub(super) fn new(plan: &'a Plan, fragments: &'a FragmentStream, frame: &'a Frame, context: Context<'a>) -> Self {
        let text = PlannedText { tree: context.tree, plan, fragments };
        Self { plan, text, frame, context }
    }

    /// Draws the sample of a stratum and builds it. Leaves out files that cannot be read, if options allow that.
    ///
    /// # Errors
    /// A file that cannot be read, unless such files are to be skipped; an interruption.
    pub(super) fn take(&self, stratum: &Stratum) -> Result<Sample, BuildError> {
        let Draw { files, lz4_samples } = stratum.draw(&self.frame.parts);
        let keep = |drawn: DrawnFile, text: &[u8], secs| {
            let lz4 = if drawn.member.is_some() { Lz4Lens::default() } else { Lz4Lens::of(text) };
            ReadFile { drawn, text: text.to_vec(), lz4, secs }
        };
        let files = self.read(files, |drawn| &drawn.job, keep)?;
        let lz4_samples = self.read(lz4_samples, |job| job, |_, text, _| Lz4Lens::of(text).share(text.len()))?;
        Ok(Sample { lz4_samples, ..self.build(stratum, files)? })
    }

    /// Reads the text of `drawn` on all cores and looks at it there, with the CPU time of reading. Results are in
    /// order.
    fn read<T: Send, R: Send>(
        &self,
        drawn: Vec<T>,
        job_of: impl Fn(&T) -> &PackJob + Sync,
        look: impl Fn(T, &[u8], f64) -> R + Sync,
    ) -> Result<Vec<R>, BuildError> {
        let Context { format, control, .. } = self.context;
        let len = |one: &T| job_of(one).range.end - job_of(one).range.start;
        let jobs: Vec<_> = drawn.into_iter().map(|job| Costed { cost: PIECE_COST + len(&job), job }).collect();
        let worker = || {
            let mut text = Vec::new();
            let (job_of, look) = (&job_of, &look);
            Ok(move |one: T| {
                control.check()?;
                let start = thread_cpu();
                let read = skippable(self.text.read(job_of(&one), &mut text), format)?;
                let secs = (thread_cpu() - start).as_secs_f64();
                Ok::<_, BuildError>(read.ok().map(|()| look(one, &text, secs)))
            })
        };
        let mut seen = Vec::with_capacity(jobs.len());
        ordered::run(format.work.threads, format.work.backlog(), jobs.into_iter(), worker, |one| {
            seen.extend(one);
            Ok(())
        })?;
        Ok(seen)
    }

    /// Makes a tree of files, builds it, and returns the result of each.
    fn build(&self, stratum: &Stratum, files: Vec<ReadFile>) -> Result<Sample, BuildError> {
        let Context { tree, control, .. } = self.context;
        let mut sample = SampleTree::default();
        let mut seen = Vec::with_capacity(files.len());
        let mut hints = Hints::default();
        let mut read_secs = 0.0;
        for ReadFile { drawn, text, lz4, secs } in files {
            let node = match drawn.job.stream {
                TextSource::File(file) => Some(tree.node(self.plan.files[file as usize].node)),
                TextSource::Fragments => None,
            };
            let len = text.len() as u64;
            read_secs += secs;
            let id = sample.push(SampleFile { text, node });
            hints.insert(id, self.compression_of(&drawn.job));
            seen.push((id, len, drawn, lz4));
        }
        let format = format(stratum, hints, self.context.format);
        let sample = sample.finish()?;
        let (ledger, control) = (Ledger::default(), Control { stop: control.stop, progress: &|_| {} });
        let context = Context { tree: &sample, format: &format, control: &control, ledger: &ledger, previous: None };
        let (Built { plan, data, .. }, phases) = in_memory::build(false, context)?;
        let pack = phases.iter().find(|phase| phase.name == "store");
        let mut chunks = HashSet::new();
        let observe = |(id, len, drawn, lz4): &(_, u64, DrawnFile, Lz4Lens)| {
            let stored = plan.file_of(*id).map(|file| &data.stored[file as usize])?;
            let observed = Observed::of(stored, *len, drawn, &format, &mut chunks);
            let in_chunks = observed.in_chunks || self.plan.is_in_chunks(drawn.job.stream);
            Some(Observed { lz4: lz4.share(observed.text as usize), in_chunks, ..observed })
        };
        Ok(Sample {
            text: seen.iter().map(|(_, len, ..)| len).sum(),
            observed: seen.iter().filter_map(observe).collect(),
            lz4_samples: Vec::new(),
            secs: read_secs + pack.map_or(0.0, |pack| pack.cpu.as_secs_f64()),
        })
    }

    /// Returns the compression of a job's text, if it has one.
    fn compression_of(&self, job: &PackJob) -> Option<Spec> {
        let compresses = matches!(job.task, Task::Segment | Task::Whole { compress: true, .. });
        self.plan.compression_of(job.stream).filter(|_| compresses)
    }
}

/// Returns the format of the sample of a stratum: that of `all`, but decisions of the plan are not taken again.
fn format(stratum: &Stratum, hints: Hints, all: &Format) -> Format {
    let is_of_files = !stratum.is_in_pieces();
    let compares_chunks = is_of_files && all.layout.chunk_bits.is_some() && all.dedupe != Dedupe::Off;
    let tails = all.packing.tails && is_of_files;
    Format {
        compression: CompressionOptions { hints, trial: Trial::default(), ..all.compression.clone() },
        dedupe: if compares_chunks { Dedupe::Files } else { Dedupe::Off },
        packing: Packing { max_len: 0, ends: false, directories: false, tails, ..all.packing },
        layout: LayoutOptions {
            order: Vec::new(),
            // Padding between files is known without a sample.
            data_align: 1,
            image_align: 1,
            // Pieces end in the middle of their source.
            inline_tails: all.layout.inline_tails && is_of_files,
            ..all.layout.clone()
        },
        ..all.clone()
    }
}

/// LZ4 lengths of text, in units that it compresses at once.
#[derive(Debug, Default)]
struct Lz4Lens(Vec<usize>);

impl Lz4Lens {
    fn of(text: &[u8]) -> Self {
        Self(text.chunks(probe::UNIT_LEN).map(probe::estimated_len).collect())
    }

    /// Returns the ratio that LZ4 reaches on the first `len` bytes, rounded to whole units.
    fn share(&self, len: usize) -> f64 {
        let units = &self.0[..(len / probe::UNIT_LEN).max(1).min(self.0.len())];
        let text = len.min(units.len() * probe::UNIT_LEN).max(1);
        units.iter().sum::<usize>() as f64 / text as f64
    }
}

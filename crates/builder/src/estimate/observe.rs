//! Packing a sample, and what is seen of it.

use kiln_codec::probe;
use rustix::fs::{MemfdFlags, memfd_create};
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;

use super::frame::{Frame, PIECE_LEN, Probe};
use super::observed::{Observed, chunks};
use crate::context::Context;
use crate::context::clock::thread_cpu;
use crate::error::BuildError;
use crate::pack::append::Destination;
use crate::pack::chunks::ChunkText;
use crate::pack::fill::PartExtent;
use crate::pack::jobs::Task;
use crate::pack::worker::{PackWorker, Shape};
use crate::plan::analysis::{ANALYSIS_COST, skippable};
use crate::plan::{PackSources, Plan};
use kiln_parallel::ordered::{self, Costed};

/// Lengths and digests of chunks that may be stored already.
type Chunks = Vec<(u64, u128)>;

/// Draw a sample and pack it on all cores. By stratum.
///
/// # Errors
/// A file that cannot be read, unless such files are to be skipped; an interruption.
pub(super) fn observe(
    plan: &Plan,
    sources: &PackSources,
    frame: &Frame,
    context: Context<'_>,
) -> Result<Vec<Vec<Observed>>, BuildError> {
    let Context { options, control, .. } = context;
    let probes = frame.strata.iter().enumerate();
    let probes = probes.flat_map(|(stratum, all)| all.draw(&frame.parts).into_iter().map(move |one| (stratum, one)));
    let costed = |job: (usize, Probe)| Costed { cost: ANALYSIS_COST + len(&job.1), job };
    let worker = || {
        let mut observer = Observer::new(plan, sources, context)?;
        Ok(move |(stratum, probe): (usize, Probe)| {
            control.check()?;
            Ok::<_, BuildError>((stratum, skippable(observer.observe(probe), options)?))
        })
    };
    let (mut observed, mut stored) = (vec![Vec::new(); frame.strata.len()], HashSet::new());
    ordered::run(options.threads, options.backlog(), probes.map(costed), worker, |(stratum, seen)| {
        observed[stratum].extend(seen.ok().map(|(one, chunks): (Observed, Chunks)| {
            let again = chunks.into_iter().filter(|chunk| !stored.insert(*chunk)).map(|(len, _)| len).sum::<u64>();
            Observed { blocks: one.blocks - again, ..one }
        }));
        Ok(())
    })?;
    Ok(observed)
}

fn len(probe: &Probe) -> u64 {
    let (Probe::Whole(_, part) | Probe::Piece(part) | Probe::Lz4Sample(part)) = probe;
    part.range.end - part.range.start
}

/// Packs samples; one for each thread.
struct Observer<'a> {
    plan: &'a Plan,
    whole: PackWorker<'a>,
    pieces: PackWorker<'a>,
}

impl<'a> Observer<'a> {
    fn new(plan: &'a Plan, sources: &'a PackSources, context: Context<'a>) -> Result<Self, BuildError> {
        let whole = PackWorker::new(plan, sources, &sources.fragments, context);
        let pieces = PackWorker::new(plan, sources, &sources.fragments, context).with_sample_limit(PIECE_LEN);
        Ok(Self { plan, whole, pieces })
    }

    fn observe(&mut self, probe: Probe) -> Result<(Observed, Chunks), BuildError> {
        let start = thread_cpu();
        let secs = || (thread_cpu() - start).as_secs_f64();
        match probe {
            Probe::Whole(idx, part) => {
                let packed = self.whole.pack(&part)?;
                let text = part.range.end - part.range.start;
                let in_chunks = Destination::of(self.plan, part.stream, &packed.shape) == Destination::Chunks;
                let is_file = matches!(part.task, Task::Whole { .. });
                let observed = Observed::of(text, &packed, secs());
                let digest = |(len, text)| match text {
                    ChunkText::Text(digest) => Some((len, digest?)),
                    ChunkText::Zeros => None,
                };
                let chunks = chunks(&packed).filter_map(digest).collect();
                Ok((Observed { part: Some(idx), in_chunks, is_file, ..observed }, chunks))
            }
            Probe::Piece(part) => {
                let packed = self.pieces.pack(&part)?;
                let secs = secs();
                let Shape::Extents { list, .. } = &packed.shape else {
                    return Err(BuildError::Internal("a piece is flat".to_owned()));
                };
                let text = list.iter().map(|extent: &PartExtent| u64::from(extent.llen)).sum::<u64>();
                let lz4 = lz4_share(&self.pieces.text()[..text as usize]);
                Ok((Observed { lz4, ..Observed::of(text, &packed, secs) }, Chunks::new()))
            }
            Probe::Lz4Sample(part) => {
                self.pieces.read(&part)?;
                Ok((Observed { lz4: lz4_share(self.pieces.text()), ..Observed::default() }, Chunks::new()))
            }
        }
    }
}

/// What LZ4 leaves of `text`, in pieces that it sees at once.
fn lz4_share(text: &[u8]) -> f64 {
    let left: usize = text.chunks(probe::UNIT_LEN).map(probe::estimated_len).sum();
    left as f64 / text.len().max(1) as f64
}

/// CPU time that the system needs to take a byte into the page cache: what a build pays for writing.
///
/// # Errors
/// A system without files in memory.
pub(super) fn write_secs_per_byte() -> Result<f64, BuildError> {
    const LEN: usize = 1 << 20;
    const COUNT: u64 = 16;
    let failed = |source| BuildError::Write { action: "write to memory", source };
    let file = memfd_create("kiln-estimate", MemfdFlags::CLOEXEC).map_err(|errno| failed(errno.into()))?;
    let (file, bytes) = (File::from(file), vec![1; LEN]);
    let start = thread_cpu();
    for n in 0..COUNT {
        file.write_all_at(&bytes, n * LEN as u64).map_err(failed)?;
    }
    Ok((thread_cpu() - start).as_secs_f64() / (COUNT * LEN as u64) as f64)
}

//! Analysis of contents for the plan, on all cores. Each file is read once.

use kiln_codec::{Method, probe};
use kiln_format::BlockBits;
use xxhash_rust::xxh3::xxh3_128;

use crate::context::Context;
use crate::error::BuildError;
use crate::format::Format;
use crate::plan::dedupe::chunker::{ChunkHash, ChunkSizes, Chunker, WINDOW_LEN};
use crate::plan::dedupe::matching::Chunk;
use crate::plan::fragments::Head;
use crate::plan::hole::Holes;
use crate::plan::{dedupe, hole};
use kiln_parallel::ordered::{self, Costed};
use kiln_tree::{Content, ContentError, NodeId, Version};

/// Cost of an analysis beside the bytes that it reads, so that tiny files are bounded too.
pub(crate) const ANALYSIS_COST: u64 = 4096;
/// Samples of a large file, and the length of each.
const SAMPLES: u64 = 8;
const SAMPLE_LEN: usize = 64 << 10;

/// Facts about a file before it is stored.
#[derive(Default)]
pub(crate) struct Analysis {
    /// Digest of its data and of its places.
    pub digest: Option<u128>,
    /// Its holes.
    pub holes: Holes,
    /// Entropy of samples all over the file in bits per byte, if none of them compresses.
    pub entropy: Option<f64>,
    /// First bytes of a file that may go into the packed stream.
    pub head: Option<Head>,
    /// Its chunks, of a file that fits one window.
    pub chunks: Option<Box<[Chunk]>>,
    /// A change since the scan, which forbids sharing.
    pub changed: Option<BuildError>,
}

/// Facts to be found out.
#[derive(Clone, Copy)]
pub(crate) struct AnalysisRequest {
    /// Index of the file in the plan.
    pub file: u32,
    /// Its node.
    pub node: NodeId,
    /// Its size in bytes.
    pub len: u64,
    /// Its digest.
    pub digest: bool,
    /// Its holes.
    pub holes: bool,
    /// Compressibility of samples.
    pub samples: bool,
    /// Its first bytes.
    pub head: bool,
    /// Its chunks.
    pub chunks: bool,
    /// It must not share anything.
    pub is_apart: bool,
}

impl AnalysisRequest {
    /// Returns whether anything is to be found out.
    pub(crate) fn is_any(&self) -> bool {
        self.digest || self.holes || self.samples || self.head || self.chunks
    }

    /// Returns the request for a file that shares nothing.
    pub(crate) fn apart(self) -> Self {
        Self { digest: false, head: false, chunks: false, is_apart: true, ..self }
    }

    /// Returns whether the file is read as a whole, in one piece.
    fn is_whole(&self) -> bool {
        !self.holes && self.len <= WINDOW_LEN && (self.digest || self.chunks)
    }
}

/// Analyses files, and passes the results to `take` in order; errors only if such files may be skipped.
///
/// # Errors
/// The first file that cannot be read, unless such files are to be skipped.
pub(crate) fn analyze(
    wanted: impl Iterator<Item = AnalysisRequest> + Send,
    context: Context<'_>,
    mut take: impl FnMut(AnalysisRequest, Result<Analysis, BuildError>),
) -> Result<(), BuildError> {
    let Context { tree, format, control, .. } = context;
    let read = |wanted: &AnalysisRequest| if wanted.is_whole() { wanted.len } else { 0 };
    let jobs = wanted.map(|job| Costed { cost: ANALYSIS_COST + read(&job), job });
    let (block_bits, method) = (format.block_bits, format.compression.spec.map(|spec| spec.method));
    let worker = || {
        let mut surveyor = Surveyor { block_bits, method, chunker: Chunker::new(ChunkSizes::DEFAULT), buf: Vec::new() };
        Ok(move |wanted: AnalysisRequest| {
            control.check()?;
            let mut look = |content: Result<Box<dyn Content>, BuildError>, wanted: AnalysisRequest| {
                let looked = surveyor.look(&mut *content?, wanted);
                looked.map_err(|source| BuildError::Read { path: tree.path(wanted.node), source })
            };
            let analysis = match look(tree.open(wanted.node).map_err(Into::into), wanted) {
                // A digest of the former contents is to be stored.
                Err(change) if change.is_change() && format.metadata.has_digests && !wanted.is_apart => {
                    return Err(change);
                }
                Err(change) if format.work.keep_going && change.is_change() => {
                    let analysis =
                        look(tree.open_version(wanted.node, Version::Changed).map_err(Into::into), wanted.apart());
                    analysis.map(|analysis| Analysis { changed: Some(change), ..analysis })
                }
                analysis => analysis,
            };
            Ok::<_, BuildError>((wanted, skippable(analysis, format)?))
        })
    };
    ordered::run(format.work.threads, format.work.backlog(), jobs, worker, |(wanted, analysis)| {
        take(wanted, analysis);
        Ok(())
    })
}

/// Turns an input's error into a value if inputs may be skipped.
pub(crate) fn skippable<T>(
    outcome: Result<T, BuildError>,
    format: &Format,
) -> Result<Result<T, BuildError>, BuildError> {
    match outcome {
        Err(error) if !(format.work.keep_going && error.is_input()) => Err(error),
        outcome => Ok(outcome),
    }
}

/// Examines files; one for each thread.
struct Surveyor {
    block_bits: BlockBits,
    /// Method of the packed stream, if there is one.
    method: Option<Method>,
    chunker: Chunker,
    buf: Vec<u8>,
}

impl Surveyor {
    fn look(&mut self, content: &mut dyn Content, wanted: AnalysisRequest) -> Result<Analysis, ContentError> {
        let analysis = match wanted.is_whole() {
            true => self.look_at_all(content, wanted)?,
            false => self.look_at_some(content, wanted)?,
        };
        content.verify_unchanged()?;
        Ok(analysis)
    }

    fn look_at_all(&mut self, content: &mut dyn Content, wanted: AnalysisRequest) -> Result<Analysis, ContentError> {
        self.buf.resize(wanted.len as usize, 0);
        content.read_exact_at(&mut self.buf, 0)?;
        let sample = |at: u64| &self.buf[at as usize..][..SAMPLE_LEN];
        let start = &self.buf[..probe::START_LEN.min(self.buf.len())];
        Ok(Analysis {
            digest: wanted.digest.then(|| xxh3_128(&self.buf)),
            holes: Holes::default(),
            entropy: wanted.samples.then(|| mean(sample_places(wanted.len).map(|at| random(sample(at))))).flatten(),
            head: wanted.head.then(|| head(start, self.method)).flatten(),
            chunks: wanted.chunks.then(|| chunks_of(&mut self.chunker, &self.buf)),
            changed: None,
        })
    }

    fn look_at_some(&mut self, content: &mut dyn Content, wanted: AnalysisRequest) -> Result<Analysis, ContentError> {
        let mut analysis = Analysis::default();
        if wanted.holes {
            analysis.holes = hole::find(content, wanted.len, self.block_bits)?;
        }
        if wanted.digest {
            analysis.digest = Some(dedupe::digest(content, wanted.len, &analysis.holes, &mut self.buf)?);
        }
        if wanted.samples && analysis.holes.is_empty() {
            self.buf.resize(SAMPLE_LEN, 0);
            let mut entropies = [None; SAMPLES as usize];
            for (at, entropy) in sample_places(wanted.len).zip(&mut entropies) {
                content.read_exact_at(&mut self.buf, at)?;
                *entropy = random(&self.buf);
                if entropy.is_none() {
                    break;
                }
            }
            analysis.entropy = mean(entropies.into_iter());
        }
        if wanted.head {
            self.buf.resize(probe::START_LEN.min(wanted.len as usize), 0);
            content.read_exact_at(&mut self.buf, 0)?;
            analysis.head = head(&self.buf, self.method);
        }
        Ok(analysis)
    }
}

/// Returns the places of samples in a large file.
fn sample_places(len: u64) -> impl Iterator<Item = u64> {
    let step = (len - SAMPLE_LEN as u64) / (SAMPLES - 1);
    (0..SAMPLES).map(move |sample| sample * step)
}

/// Returns the entropy of a sample that does not compress.
fn random(sample: &[u8]) -> Option<f64> {
    probe::is_incompressible(sample).then(|| probe::entropy(sample))
}

/// Returns the mean of the entropies, if all samples have one.
fn mean(entropies: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    entropies.sum::<Option<f64>>().map(|sum| sum / SAMPLES as f64)
}

/// Returns the first bytes of a file that begins with `start`, if it looks compressible by `method`.
fn head(start: &[u8], method: Option<Method>) -> Option<Head> {
    if probe::start_is_incompressible(start, method?) {
        return None;
    }
    let mut head = Head::default();
    let known = head.len().min(start.len());
    head[..known].copy_from_slice(&start[..known]);
    Some(head)
}

/// Returns the chunks of a window.
pub(crate) fn chunks_of(chunker: &mut Chunker, window: &[u8]) -> Box<[Chunk]> {
    let mut chunks = Vec::with_capacity(window.len() / ChunkSizes::DEFAULT.avg + 1);
    chunker.chunk(window, |range| {
        let bytes = &window[range];
        chunks.push(Chunk { hash: ChunkHash::of(bytes), len: bytes.len() as u32 });
    });
    chunks.into()
}

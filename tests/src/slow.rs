//! Contents that are slow to read, by pseudo-random delays.

use crate::rng::Rng;
use kiln_tree::{Content, ContentError, ContentId, Contents, Stored, StoredDigest, Stores, Tree, Version};
use std::ops::Range;
use std::thread;
use std::time::Duration;

/// Contents of which each read takes up to a certain time longer.
pub struct Slow {
    inner: Box<dyn Contents>,
    seed: u64,
    longest: Duration,
    step: usize,
}

impl Slow {
    /// Creates contents whose reads are delayed by less than `longest`. A read of more than `step`
    /// bytes becomes several reads, each with a delay.
    pub fn new(inner: Box<dyn Contents>, seed: u64, longest: Duration, step: usize) -> Self {
        Self { inner, seed, longest, step }
    }

    /// Returns the tree with such contents.
    pub fn tree(tree: Tree, seed: u64, longest: Duration, step: usize) -> Tree {
        tree.with_contents(|inner| Box::new(Self::new(inner, seed, longest, step)))
    }
}

impl Contents for Slow {
    fn open(&self, id: ContentId, path: &[u8], version: Version) -> Result<Box<dyn Content>, ContentError> {
        let inner = self.inner.open(id, path, version)?;
        let seed = self.seed ^ u64::from(id.0) << 40;
        Ok(Box::new(SlowContent { inner, seed, longest: self.longest, step: self.step }))
    }

    fn stored(&self, id: ContentId, len: u64) -> Result<Stored, ContentError> {
        self.inner.stored(id, len)
    }

    fn stored_digest(&self, id: ContentId) -> Result<Option<StoredDigest>, ContentError> {
        self.inner.stored_digest(id)
    }

    fn stores(&self) -> Stores {
        self.inner.stores()
    }
}

struct SlowContent {
    inner: Box<dyn Content>,
    seed: u64,
    longest: Duration,
    step: usize,
}

impl Content for SlowContent {
    fn read_exact_at(&mut self, buf: &mut [u8], off: u64) -> Result<(), ContentError> {
        for (part, off) in buf.chunks_mut(self.step).zip((off..).step_by(self.step)) {
            let micros = self.longest.as_micros() as u64;
            thread::sleep(Duration::from_micros(Rng::new(self.seed ^ off).below(micros)));
            self.inner.read_exact_at(part, off)?;
        }
        Ok(())
    }

    fn next_data(&mut self, off: u64) -> Result<Option<Range<u64>>, ContentError> {
        self.inner.next_data(off)
    }

    fn verify_unchanged(&mut self) -> Result<(), ContentError> {
        self.inner.verify_unchanged()
    }
}

//! Contents that stay open between reads.

use kiln_tree::Content;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// Most contents that stay open. A FUSE server has as many readers of different files as it has threads, and readers
/// come back soon.
const COUNT_MAX: usize = 128;
/// Most bytes of decoded contents that stay open.
const BYTES_MAX: u64 = 64 << 20;
/// Contents up to this length may be decoded in memory; longer ones are in a file or decoded in parts.
const IN_MEMORY_MAX_LEN: u64 = 1 << 20;

/// Open contents by the index of their file, the last used ones last. A thread takes contents while it reads them; two
/// threads that read one file have it open twice.
#[derive(Default)]
pub(crate) struct OpenContents(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    list: VecDeque<(usize, u64, Box<dyn Content>)>,
    bytes: u64,
}

impl OpenContents {
    /// Takes contents out, if they are open.
    pub(crate) fn take(&self, file: usize) -> Option<Box<dyn Content>> {
        let mut kept = self.0.lock();
        let at = kept.list.iter().rposition(|(one, ..)| *one == file)?;
        let (_, cost, content) = kept.list.remove(at)?;
        kept.bytes -= cost;
        Some(content)
    }

    /// Keeps contents of `len` bytes open, and closes those that were not used for the longest time.
    pub(crate) fn keep(&self, file: usize, len: u64, content: Box<dyn Content>) {
        let mut closed = Vec::new();
        let mut kept = self.0.lock();
        let cost = len.min(IN_MEMORY_MAX_LEN);
        kept.bytes += cost;
        kept.list.push_back((file, cost, content));
        while kept.list.len() > COUNT_MAX || kept.bytes > BYTES_MAX {
            let Some((_, cost, content)) = kept.list.pop_front() else { break };
            kept.bytes -= cost;
            closed.push(content);
        }
        // Closing may take time.
        drop(kept);
    }
}

//! Decoding all extents, and verifying all objects, in parallel.

use super::problems::Problems;
use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::map::extent::{Extent, ExtentKind};
use kiln_format::Nid;
use kiln_parallel::channel::{Receiver, Sender, bounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Decoded bytes of a batch, about: enough to hide the cost of the queue, few enough to spread
/// large files over threads.
const BATCH_LEN: u64 = 4 << 20;
/// Batches waiting for each thread.
const QUEUED: usize = 4;

/// Encoded extents of one file.
struct Batch {
    path: Arc<[u8]>,
    nid: Nid,
    extents: Vec<Extent>,
}

/// Queue of encoded extents that are to be decoded, and of objects that are to be verified.
pub(super) struct DecodeQueue {
    sender: Sender<Batch>,
}

/// Collects the extents of one file.
pub(super) struct FileQueue<'q> {
    queue: &'q DecodeQueue,
    batch: Batch,
    len: u64,
}

impl DecodeQueue {
    pub(super) fn file(&self, path: &[u8], nid: Nid) -> FileQueue<'_> {
        FileQueue { queue: self, batch: Batch { path: path.into(), nid, extents: Vec::new() }, len: 0 }
    }
}

impl FileQueue<'_> {
    pub(super) fn push(&mut self, extent: Extent) {
        self.len += extent.llen;
        self.batch.extents.push(extent);
        if self.len >= BATCH_LEN {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.len = 0;
        let extents = std::mem::take(&mut self.batch.extents);
        if !extents.is_empty() {
            let batch = Batch { path: self.batch.path.clone(), nid: self.batch.nid, extents };
            // Without receivers, the decoders have failed, and `with_decoders` returns their error.
            let _ = self.queue.sender.send(batch);
        }
    }
}

impl Drop for FileQueue<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Runs `produce` while `threads` threads decode what it queues, and wait for them.
pub(super) fn with_decoders<T>(
    reader: Reader<'_>,
    problems: &Problems,
    threads: usize,
    produce: impl FnOnce(&DecodeQueue) -> Result<T, ReadError>,
) -> Result<T, ReadError> {
    let (sender, receiver) = bounded(threads * QUEUED);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let decode = || {
            let (receiver, stop) = (receiver.clone(), &stop);
            let decode = move || decode_all(reader, problems, &receiver, stop);
            std::thread::Builder::new().spawn_scoped(scope, decode)
        };
        // If the system refuses a thread, those that run do the work.
        let mut decoders = vec![decode().map_err(ReadError::thread)?];
        decoders.extend((1..threads).map_while(|_| decode().ok()));
        // Only the decoders hold the receiver: once all of them have stopped, `send` fails instead
        // of waiting.
        drop(receiver);
        let queue = DecodeQueue { sender };
        let produced = produce(&queue);
        if produced.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        drop(queue);
        let panicked = |_| Err(ReadError::Internal { what: "a decoder panicked".into() });
        let decoded: Result<(), ReadError> = decoders.into_iter().try_for_each(|d| d.join().unwrap_or_else(panicked));
        produced.and_then(|value| decoded.map(|()| value))
    })
}

fn decode_all(
    reader: Reader<'_>,
    problems: &Problems,
    receiver: &Receiver<Batch>,
    stop: &AtomicBool,
) -> Result<(), ReadError> {
    while !stop.load(Ordering::Relaxed)
        && let Some(batch) = receiver.recv()
    {
        for extent in &batch.extents {
            let result = match extent.kind {
                ExtentKind::Object => reader.verify_object(batch.nid),
                _ => reader.verify_encoded(extent).map_err(|error| error.at_nid(batch.nid)),
            };
            problems.take(&batch.path, result).inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
        }
    }
    Ok(())
}

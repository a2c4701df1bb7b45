//! Compression of a stream in pieces on several threads.

use super::stream_compression::StreamCompression;
use crate::SinkError;
use kiln_parallel::Threads;
use kiln_parallel::channel::{self, Sender};
use kiln_parallel::ordered::{self, Costed};
use std::io::{self, ErrorKind, Write};
use std::panic::resume_unwind;
use std::thread;

/// Compression of a stream.
#[derive(Clone, Copy)]
pub(super) struct Compressor {
    pub(super) compression: StreamCompression,
    pub(super) level: u32,
    pub(super) threads: Threads,
}

impl Compressor {
    /// Writes the output of `produce` to `out`, compressed.
    pub(super) fn run<T: Send>(
        &self,
        out: &mut dyn Write,
        produce: impl FnOnce(&mut dyn Write) -> Result<T, SinkError> + Send,
    ) -> Result<T, SinkError> {
        let Self { compression, level, threads } = *self;
        let (sender, receiver) = channel::bounded(1);
        let piece_len = compression.piece_len();
        thread::scope(|scope| {
            let work = move || {
                let mut pieces = Pieces { piece: Vec::new(), piece_len, sender };
                let produced = produce(&mut pieces)?;
                pieces.send().map_err(SinkError::Write)?;
                Ok(produced)
            };
            let producer = thread::Builder::new().spawn_scoped(scope, work);
            let producer = producer.map_err(|error| SinkError::Start("a thread", error))?;
            let jobs = receiver.map(|piece: Vec<u8>| Costed { cost: piece.len() as u64, job: piece });
            let compress = || {
                let failed = |error| SinkError::Start("the compressor", error);
                Ok(move |piece: Vec<u8>| compression.compress(level, &piece).map_err(failed))
            };
            let budget = (threads.count() as u64).saturating_mul(piece_len as u64);
            let written = ordered::run(threads, budget, jobs, compress, |bytes: Vec<u8>| {
                out.write_all(&bytes).map_err(SinkError::Write)
            });
            let produced = producer.join().unwrap_or_else(|panic| resume_unwind(panic));
            // If writing has failed, the producer only reports that its channel is closed.
            written?;
            out.flush().map_err(SinkError::Write)?;
            produced
        })
    }
}

/// A writer that splits a stream into pieces.
struct Pieces {
    piece: Vec<u8>,
    piece_len: usize,
    sender: Sender<Vec<u8>>,
}

impl Pieces {
    fn send(&mut self) -> io::Result<()> {
        let piece = std::mem::take(&mut self.piece);
        if piece.is_empty() {
            return Ok(());
        }
        self.sender.send(piece).map_err(|_| ErrorKind::BrokenPipe.into())
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.piece.capacity() == 0 {
            self.piece.reserve_exact(self.piece_len);
        }
        let len = bytes.len().min(self.piece_len - self.piece.len());
        self.piece.extend_from_slice(&bytes[..len]);
        if self.piece.len() == self.piece_len {
            self.send()?;
        }
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

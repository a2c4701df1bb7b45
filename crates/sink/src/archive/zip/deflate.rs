//! Deflate compression of many files on several threads.

use crate::SinkError;
use flate2::{Compress, Compression, Crc, FlushCompress, Status};
use kiln_parallel::Threads;
use kiln_parallel::ordered::{self, Costed};
use std::io::{self, ErrorKind};

/// Size in bytes of the chunks of a file that are deflated independently: many times the 32 KiB
/// window of the method.
const CHUNK_LEN: usize = 1 << 20;
/// Minimum size in bytes of a thread's job; small files are combined.
const JOB_LEN: usize = 256 << 10;

/// A range of a file to be deflated.
pub(super) struct DeflatePiece<'a> {
    pub(super) bytes: &'a [u8],
    /// True if the file ends with this piece.
    pub(super) is_last: bool,
}

/// A deflated piece.
#[derive(Default)]
pub(super) struct Deflated {
    pub(super) bytes: Vec<u8>,
    /// CRC-32 of the uncompressed bytes.
    pub(super) crc: Crc,
}

/// A part of a piece that is deflated independently.
struct Chunk<'a> {
    piece: usize,
    bytes: &'a [u8],
    /// End of the chunk: the end of the stream, or an empty block that ends at a byte boundary.
    end: FlushCompress,
}

/// Deflates all pieces. The result does not depend on the number of threads.
pub(super) fn deflate_all(
    pieces: &[DeflatePiece<'_>],
    level: u32,
    threads: Threads,
) -> Result<Vec<Deflated>, SinkError> {
    let mut all: Vec<Deflated> = pieces.iter().map(|_| Deflated::default()).collect();
    let worker = || {
        let mut compress = Compress::new(Compression::new(level), false);
        Ok(move |chunks: Vec<Chunk<'_>>| {
            chunks.iter().map(|chunk| deflate(&mut compress, chunk).map(|out| (chunk.piece, out))).collect()
        })
    };
    let jobs = jobs(pieces).into_iter().map(|job| Costed { job, cost: 1 });
    ordered::run(threads, u64::MAX, jobs, worker, |done: Vec<(usize, Deflated)>| {
        for (piece, Deflated { bytes, crc }) in done {
            let joined = &mut all[piece];
            match joined.bytes.is_empty() {
                true => joined.bytes = bytes,
                false => joined.bytes.extend(bytes),
            }
            joined.crc.combine(&crc);
        }
        Ok(())
    })?;
    Ok(all)
}

/// Splits all pieces into chunks, and groups these into jobs.
fn jobs<'a>(pieces: &[DeflatePiece<'a>]) -> Vec<Vec<Chunk<'a>>> {
    let (mut jobs, mut job, mut len) = (Vec::new(), Vec::new(), 0);
    for (piece, DeflatePiece { bytes, is_last }) in pieces.iter().enumerate() {
        let count = bytes.len().div_ceil(CHUNK_LEN);
        for (nth, bytes) in bytes.chunks(CHUNK_LEN).enumerate() {
            let is_end = *is_last && nth + 1 == count;
            job.push(Chunk { piece, bytes, end: if is_end { FlushCompress::Finish } else { FlushCompress::Sync } });
            len += bytes.len();
            if len >= JOB_LEN {
                jobs.push(std::mem::take(&mut job));
                len = 0;
            }
        }
    }
    jobs.push(job);
    jobs
}

fn deflate(compress: &mut Compress, chunk: &Chunk<'_>) -> Result<Deflated, SinkError> {
    let failed = |kind: ErrorKind| SinkError::Start("the compressor", io::Error::from(kind));
    compress.reset();
    let mut crc = Crc::new();
    crc.update(chunk.bytes);
    let mut bytes = Vec::with_capacity(chunk.bytes.len() / 2 + 64);
    loop {
        let rest = &chunk.bytes[compress.total_in() as usize..];
        let status = compress.compress_vec(rest, &mut bytes, chunk.end);
        let is_fed = compress.total_in() as usize == chunk.bytes.len();
        match (status.map_err(|_| failed(ErrorKind::InvalidInput))?, chunk.end) {
            (Status::StreamEnd, _) => break,
            // Unused capacity means that the compressor holds nothing back.
            (_, FlushCompress::Sync) if is_fed && bytes.len() < bytes.capacity() => break,
            _ => bytes.reserve(bytes.capacity().max(64)),
        }
    }
    Ok(Deflated { bytes, crc })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::DeflateDecoder;
    use std::io::Read;

    #[test]
    fn chunks_are_one_stream() {
        let mut seed = 7_u64;
        let mut random = |len: usize| -> Vec<u8> {
            let mut next = || {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (seed >> 60) as u8
            };
            (0..len).map(|_| next()).collect()
        };
        let files = [random(0), random(1), random(3 * CHUNK_LEN + 5), random(CHUNK_LEN), vec![0; 2 * CHUNK_LEN]];
        let pieces: Vec<DeflatePiece<'_>> = files.iter().map(|bytes| DeflatePiece { bytes, is_last: true }).collect();
        let one = deflate_all(&pieces, 6, Threads::ONE).unwrap();
        let many = deflate_all(&pieces, 6, Threads::at_least_one(3)).unwrap();
        for ((file, one), many) in files.iter().zip(&one).zip(&many) {
            assert!(one.bytes == many.bytes && one.crc.sum() == many.crc.sum());
            let mut crc = Crc::new();
            crc.update(file);
            assert_eq!(one.crc.sum(), crc.sum());
            let mut plain = Vec::new();
            DeflateDecoder::new(&one.bytes[..]).read_to_end(&mut plain).unwrap_or_default();
            assert!(plain == *file, "{} bytes", file.len());
        }
    }

    #[test]
    fn parts_of_a_file_are_one_stream() {
        let text = b"parts of a file ".repeat(200_000);
        let (front, back) = text.split_at(1_234_567);
        let pieces = [DeflatePiece { bytes: front, is_last: false }, DeflatePiece { bytes: back, is_last: true }];
        let parts = deflate_all(&pieces, 1, Threads::ONE).unwrap();
        let stream: Vec<u8> = parts.into_iter().flat_map(|part| part.bytes).collect();
        let mut plain = Vec::new();
        DeflateDecoder::new(&stream[..]).read_to_end(&mut plain).unwrap();
        assert!(plain == text);
    }
}

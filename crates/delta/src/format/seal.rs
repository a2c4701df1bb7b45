//! Patches with valid checksums around arbitrary contents, for tests that damage the contents.

use std::io;
use zstd::stream::raw::{Decoder, Encoder, InBuffer, Operation, OutBuffer};

use crate::format::body::{FRAME_LENS_LEN, check};
use crate::format::front::PatchFront;

/// Returns a patch of version 1 with this header and one block of these streams: control, differences, literals.
///
/// # Errors
/// A failure of the compressor.
pub fn seal(header: &[u8], streams: [&[u8]; 3]) -> io::Result<Vec<u8>> {
    let header = zstd::bulk::compress(header, 1)?;
    let mut patch = Vec::new();
    PatchFront::of(1, &header).encode(&mut patch);
    patch.extend(header);
    let (mut lens, mut pieces) = (Vec::new(), Vec::new());
    for stream in streams {
        let mut encoder = Encoder::new(1)?;
        let mut buf = vec![0; zstd::zstd_safe::compress_bound(stream.len()) + 64];
        let mut output = OutBuffer::around(&mut buf[..]);
        let mut input = InBuffer::around(stream);
        while input.pos() < stream.len() {
            encoder.run(&mut input, &mut output)?;
        }
        while encoder.flush(&mut output)? > 0 {}
        lens.extend((output.pos() as u32).to_le_bytes());
        pieces.extend_from_slice(output.as_slice());
    }
    for (lens, pieces) in [(&lens[..], &pieces[..]), (&[0; FRAME_LENS_LEN], &[])] {
        patch.extend(lens);
        patch.extend(check(lens, pieces));
        patch.extend(pieces);
    }
    Ok(patch)
}

/// Returns the header and the streams of a valid patch.
pub fn unseal(patch: &[u8]) -> Option<(Vec<u8>, [Vec<u8>; 3])> {
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0usize, |n, byte| n << 8 | usize::from(*byte));
    let mut rest = patch;
    let header = PatchFront::read(&mut rest).and_then(|front| front.read_header(&mut rest)).ok()?;
    let header = zstd::bulk::decompress(&header, 64 << 20).ok()?;
    let mut streams: [Vec<u8>; 3] = Default::default();
    let mut decoders = [Decoder::new().ok()?, Decoder::new().ok()?, Decoder::new().ok()?];
    loop {
        let (lens, pieces) = rest.split_at_checked(FRAME_LENS_LEN + 8)?;
        let lens: Vec<usize> = lens[..FRAME_LENS_LEN].chunks(4).map(number).collect();
        if lens.iter().all(|len| *len == 0) {
            return Some((header, streams));
        }
        rest = pieces;
        for ((len, stream), decoder) in lens.into_iter().zip(&mut streams).zip(&mut decoders) {
            let (piece, behind) = rest.split_at_checked(len)?;
            rest = behind;
            let (mut input, mut buf) = (InBuffer::around(piece), vec![0; 64 << 10]);
            loop {
                let mut output = OutBuffer::around(&mut buf[..]);
                decoder.run(&mut input, &mut output).ok()?;
                if output.pos() == 0 && input.pos() == len {
                    break;
                }
                stream.extend_from_slice(output.as_slice());
            }
        }
    }
}

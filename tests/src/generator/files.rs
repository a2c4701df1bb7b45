//! Regular files: sizes around every boundary, every texture, duplicates.

use super::{Maker, Scale, create, file, subdir};
use crate::data::Texture;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Sizes around those that determine how a file is stored: inline tails, blocks.
const SMALL: [usize; 19] =
    [0, 1, 2, 11, 12, 13, 31, 100, 4031, 4032, 4033, 4063, 4064, 4065, 4095, 4096, 4097, 8191, 8193];

/// Makes files of many sizes and textures.
pub fn make(maker: &mut Maker, dir: &OwnedFd, scale: Scale) -> io::Result<()> {
    for texture in Texture::ALL {
        let dir = subdir(dir.as_fd(), format!("{texture:?}").as_bytes())?;
        let boundaries = if scale == Scale::Small { &[64 * KIB][..] } else { &[64 * KIB, 128 * KIB] };
        let around = boundaries.iter().flat_map(|len| [len - 1, *len, len + 1]);
        for len in SMALL.into_iter().chain([8192, 12_289, 20_000, 200_001]).chain(around) {
            let bytes = texture.bytes(maker.rng.word(), len);
            file(dir.as_fd(), len.to_string().as_bytes(), &bytes)?;
        }
    }
    let large = subdir(dir.as_fd(), b"large")?;
    let wanted: &[&[_]] = match scale {
        Scale::Full => &[&LARGE, &REPEATS, &SLOW],
        Scale::Reduced => &[&LARGE, &REPEATS],
        Scale::Small => &[&LARGE],
    };
    for (texture, len) in wanted.iter().copied().flatten() {
        let bytes = texture.bytes(maker.rng.word(), *len);
        file(large.as_fd(), format!("{texture:?}-{len}").as_bytes(), &bytes)?;
    }
    noise_behind_text(maker, &large)
}

/// Files around the length of the longest pcluster, and one of several segments.
const LARGE: [(Texture, usize); 4] =
    [(Texture::Text, MIB - 1), (Texture::Mixed, MIB), (Texture::Binary, MIB + 1), (Texture::Zeros, 4 * MIB + 1)];

/// A file of several segments, each of few extents.
const REPEATS: [(Texture, usize); 1] = [(Texture::Repeats, 9 * MIB + 77)];

/// Files around the lengths of segments.
const SLOW: [(Texture, usize); 6] = [
    (Texture::Text, 4 * MIB - 1),
    (Texture::Binary, 4 * MIB),
    (Texture::Mixed, 4 * MIB + 1),
    (Texture::Noise, 8 * MIB + 1),
    (Texture::Repeats, 8 * MIB - 1),
    (Texture::Mixed, 17 * MIB - 5),
];

/// Makes a file that starts compressible and ends incompressible, and the reverse, so that extents
/// of both kinds meet.
fn noise_behind_text(maker: &mut Maker, dir: &OwnedFd) -> io::Result<()> {
    for (name, textures) in
        [("text-noise", [Texture::Text, Texture::Noise]), ("noise-text", [Texture::Noise, Texture::Text])]
    {
        let out = create(dir.as_fd(), name.as_bytes())?;
        let mut off = 0;
        for texture in textures {
            let bytes = texture.bytes(maker.rng.word(), 150_001);
            out.write_all_at(&bytes, off)?;
            off += bytes.len() as u64;
        }
    }
    Ok(())
}

/// Makes equal files in several places, and files of equal size that differ.
pub fn duplicates(maker: &mut Maker, dir: &OwnedFd, scale: Scale) -> io::Result<()> {
    let [left, right] = [&b"left"[..], b"right"].map(|name| subdir(dir.as_fd(), name));
    let (left, right) = (left?, right?);
    let large = if scale == Scale::Full { 5 * MIB + 1 } else { 200_007 };
    for (idx, len) in [1, 5, 4096, 4097, 70_000, large].into_iter().enumerate() {
        let bytes = Texture::ALL[1 + idx % 5].bytes(maker.rng.word(), len);
        for (dir, names) in [(&left, &["a", "b"][..]), (&right, &["c"])] {
            for name in names {
                file(dir.as_fd(), format!("{name}-{len}").as_bytes(), &bytes)?;
            }
        }
        // Equal except for one byte: the last, the first, one in the middle.
        for at in [len - 1, 0, len / 2] {
            let mut other = bytes.clone();
            other[at] ^= 0x80;
            let name = format!("other-{len}-{at}");
            file(right.as_fd(), name.as_bytes(), &other).or_else(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => Ok(()),
                _ => Err(error),
            })?;
        }
    }
    Ok(())
}

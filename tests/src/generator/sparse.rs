//! Files with holes.

use super::{Maker, create};
use crate::data::Texture;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Makes holes of all lengths that matter, at the start, in the middle, at the end.
pub fn make(maker: &mut Maker, dir: &OwnedFd) -> io::Result<()> {
    let mut one = |name: &str, len: u64, data: &[(u64, u64)]| {
        let out = create(dir.as_fd(), name.as_bytes())?;
        out.set_len(len)?;
        for &(off, count) in data {
            let texture = *maker.rng.pick(&[Texture::Text, Texture::Noise, Texture::Binary]);
            out.write_all_at(&texture.bytes(maker.rng.word(), count as usize), off)?;
        }
        Ok::<_, io::Error>(())
    };
    for (name, hole) in
        [("4K", 4 * KIB), ("64K", 64 * KIB), ("65K", 65 * KIB), ("1M", MIB), ("20M", 20 * MIB), ("odd", 300_001)]
    {
        let data = 40 * KIB;
        one(&format!("start-{name}"), hole + data, &[(hole, data)])?;
        one(&format!("middle-{name}"), 2 * data + hole, &[(0, data), (data + hole, data)])?;
        one(&format!("end-{name}"), data + hole, &[(0, data)])?;
        one(&format!("all-{name}"), hole, &[])?;
        // Enough data that compression pays.
        let data = (hole / 2).max(100 * KIB) + 100;
        if hole <= MIB {
            one(&format!("much-{name}"), 2 * data + hole + 1, &[(0, data), (data + hole, data)])?;
        }
    }
    for n in [4095, 4097, 65_537] {
        one(&format!("all-{n}"), n, &[])?;
    }
    let islands: Vec<_> = (0..9).map(|n| (n * 200 * KIB + 7, 1)).collect();
    one("islands-of-a-byte", 2 * MIB + 3, &islands)?;
    let comb: Vec<_> = (0..12).map(|n| (n * 160 * KIB, 70 * KIB)).collect();
    one("comb", 12 * 160 * KIB - 5, &comb)?;
    one("last-byte", 3 * MIB, &[(3 * MIB - 1, 1)])?;
    for name in ["twin-a", "twin-b"] {
        let out = create(dir.as_fd(), name.as_bytes())?;
        out.set_len(600 * KIB)?;
        out.write_all_at(&Texture::Text.bytes(11, 300 * KIB as usize), 200 * KIB)?;
    }
    // Equal bytes, different holes.
    let bytes = [vec![0; 200 * KIB as usize], Texture::Text.bytes(11, 300 * KIB as usize)].concat();
    let out = create(dir.as_fd(), b"twin-without-first-hole")?;
    out.write_all_at(&bytes, 0)?;
    out.set_len(600 * KIB)?;
    let out = create(dir.as_fd(), b"huge")?;
    out.set_len(5 * GIB)?;
    for (off, count) in [(0, 1), (MIB + 5, 100_000), (3 * GIB - 2, 4), (4 * GIB - 70_000, 140_000), (5 * GIB - 1, 1)] {
        out.write_all_at(&Texture::Text.bytes(off, count), off)?;
    }
    Ok(())
}

//! A small tree whose shape follows from the seed.

use super::{Maker, create, open_dir, set_mtime, subdir, symlink};
use crate::data::Texture;
use rustix::fs::{AtFlags, FileType, Gid, Mode, Uid, chmodat, chownat, linkat};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Sizes at which the storage of a file changes: inline tails, blocks, segments, chunks.
const EDGES: [u64; 10] = [0, 1, 4032, 4064, 4096, 8192, 65_536, 131_072, 262_144, 1 << 20];
/// Maximum number of names in one directory; the directories of a tree share [`ENTRIES_MAX`].
const NAMES_MAX: u64 = 24;
/// Maximum number of names in a tree.
const ENTRIES_MAX: usize = 120;
/// Maximum number of bytes of data in a tree, which keeps the slowest encoders below a second.
const DATA_MAX: u64 = 3 << 20;
const DEPTH_MAX: u32 = 5;

/// Makes the tree of `seed` in the empty directory `root`: at most 120 names and 3 MiB of data.
/// Returns descriptions of what the machine does not allow.
///
/// # Errors
/// Errors of the system, except those due to missing privileges or features of the filesystem.
pub fn make_random(root: &Path, seed: u64) -> io::Result<BTreeSet<String>> {
    let mut maker = Maker::new(seed);
    let root = open_dir(root)?;
    let mut tree = RandomTree { entries: 0, data: 0, linkable: Vec::new() };
    tree.fill(&mut maker, &root, 0)?;
    tree.metadata(&mut maker, &root, b".")?;
    Ok(maker.left_out)
}

/// State of a tree so far.
struct RandomTree {
    entries: usize,
    data: u64,
    /// Directories and names of files that may get a second name.
    linkable: Vec<(OwnedFd, Vec<u8>)>,
}

impl RandomTree {
    fn fill(&mut self, maker: &mut Maker, dir: &OwnedFd, depth: u32) -> io::Result<()> {
        for _ in 0..maker.rng.below(NAMES_MAX) {
            if self.entries == ENTRIES_MAX {
                break;
            }
            self.entries += 1;
            let name = name(maker, self.entries);
            self.entry(maker, dir, &name, depth)?;
        }
        Ok(())
    }

    fn entry(&mut self, maker: &mut Maker, dir: &OwnedFd, name: &[u8], depth: u32) -> io::Result<()> {
        let at = dir.as_fd();
        match maker.rng.below(20) {
            0..4 if depth < DEPTH_MAX => {
                let below = subdir(at, name)?;
                self.fill(maker, &below, depth + 1)?;
                return self.metadata(maker, dir, name);
            }
            0..13 => self.file(maker, dir, name)?,
            13..16 => {
                let len = *maker.rng.pick(&[1, 20, 59, 60, 1000, 4000]);
                symlink(at, name, &vec![b'a' + (self.entries % 26) as u8; len])?;
            }
            16..18 if !self.linkable.is_empty() => {
                let (from, first) = &self.linkable[maker.rng.below(self.linkable.len() as u64) as usize];
                return Ok(linkat(from, first, dir, name, AtFlags::empty())?);
            }
            other => {
                let types = [FileType::CharacterDevice, FileType::BlockDevice, FileType::Fifo, FileType::Socket];
                let numbers = (maker.rng.below(4096) as u32, maker.rng.below(1 << 20) as u32);
                if !maker.node(at, name, types[other as usize % types.len()], numbers)? {
                    return Ok(());
                }
            }
        }
        if maker.rng.below(3) == 0 {
            self.linkable.push((dir.try_clone()?, name.to_vec()));
        }
        self.metadata(maker, dir, name)
    }

    /// Makes a file of up to three pieces of data with holes between them. Textures have few seeds,
    /// so that contents recur.
    fn file(&mut self, maker: &mut Maker, dir: &OwnedFd, name: &[u8]) -> io::Result<()> {
        let out = create(dir.as_fd(), name)?;
        let mut len = 0;
        for _ in 0..maker.rng.below(4) {
            if maker.rng.below(4) == 0 {
                len += *maker.rng.pick(&[1, 4096, 65_536, 70_001, 300_000]);
            }
            let data_len = self.data_len(maker);
            let (texture, seed) = (*maker.rng.pick(&Texture::ALL), maker.rng.below(3));
            out.write_all_at(&texture.bytes(seed, data_len as usize), len)?;
            len += data_len;
        }
        if maker.rng.below(6) == 0 {
            len += *maker.rng.pick(&[1, 4097, 200_000]);
        }
        out.set_len(len)
    }

    /// Returns the length of a piece of data: near an edge, or any.
    fn data_len(&mut self, maker: &mut Maker) -> u64 {
        let near = (*maker.rng.pick(&EDGES) + maker.rng.below(5)).saturating_sub(2);
        let end = *maker.rng.pick(&[100, 10_000, 400_000]);
        let any = maker.rng.below(end);
        let len = if maker.rng.below(2) == 0 { near } else { any }.min(DATA_MAX - self.data);
        self.data += len;
        len
    }

    fn metadata(&mut self, maker: &mut Maker, dir: &OwnedFd, name: &[u8]) -> io::Result<()> {
        let at = dir.as_fd();
        if maker.rng.below(3) == 0 {
            let ids = [0, 1, 1000, 65_535, 65_536, u32::MAX - 1];
            let (uid, gid) = (Uid::from_raw(*maker.rng.pick(&ids)), Gid::from_raw(*maker.rng.pick(&ids)));
            let changed = chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW);
            maker.allowed("owners", changed)?;
        }
        let is_symlink = rustix::fs::readlinkat(dir, name, Vec::new()).is_ok();
        if maker.rng.below(3) == 0 && !is_symlink {
            // The owner keeps access, so that a caller without privileges can read the tree.
            let mode = maker.rng.below(0o10000) as u32 | 0o500;
            chmodat(dir, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
        }
        if maker.rng.below(3) == 0 {
            // `user.` attributes are for files and directories only.
            let class = if is_symlink { "trusted" } else { *maker.rng.pick(&["trusted", "security"]) };
            for _ in 0..=maker.rng.below(4) {
                let attr = format!("{class}.{}", maker.rng.pick(&["a", "bb", "shared", "a-long-name-of-an-attribute"]));
                let value = vec![maker.rng.below(3) as u8; *maker.rng.pick(&[0, 1, 30, 500, 2000])];
                maker.xattr(at, name, attr.as_bytes(), &value)?;
            }
        }
        let secs = *maker.rng.pick(&[1_700_000_000, 1_700_000_000, 0, -1, 1 << 32, 1_600_000_000]);
        set_mtime(at, name, secs, *maker.rng.pick(&[0, 0, 1, 999_999_999]))
    }
}

/// Returns a unique name, which contains `number`.
fn name(maker: &mut Maker, number: usize) -> Vec<u8> {
    let front = *maker.rng.pick(&[&b""[..], b".", b"..", b"!", b"-", b"\xFF\xFE", b"a b\n"]);
    let len = *maker.rng.pick(&[0, 0, 3, 40, 240]);
    [front, format!("{number}").as_bytes(), &vec![b'n'; len]].concat()
}

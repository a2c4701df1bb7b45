//! Random edits of a tree, as people and programs change files between two images of them.
//!
//! Everything follows from a seed. A file whose contents change gets a time that no file had
//! before, unless [`Times::Kept`] demands that only the contents differ. So a time that an image
//! stores for a path and a length identifies the contents.

mod contents;
mod meta;
mod names;
mod over;

use super::{Maker, create, make_random, open_dir, set_mtime, subdir};
use crate::data::Texture;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, StatxFlags, openat, statx};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// First of the times that edits set.
const EDIT_TIME: i64 = 1_650_000_000;
/// Maximum number of edits of a tree at a time.
const EDITS_MAX: u64 = 24;
/// Number of names in a tree from which on nothing is added.
const ENTRIES_MAX: usize = 900;
/// Number of bytes of files from which on nothing is added.
const DATA_MAX: u64 = 14 << 20;
/// Length in bytes of a path from which on nothing is moved below it: far below the limit of system
/// calls.
const PATH_MAX: usize = 2000;

/// Time of a file whose contents were changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// A new time.
    New,
    /// The previous time. Often the length stays the same, too.
    Kept,
}

/// A file of a tree.
#[derive(Clone, Debug)]
struct Entry {
    /// Path relative to the root.
    path: Vec<u8>,
    file_type: FileType,
    /// Size in bytes of a regular file.
    len: u64,
}

/// Generator and editor of trees.
pub struct Editor {
    maker: Maker,
    seed: u64,
    /// Number of times given so far.
    times: i64,
    /// Number of names given so far.
    names: u32,
}

impl Editor {
    /// Creates an editor; all that it does follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { maker: Maker::new(seed ^ 0xED17), seed, times: 0, names: 0 }
    }

    /// Returns descriptions of what the machine does not allow.
    pub fn left_out(&self) -> &BTreeSet<String> {
        &self.maker.left_out
    }

    /// Makes a tree in the empty directory `root`: a [random](make_random) one with longer files,
    /// sometimes with a directory of many entries, and with deep ones.
    ///
    /// # Errors
    /// Errors of the system, except those due to missing privileges or features of the filesystem.
    pub fn make(&mut self, root: &Path) -> io::Result<()> {
        let began = now();
        self.maker.left_out.extend(make_random(root, self.seed)?);
        let root = open_dir(root)?;
        for at in 0..1 + self.maker.rng.below(3) {
            self.long_file(root.as_fd(), format!("long-{at}").as_bytes())?;
        }
        if self.maker.rng.below(5) == 0 {
            let many = subdir(root.as_fd(), b"many")?;
            for at in 0..150 + self.maker.rng.below(400) {
                let bytes = vec![b'm'; if at % 3 == 0 { at as usize } else { 0 }];
                super::file(many.as_fd(), format!("{:x}-{at}", self.maker.rng.below(1 << 32)).as_bytes(), &bytes)?;
            }
        }
        if self.maker.rng.below(3) == 0 {
            let mut dir = subdir(root.as_fd(), b"deep")?;
            for level in 0..14 {
                super::file(dir.as_fd(), b"here", format!("level {level}").as_bytes())?;
                dir = subdir(dir.as_fd(), format!("{level:030}").as_bytes())?;
            }
        }
        self.settle(&root, began)
    }

    /// Edits the tree at `root`: contents, metadata, names.
    ///
    /// # Errors
    /// Those of [`Editor::make`].
    pub fn edit(&mut self, root: &Path, times: Times) -> io::Result<()> {
        let began = now();
        let root = open_dir(root)?;
        for _ in 0..=self.maker.rng.below(EDITS_MAX) {
            let entries = list(&root)?;
            match self.maker.rng.below(20) {
                0..10 => self.change_contents(&root, &entries, times)?,
                10..13 => self.change_meta(&root, &entries)?,
                _ => self.change_names(&root, &entries)?,
            }
        }
        self.settle(&root, began)
    }

    /// Returns a path of the tree at `root`, of a regular file if `wanted` says so; `None` if there
    /// is none.
    ///
    /// # Errors
    /// Those of [`Editor::make`].
    pub fn choose(&mut self, root: &Path, wanted: WantedType) -> io::Result<Option<Vec<u8>>> {
        let entries = list(&open_dir(root)?)?;
        let is_wanted = |entry: &&Entry| wanted == WantedType::Anything || entry.file_type == FileType::RegularFile;
        let paths: Vec<_> = entries.iter().filter(is_wanted).map(|entry| &entry.path).collect();
        Ok(if paths.is_empty() { None } else { Some((*self.maker.rng.pick(&paths)).clone()) })
    }

    /// Makes a file of at least 256 KiB with several textures, so that only some of it compresses.
    fn long_file(&mut self, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
        let rng = &mut self.maker.rng;
        let len = *rng.pick(&[262_144, 300_000, 700_000, 1_500_000]) + rng.below(5000) as usize;
        let mut file = create(dir, name)?;
        let mut left = len;
        while left > 0 {
            let part = left.min(1 + rng.below(200_000) as usize);
            let texture = *rng.pick(&[Texture::Text, Texture::Text, Texture::Binary, Texture::Noise, Texture::Zeros]);
            file.write_all(&texture.bytes(rng.word(), part))?;
            left -= part;
        }
        Ok(())
    }

    /// Returns a time that no file had before.
    fn new_time(&mut self) -> (i64, u32) {
        self.times += 1;
        (EDIT_TIME + self.times, *self.maker.rng.pick(&[0, 1, 500_000_000, 999_999_999]))
    }

    /// Returns a name that no file had before.
    fn new_name(&mut self) -> Vec<u8> {
        self.names += 1;
        let front = *self.maker.rng.pick(&[&b"e"[..], b"e", b".e", b"E\xFE", b"e b\t"]);
        let len = *self.maker.rng.pick(&[0, 0, 5, 60, 230]);
        [front, format!("{}", self.names).as_bytes(), &vec![b'e'; len]].concat()
    }

    /// Returns a new path, in any directory of the tree that is not below `beside`.
    fn new_path(&mut self, entries: &[Entry], beside: &[u8]) -> Vec<u8> {
        let is_place = |entry: &&Entry| {
            entry.file_type == FileType::Directory && entry.path.len() < PATH_MAX && !is_within(&entry.path, beside)
        };
        let dirs: Vec<&[u8]> = entries.iter().filter(is_place).map(|entry| &entry.path[..]).chain([&b""[..]]).collect();
        let dir = *self.maker.rng.pick(&dirs);
        joined(dir, &self.new_name())
    }

    /// Replaces times of creation by times that follow from the seed.
    fn settle(&mut self, root: &OwnedFd, began: i64) -> io::Result<()> {
        let mut paths: Vec<Vec<u8>> = list(root)?.into_iter().map(|entry| entry.path).collect();
        paths.push(b".".to_vec());
        for path in paths {
            let stat = statx(root, &path[..], AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)?;
            if (began - 1..began + 86_400).contains(&stat.stx_mtime.tv_sec) {
                let (secs, nsec) = self.new_time();
                set_mtime(root.as_fd(), &path, secs, nsec)?;
            }
        }
        Ok(())
    }
}

/// Type of file for [`Editor::choose`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedType {
    /// A file of any type.
    Anything,
    /// A regular file.
    File,
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

fn joined(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

/// Returns true if `path` is `dir` or lies below it. Nothing lies below the empty path.
fn is_within(path: &[u8], dir: &[u8]) -> bool {
    !dir.is_empty() && path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Returns everything below `root`, directories before their contents, names in byte order.
fn list(root: &OwnedFd) -> io::Result<Vec<Entry>> {
    let mut found = Vec::new();
    below(root, b"", &mut found)?;
    Ok(found)
}

fn below(dir: &OwnedFd, at: &[u8], found: &mut Vec<Entry>) -> io::Result<()> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    for entry in Dir::read_from(dir)? {
        names.push(entry?.file_name().to_bytes().to_vec());
    }
    names.sort_unstable();
    for name in names.iter().filter(|name| !matches!(&name[..], b"." | b"..")) {
        let stat = statx(dir, &name[..], AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)?;
        let file_type = FileType::from_raw_mode(stat.stx_mode.into());
        let path = joined(at, name);
        found.push(Entry { path: path.clone(), file_type, len: stat.stx_size });
        if file_type == FileType::Directory {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            below(&openat(dir, &name[..], flags, Mode::empty())?, &path, found)?;
        }
    }
    Ok(())
}

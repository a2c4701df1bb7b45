//! Edits of names: added and removed ones, moved files and directories, links, and changed types.

use super::{DATA_MAX, ENTRIES_MAX, Editor, Entry, is_within};
use crate::data::Texture;
use crate::generator::{create, set_mtime, subdir, symlink};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, linkat, openat, renameat, renameat_with, unlinkat};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

impl Editor {
    pub(super) fn change_names(&mut self, root: &OwnedFd, entries: &[Entry]) -> io::Result<()> {
        let has_room = entries.len() < ENTRIES_MAX && entries.iter().map(|entry| entry.len).sum::<u64>() < DATA_MAX;
        let path = self.new_path(entries, b"");
        let Some(any) = self.any(entries, |_| true) else { return self.new_file(root, &path) };
        match self.maker.rng.below(16) {
            0..3 if has_room => self.new_file(root, &path),
            3 if has_room => self.new_dir(root, &path),
            4 if has_room => self.new_special(root, &path),
            5 if has_room => self.copy(root, entries, &path),
            6 => self.move_over(root, entries),
            7 => self.exchange(root, entries),
            8 if any.file_type != FileType::Directory => {
                Ok(linkat(root, &any.path[..], root, &path[..], AtFlags::empty())?)
            }
            9 => self.break_link(root, entries),
            10 => self.retarget(root, entries),
            11 => self.become_something_else(root, entries),
            12 | 13 => {
                let to = self.new_path(entries, &any.path);
                Ok(renameat(root, &any.path[..], root, &to[..])?)
            }
            // Rarely half of the tree.
            14 if any.file_type == FileType::Directory && self.maker.rng.below(3) > 0 => Ok(()),
            _ => remove(root, entries, &any.path),
        }
    }

    /// Returns any of the `wanted` entries.
    fn any(&mut self, entries: &[Entry], wanted: impl Fn(&Entry) -> bool) -> Option<Entry> {
        let choices: Vec<&Entry> = entries.iter().filter(|entry| wanted(entry)).collect();
        if choices.is_empty() { None } else { Some((*self.maker.rng.pick(&choices)).clone()) }
    }

    fn any_file(&mut self, entries: &[Entry]) -> Option<Entry> {
        self.any(entries, |entry| entry.file_type == FileType::RegularFile)
    }

    /// Makes a file of any length with one texture.
    pub(super) fn new_file(&mut self, root: &OwnedFd, path: &[u8]) -> io::Result<()> {
        if self.maker.rng.below(12) == 0 {
            self.long_file(root.as_fd(), path)?;
        } else {
            let lens = [0, 1, 100, 700, 4095, 4096, 4097, 9000, 65_536, 70_001, 140_000];
            let (len, texture) = (*self.maker.rng.pick(&lens), *self.maker.rng.pick(&Texture::ALL));
            create(root.as_fd(), path)?.write_all(&texture.bytes(self.maker.rng.below(9), len))?;
        }
        let (secs, nsec) = self.new_time();
        set_mtime(root.as_fd(), path, secs, nsec)?;
        match self.maker.rng.below(4) {
            0 => self.new_meta(root, path, FileType::RegularFile),
            _ => Ok(()),
        }
    }

    fn new_dir(&mut self, root: &OwnedFd, path: &[u8]) -> io::Result<()> {
        drop(subdir(root.as_fd(), path)?);
        for _ in 0..self.maker.rng.below(5) {
            let below = super::joined(path, &self.new_name());
            self.new_file(root, &below)?;
        }
        self.new_meta(root, path, FileType::Directory)
    }

    /// Makes a symbolic link, a device, a pipe or a socket.
    pub(super) fn new_special(&mut self, root: &OwnedFd, path: &[u8]) -> io::Result<()> {
        let types = [FileType::CharacterDevice, FileType::BlockDevice, FileType::Fifo, FileType::Socket];
        match self.maker.rng.below(8) {
            at @ 0..4 => {
                // Device 0:0 is a whiteout.
                let numbers = (1 + self.maker.rng.below(4000) as u32, self.maker.rng.below(1 << 20) as u32);
                self.maker.node(root.as_fd(), path, types[at as usize], numbers).map(drop)
            }
            _ => self.new_link(root, path),
        }
    }

    fn new_link(&mut self, root: &OwnedFd, path: &[u8]) -> io::Result<()> {
        let len = *self.maker.rng.pick(&[1, 20, 60, 1000, 4000]);
        symlink(root.as_fd(), path, &vec![b'a' + self.maker.rng.below(26) as u8; len])
    }

    /// Makes a second file with the same contents.
    fn copy(&mut self, root: &OwnedFd, entries: &[Entry], path: &[u8]) -> io::Result<()> {
        let Some(file) = self.any_file(entries) else { return Ok(()) };
        create(root.as_fd(), path)?.write_all(&read(root, &file.path)?)
    }

    /// Moves a file over another one, as programs do that write files safely.
    fn move_over(&mut self, root: &OwnedFd, entries: &[Entry]) -> io::Result<()> {
        let (Some(from), Some(to)) = (self.any_file(entries), self.any_file(entries)) else { return Ok(()) };
        let (secs, nsec) = self.new_time();
        set_mtime(root.as_fd(), &from.path, secs, nsec)?;
        Ok(renameat(root, &from.path[..], root, &to.path[..])?)
    }

    /// Exchanges the names of two files.
    fn exchange(&mut self, root: &OwnedFd, entries: &[Entry]) -> io::Result<()> {
        let (Some(a), Some(b)) = (self.any(entries, |_| true), self.any(entries, |_| true)) else { return Ok(()) };
        if is_within(&a.path, &b.path) || is_within(&b.path, &a.path) {
            return Ok(());
        }
        // The contents of one directory may get the names and times of the other's.
        let moved = entries.iter().filter(|entry| is_within(&entry.path, &a.path) || is_within(&entry.path, &b.path));
        for entry in moved.filter(|entry| entry.file_type == FileType::RegularFile) {
            let (secs, nsec) = self.new_time();
            set_mtime(root.as_fd(), &entry.path, secs, nsec)?;
        }
        let exchanged = renameat_with(root, &a.path[..], root, &b.path[..], RenameFlags::EXCHANGE);
        self.maker.allowed("exchanged names", exchanged).map(drop)
    }

    /// Replaces a hard link by a copy.
    fn break_link(&mut self, root: &OwnedFd, entries: &[Entry]) -> io::Result<()> {
        let Some(file) = self.any_file(entries) else { return Ok(()) };
        let bytes = read(root, &file.path)?;
        unlinkat(root, &file.path[..], AtFlags::empty())?;
        create(root.as_fd(), &file.path)?.write_all(&bytes)
    }

    fn retarget(&mut self, root: &OwnedFd, entries: &[Entry]) -> io::Result<()> {
        let Some(link) = self.any(entries, |entry| entry.file_type == FileType::Symlink) else { return Ok(()) };
        unlinkat(root, &link.path[..], AtFlags::empty())?;
        self.new_link(root, &link.path)
    }

    /// Replaces a file by one of another type.
    fn become_something_else(&mut self, root: &OwnedFd, entries: &[Entry]) -> io::Result<()> {
        let Some(entry) = self.any(entries, |_| true) else { return Ok(()) };
        remove(root, entries, &entry.path)?;
        match entry.file_type {
            FileType::Directory => self.new_file(root, &entry.path),
            FileType::RegularFile if self.maker.rng.below(2) == 0 => self.new_special(root, &entry.path),
            _ => self.new_dir(root, &entry.path),
        }
    }
}

fn read(root: &OwnedFd, path: &[u8]) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut bytes = Vec::new();
    File::from(openat(root, path, flags, Mode::empty())?).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Removes the file at `path`, and everything below it.
pub(super) fn remove(root: &OwnedFd, entries: &[Entry], path: &[u8]) -> io::Result<()> {
    for entry in entries.iter().rev().filter(|entry| is_within(&entry.path, path)) {
        let is_dir = entry.file_type == FileType::Directory;
        unlinkat(root, &entry.path[..], if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() })?;
    }
    Ok(())
}

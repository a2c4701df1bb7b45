//! A tree to be merged into another one.

use super::{Editor, Entry, joined, list, now};
use crate::generator::{create, open_dir, set_mtime, subdir, symlink};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, linkat, openat};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

impl Editor {
    /// Makes a tree in the empty directory `over` that replaces something in the tree at `root`:
    /// common directories, files in place of files and of other types, and new names.
    ///
    /// # Errors
    /// Those of [`Editor::make`].
    pub fn make_over(&mut self, root: &Path, over: &Path) -> io::Result<()> {
        let began = now();
        let (root, over) = (open_dir(root)?, open_dir(over)?);
        let entries = list(&root)?;
        for _ in 0..=self.maker.rng.below(6) {
            let known = match &entries[..] {
                [] => None,
                _ if self.maker.rng.below(3) == 0 => None,
                entries => Some(self.maker.rng.pick(entries).clone()),
            };
            let path = known.as_ref().map_or_else(|| self.new_path(&entries, b""), |entry| entry.path.clone());
            if self.make_way(&over, &path)? {
                self.put_over(&root, &over, &path, known)?;
            }
        }
        let there = list(&over)?;
        let linkable = there.iter().find(|entry| entry.file_type != FileType::Directory);
        if let Some(entry) = linkable.filter(|_| self.maker.rng.below(2) == 0) {
            let name = self.new_name();
            linkat(&over, &entry.path[..], &over, &name[..], AtFlags::empty())?;
        }
        self.new_meta(&over, b".", FileType::Directory)?;
        self.settle(&over, began)
    }

    /// Writes to `file` another version of the file at `path` of the tree at `root`, with another
    /// time.
    ///
    /// # Errors
    /// Those of [`Editor::make`].
    pub fn another(&mut self, root: &Path, path: &[u8], file: &Path) -> io::Result<()> {
        let bytes = self.changed(&open_dir(root)?, path)?;
        std::fs::write(file, bytes)?;
        let (secs, nsec) = self.new_time();
        set_mtime(CWD, file.as_os_str().as_bytes(), secs, nsec)
    }

    /// Returns the contents of a file, changed at one place.
    fn changed(&mut self, root: &OwnedFd, path: &[u8]) -> io::Result<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut bytes = Vec::new();
        File::from(openat(root, path, flags, Mode::empty())?).read_to_end(&mut bytes)?;
        let (at, piece) = (self.maker.rng.below(bytes.len() as u64 + 1) as usize, self.piece());
        let end = bytes.len().min(at + piece.len());
        bytes.splice(at..end, piece);
        Ok(bytes)
    }

    /// Makes the directories that lead to `path`. Returns true if that succeeds and `path` does not
    /// exist yet.
    fn make_way(&mut self, over: &OwnedFd, path: &[u8]) -> io::Result<bool> {
        let there = list(over)?;
        let find = |path: &[u8]| there.iter().find(|entry| entry.path == path);
        let slashes: Vec<usize> = (0..path.len()).filter(|&at| path[at] == b'/').collect();
        for dir in slashes.into_iter().map(|at| &path[..at]) {
            match find(dir) {
                Some(entry) if entry.file_type != FileType::Directory => return Ok(false),
                Some(_) => {}
                None => {
                    drop(subdir(over.as_fd(), dir)?);
                    self.new_meta(over, dir, FileType::Directory)?;
                }
            }
        }
        Ok(find(path).is_none())
    }

    fn put_over(&mut self, root: &OwnedFd, over: &OwnedFd, path: &[u8], known: Option<Entry>) -> io::Result<()> {
        match (known, self.maker.rng.below(8)) {
            // Another version of a file.
            (Some(Entry { file_type: FileType::RegularFile, .. }), 0..5) => {
                let bytes = self.changed(root, path)?;
                create(over.as_fd(), path)?.write_all(&bytes)
            }
            (_, 5) => symlink(over.as_fd(), path, b"laid/over"),
            (_, 6) => self.new_special(over, path),
            (_, 7) => {
                drop(subdir(over.as_fd(), path)?);
                let below = joined(path, &self.new_name());
                self.new_file(over, &below)
            }
            _ => self.new_file(over, path),
        }
    }
}

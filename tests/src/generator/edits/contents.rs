//! Edits of contents: overwriting, extending, truncating, moving, punching holes.

use super::{DATA_MAX, Editor, Entry, Times};
use crate::data::Texture;
use crate::generator::set_mtime;
use rustix::fs::{FallocateFlags, FileType, Mode, OFlags, fallocate, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};

impl Editor {
    /// Changes a file; long ones are chosen as often as all others.
    pub(super) fn change_contents(&mut self, root: &OwnedFd, entries: &[Entry], times: Times) -> io::Result<()> {
        let all: Vec<&Entry> = entries.iter().filter(|entry| entry.file_type == FileType::RegularFile).collect();
        let long: Vec<&Entry> = all.iter().copied().filter(|entry| entry.len >= 256 << 10).collect();
        let choices = if long.is_empty() || self.maker.rng.below(2) == 0 { all } else { long };
        if choices.is_empty() {
            return Ok(());
        }
        let path = &self.maker.rng.pick(&choices).path;
        let has_room = entries.iter().map(|entry| entry.len).sum::<u64>() < DATA_MAX;
        let opened = openat(root, &path[..], OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        let file = match opened {
            Ok(file) => File::from(file),
            Err(error) => return self.maker.allowed("writing", Err(error)).map(drop),
        };
        let before = file.metadata()?;
        match times {
            Times::New => self.change(&file, has_room)?,
            Times::Kept if self.maker.rng.below(4) == 0 => self.change(&file, has_room)?,
            Times::Kept => self.overwrite(&file, before.len())?,
        }
        let (secs, nsec) = match times {
            Times::New => self.new_time(),
            Times::Kept => (before.mtime(), before.mtime_nsec() as u32),
        };
        set_mtime(root.as_fd(), path, secs, nsec)
    }

    fn change(&mut self, file: &File, has_room: bool) -> io::Result<()> {
        let len = file.metadata()?.len();
        let at = self.maker.rng.below(len + 1);
        match self.maker.rng.below(12) {
            0..4 => self.overwrite(file, len),
            4 if has_room => {
                let piece = self.piece();
                file.write_all_at(&piece, len)
            }
            5 if has_room => {
                let piece = self.piece();
                self.splice(file, at, 0, &piece)
            }
            6 if has_room => {
                let more = *self.maker.rng.pick(&[1, 4096, 70_001, 300_000]);
                file.set_len(len + more)
            }
            7 => {
                let gone = self.maker.rng.below((len - at).min(100_000) + 1);
                self.splice(file, at, gone, b"")
            }
            8 => self.punch(file, at, len),
            9 => {
                let keep = *self.maker.rng.pick(&[0, len / 2, len.saturating_sub(1)]);
                file.set_len(keep)
            }
            10 if has_room => {
                file.set_len(0)?;
                let piece = self.piece();
                file.write_all_at(&piece, 0)
            }
            _ => file.set_len(at),
        }
    }

    /// Overwrites some of it, at one place or at several, but not beyond its end.
    fn overwrite(&mut self, file: &File, len: u64) -> io::Result<()> {
        for _ in 0..=self.maker.rng.below(3) {
            let at = self.maker.rng.below(len + 1);
            let mut piece = self.piece();
            piece.truncate((len - at).min(piece.len() as u64) as usize);
            file.write_all_at(&piece, at)?;
        }
        Ok(())
    }

    /// Replaces `gone` bytes by `piece`, and moves the bytes after them.
    fn splice(&mut self, file: &File, at: u64, gone: u64, piece: &[u8]) -> io::Result<()> {
        let len = file.metadata()?.len();
        let mut rest = vec![0; (len - at - gone) as usize];
        file.read_exact_at(&mut rest, at + gone)?;
        file.set_len(at)?;
        file.write_all_at(piece, at)?;
        file.write_all_at(&rest, at + piece.len() as u64)
    }

    /// Punches a hole.
    fn punch(&mut self, file: &File, at: u64, len: u64) -> io::Result<()> {
        let hole = (len - at).min(*self.maker.rng.pick(&[1, 4096, 65_536, 200_000]));
        if hole == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(file, flags, at, hole) {
            Err(Errno::OPNOTSUPP) => file.write_all_at(&vec![0; hole as usize], at),
            punched => Ok(punched?),
        }
    }

    /// Returns new bytes of any texture, of one byte to 300 KB.
    pub(super) fn piece(&mut self) -> Vec<u8> {
        let rng = &mut self.maker.rng;
        let end = *rng.pick(&[1, 10, 4096, 50_000, 300_000]);
        let len = 1 + rng.below(end) as usize;
        // Few seeds, so that contents recur.
        let (texture, seed) = (*rng.pick(&Texture::ALL), rng.below(7));
        texture.bytes(seed, len)
    }
}

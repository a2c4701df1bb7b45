//! Edits of metadata: times, permissions, owners, attributes.

use super::{Editor, Entry};
use crate::generator::set_mtime;
use crate::snapshot::xattrs;
use rustix::fs::{AtFlags, FileType, Gid, Mode, Uid, chmodat, chownat, lremovexattr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

impl Editor {
    /// Changes metadata of any file, including the root.
    pub(super) fn change_meta(&mut self, root: &OwnedFd, entries: &[Entry]) -> io::Result<()> {
        let itself = Entry { path: b".".to_vec(), file_type: FileType::Directory, len: 0 };
        let entry = match entries {
            [] => itself,
            _ if self.maker.rng.below(10) == 0 => itself,
            entries => self.maker.rng.pick(entries).clone(),
        };
        self.new_meta(root, &entry.path, entry.file_type)
    }

    /// Gives a file other metadata of one kind.
    pub(super) fn new_meta(&mut self, root: &OwnedFd, path: &[u8], file_type: FileType) -> io::Result<()> {
        let rng = &mut self.maker.rng;
        match rng.below(5) {
            // The time of a directory does not depend on its contents; that of a file is not
            // compared with them.
            0 => {
                let (secs, nsec) = self.new_time();
                set_mtime(root.as_fd(), path, secs, nsec)
            }
            1 if file_type != FileType::Symlink => {
                let access = if file_type == FileType::Directory { 0o700 } else { 0o600 };
                let mode = rng.below(0o10000) as u32 | access;
                let changed = chmodat(root, path, Mode::from_raw_mode(mode), AtFlags::empty());
                self.maker.allowed("permissions", changed).map(drop)
            }
            2 => {
                let ids = [0, 1, 1000, 65_535, 65_536, 99_999, u32::MAX - 1];
                let (uid, gid) = (Uid::from_raw(*rng.pick(&ids)), Gid::from_raw(*rng.pick(&ids)));
                let changed = chownat(root, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW);
                self.maker.allowed("owners", changed).map(drop)
            }
            3 => {
                let there: Vec<Vec<u8>> = xattrs(root.as_fd(), path)?.into_keys().collect();
                if there.is_empty() {
                    return Ok(());
                }
                let attr = rng.pick(&there).clone();
                let place = [format!("/proc/self/fd/{}/", root.as_raw_fd()).as_bytes(), path].concat();
                self.maker.allowed("attributes", lremovexattr(&place, &*attr)).map(drop)
            }
            _ => {
                let is_common = matches!(file_type, FileType::RegularFile | FileType::Directory);
                let class = if is_common { *rng.pick(&["user", "trusted", "security"]) } else { "trusted" };
                let attr = format!("{class}.{}", rng.pick(&["a", "edited", "shared", "a-long-name-of-an-attribute"]));
                let value = vec![rng.below(4) as u8; *rng.pick(&[0, 1, 30, 500])];
                self.maker.xattr(root.as_fd(), path, attr.as_bytes(), &value).map(drop)
            }
        }
    }
}

//! Special files, owners, modes, times.

use super::{Maker, create, file, set_mtime, subdir};
use rustix::fs::{AtFlags, FileType, Gid, Mode, Uid, chmodat, chownat};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Makes devices with the smallest and the largest numbers, a pipe, a socket.
pub fn nodes(maker: &mut Maker, dir: &OwnedFd) -> io::Result<()> {
    for (file_type, devs) in [
        (FileType::CharacterDevice, [(0, 0), (1, 3), (4095, 1_048_575)]),
        (FileType::BlockDevice, [(7, 0), (259, 1_048_575), (8, 256)]),
    ] {
        for (major, minor) in devs {
            let name = format!("{file_type:?}-{major}-{minor}");
            maker.node(dir.as_fd(), name.as_bytes(), file_type, (major, minor))?;
        }
    }
    maker.node(dir.as_fd(), b"fifo", FileType::Fifo, (0, 0))?;
    maker.node(dir.as_fd(), b"socket", FileType::Socket, (0, 0))?;
    Ok(())
}

/// Makes files with ids around the limits of a compact inode, and with all kinds of permissions.
pub fn owners_and_modes(maker: &mut Maker, dir: &OwnedFd) -> io::Result<()> {
    let ids = [0, 1, 65534, 65535, 65536, u32::MAX - 1];
    for uid in ids {
        for gid in ids {
            let name = format!("{uid}-{gid}");
            create(dir.as_fd(), name.as_bytes())?;
            let (owner, group) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
            let changed = chownat(dir, name, owner, group, AtFlags::SYMLINK_NOFOLLOW);
            maker.allowed("owners", changed)?;
        }
    }
    let special = [0o0, 0o1000, 0o2000, 0o4000, 0o7000];
    let modes = special.into_iter().flat_map(|bits| [0o0, 0o1, 0o20, 0o400, 0o644, 0o755, 0o777].map(|m| m | bits));
    for mode in modes {
        let (name, dir_name) = (format!("mode-{mode:04o}"), format!("dir-{mode:04o}"));
        file(dir.as_fd(), name.as_bytes(), name.as_bytes())?;
        drop(subdir(dir.as_fd(), dir_name.as_bytes())?);
        chmodat(dir, &name, Mode::from_raw_mode(mode), AtFlags::empty())?;
        // Users other than root must be able to enter it.
        let mode = if rustix::process::geteuid().is_root() { mode } else { mode | 0o700 };
        chmodat(dir, &dir_name, Mode::from_raw_mode(mode), AtFlags::empty())?;
    }
    Ok(())
}

/// Makes files with times before, at and long after 1970.
pub fn times(dir: &OwnedFd) -> io::Result<()> {
    let year = |year: i64| (year - 1970) * 31_556_952;
    for secs in [-(1 << 31), -1_000_000_000, -1, 0, 1, year(2037), (1 << 31) - 1, 1 << 31, year(2107), year(2242)] {
        for nsec in [0, 1, 999_999_999] {
            let name = format!("{secs}.{nsec}");
            create(dir.as_fd(), name.as_bytes())?;
            set_mtime(dir.as_fd(), name.as_bytes(), secs, nsec)?;
        }
    }
    Ok(())
}

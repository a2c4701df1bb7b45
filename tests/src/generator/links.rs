//! Symbolic and hard links.

use super::{Maker, create, file, subdir, symlink};
use rustix::fs::{AtFlags, FileType, linkat};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Makes symbolic links of all lengths, and hard links to files, symbolic links and pipes.
pub fn make(maker: &mut Maker, dir: &OwnedFd) -> io::Result<()> {
    let at = dir.as_fd();
    symlink(at, b"dangling", b"nowhere/at/all")?;
    symlink(at, b"to-itself", b"to-itself")?;
    symlink(at, b"up", b"../files/Text/100")?;
    symlink(at, b"absolute", b"/etc")?;
    symlink(at, b"not-utf8", b"\xFF\xFE\x80/\xC0")?;
    for len in [1, 30, 59, 60, 61, 255, 1000, 3000, 4030, 4031, 4032, 4033, 4063, 4064, 4065, 4094, 4095] {
        let target: Vec<u8> = (0..len).map(|n| if n % 60 == 59 { b'/' } else { b'a' + (n % 26) as u8 }).collect();
        // Not every filesystem stores the longest ones.
        match symlink(at, format!("length-{len}").as_bytes(), &target) {
            Err(error) if error.kind() == io::ErrorKind::InvalidFilename => {
                maker.left_out.insert(format!("symbolic links of {len} bytes: {error}"));
            }
            outcome => outcome?,
        }
    }
    hard_links(maker, dir)
}

fn hard_links(maker: &mut Maker, dir: &OwnedFd) -> io::Result<()> {
    let [here, there] = [&b"hard"[..], b"also"].map(|name| subdir(dir.as_fd(), name));
    let (here, there) = (here?, there?);
    let link = |from: &[u8], to_dir: &OwnedFd, to: &[u8]| linkat(&here, from, to_dir, to, AtFlags::empty());
    file(here.as_fd(), b"two", b"names: 2")?;
    link(b"two", &here, b"second")?;
    file(here.as_fd(), b"far", &[7; 5000])?;
    link(b"far", &there, b"a-name-that-sorts-before")?;
    create(here.as_fd(), b"empty")?;
    link(b"empty", &there, b"empty")?;
    file(here.as_fd(), b"many", &[9; 100_000])?;
    for n in 0..299 {
        link(b"many", if n % 2 == 0 { &here } else { &there }, format!("many-{n}").as_bytes())?;
    }
    symlink(here.as_fd(), b"symlink", b"two")?;
    link(b"symlink", &there, b"symlink")?;
    for (name, file_type) in [(&b"pipe"[..], FileType::Fifo), (b"null", FileType::CharacterDevice)] {
        if maker.node(here.as_fd(), name, file_type, (1, 3))? {
            link(name, &there, name)?;
        }
    }
    Ok(())
}

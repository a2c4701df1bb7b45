//! Directories that fill blocks, deep ones, large ones, and names of every kind.

use super::{Maker, create, file, subdir};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Length in bytes of a record in a directory block.
const RECORD: usize = 12;
const DOTS: usize = 2 * RECORD + 3;

/// Makes directories of all shapes.
pub fn make(maker: &mut Maker, dir: &OwnedFd) -> io::Result<()> {
    let at = dir.as_fd();
    subdir(at, b"empty")?;
    create(subdir(at, b"one")?.as_fd(), b"entry")?;
    for blocks in [1, 2] {
        for surplus in [-1, 0, 1_isize] {
            let name = format!("blocks-{blocks}-{surplus:+}");
            filled(&subdir(at, name.as_bytes())?, blocks * 4096, surplus)?;
        }
    }
    // Around the room beside a compact and an extended inode.
    for len in [4031, 4032, 4033, 4063, 4064, 4065_usize] {
        filled(&subdir(at, format!("tail-{len}").as_bytes())?, len, 0)?;
    }
    let many = subdir(at, b"many")?;
    for n in 0..3000_u32 {
        let name = format!("{:x}-{n}", maker.rng.below(1 << 32));
        match n % 50 {
            0 => drop(subdir(many.as_fd(), name.as_bytes())?),
            1..10 => file(many.as_fd(), name.as_bytes(), name.as_bytes())?,
            _ => drop(create(many.as_fd(), name.as_bytes())?),
        }
    }
    deep(dir)
}

/// Makes a directory whose entries take exactly `len` bytes, with a last name that is `surplus`
/// bytes longer.
fn filled(dir: &OwnedFd, len: usize, surplus: isize) -> io::Result<()> {
    let mut used = DOTS;
    let mut serial = 0;
    loop {
        // The remaining room in the current block.
        let end = (used / 4096 + 1) * 4096;
        let room = end.min(len) - used;
        let last_of_all = end >= len;
        // Names of 100 bytes until two more would not fit; then one that ends at the boundary.
        let (name_len, closes) = if room >= 3 * (RECORD + 100) { (100, false) } else { (room - RECORD, true) };
        let (name_len, more) = match (closes, name_len > 250) {
            (true, true) => (100, true),
            _ => (name_len, false),
        };
        let done = closes && !more && last_of_all;
        let name_len = if done { name_len.checked_add_signed(surplus).expect("long names") } else { name_len };
        create(dir.as_fd(), format!("{serial:x<name_len$}", serial = format!("{serial:03}")).as_bytes())?;
        used += RECORD + name_len;
        serial += 1;
        if done {
            return Ok(());
        }
    }
}

/// Makes 60 levels of long names; the path is longer than any system call accepts.
fn deep(dir: &OwnedFd) -> io::Result<()> {
    let mut at = subdir(dir.as_fd(), b"deep")?;
    for level in 0..60 {
        file(at.as_fd(), b"here", format!("level {level}").as_bytes())?;
        at = subdir(at.as_fd(), format!("{level:0200}").as_bytes())?;
    }
    file(at.as_fd(), b"bottom", &[b'x'; 10_000])
}

/// Makes names of every length and of every byte, and names around the dot entries.
pub fn names(maker: &mut Maker, dir: &OwnedFd) -> io::Result<()> {
    let bytes = subdir(dir.as_fd(), b"bytes")?;
    for byte in (1..=255).filter(|&byte| byte != b'/') {
        create(bytes.as_fd(), &[b'x', byte])?;
        if byte != b'.' {
            file(bytes.as_fd(), &[byte], &[byte])?;
        }
    }
    let dots = subdir(dir.as_fd(), b"dots")?;
    for name in ["!", "-", "+x", ".a", "..a", "...", ". ", ".. ", ".\u{1}", "..\u{1}", "-.", "0"] {
        create(dots.as_fd(), name.as_bytes())?;
    }
    // Nothing that sorts before the dots; nothing that sorts after them.
    create(subdir(dir.as_fd(), b"all-behind")?.as_fd(), b"a")?;
    create(subdir(dir.as_fd(), b"all-before")?.as_fd(), b"!")?;
    let lengths = subdir(dir.as_fd(), b"lengths")?;
    for len in (1..=255).step_by(2) {
        let letter = b'a' + maker.rng.below(26) as u8;
        create(lengths.as_fd(), &vec![letter; len])?;
    }
    create(lengths.as_fd(), &[0xFF; 255])?;
    Ok(())
}

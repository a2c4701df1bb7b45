//! The program's own code, in a process that serves an image.
#![allow(unsafe_code)]

use std::fs;
use std::ops::Range;

/// Maps all pages of this program's code and constants, if the system supports that (Linux 5.14).
///
/// A page that was never used is not mapped, and leaves the page cache first. A server that needs
/// it later waits for the disk, which reads as much around the page as its readahead: on disks with
/// a readahead of some MiB, that was most of the bytes that a mount read besides the image. The
/// system may still take the pages when memory is short.
pub fn load_program() {
    let maps = fs::read("/proc/self/maps").unwrap_or_default();
    for range in own_mappings(&String::from_utf8_lossy(&maps), load_program as fn() as usize) {
        // SAFETY: the advice changes no mapping and no contents. A range that is no longer mapped
        // causes an error, as does the advice on a system that does not know it: pages are then
        // mapped when they are used.
        unsafe { libc::madvise(range.start as *mut libc::c_void, range.end - range.start, libc::MADV_POPULATE_READ) };
    }
}

/// Returns the address ranges of `/proc/PID/maps` that are mapped without write permission from the
/// file that is mapped at `address`.
fn own_mappings(maps: &str, address: usize) -> Vec<Range<usize>> {
    let mappings: Vec<_> = maps.lines().filter_map(Mapping::parse).collect();
    let Some(own) = mappings.iter().find(|mapping| mapping.range.contains(&address)) else { return Vec::new() };
    let is_own = |mapping: &&Mapping<'_>| mapping.file == own.file && mapping.permissions.starts_with("r-");
    mappings.iter().filter(is_own).map(|mapping| mapping.range.clone()).collect()
}

/// Line of `/proc/PID/maps`, see proc_pid_maps(5).
struct Mapping<'a> {
    range: Range<usize>,
    permissions: &'a str,
    /// Device and inode number of the file.
    file: (&'a str, &'a str),
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        let (permissions, _offset) = (words.next()?, words.next()?);
        let file = (words.next()?, words.next()?);
        Some(Self { range: address(start)?..address(end)?, permissions, file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_only_mappings_of_the_program() {
        let maps = "\
            1000-3000 r--p 00000000 fe:00 12 /bin/kiln (deleted)\n\
            3000-9000 r-xp 00002000 fe:00 12 /bin/kiln (deleted)\n\
            9000-a000 rw-p 00008000 fe:00 12 /bin/kiln (deleted)\n\
            a000-b000 rw-p 00000000 00:00 0\n\
            b000-c000 r-xp 00000000 fe:00 13 /lib/libc.so.6\n\
            no mapping\n";
        assert_eq!(own_mappings(maps, 0x3000), [0x1000..0x3000, 0x3000..0x9000]);
        assert!(own_mappings(maps, 0xd000).is_empty());
    }
}

//! `dump.erofs -S`: counts, sums and distributions over all names of an image.

use super::inode::percent;
use crate::console::report::Out;
use crate::dropin::Stop;
use crate::dropin::source::Opened;
use crate::dropin::stored;
use kiln_format::inode::FileType;
use kiln_read::{Image, Inode, ReadError};
use std::io::{self, Write};

/// Suffixes that are counted; a last line counts all other files.
const SUFFIXES: [&str; 9] = [".txt", ".so", ".xml", ".apk", ".odex", ".vdex", ".oat", ".rc", ".otf"];
/// Classes of sizes: below 1 KiB, then by powers of two, up to 32 MiB and more.
const CLASSES: usize = 17;
/// Width of a bar in characters.
const BAR_LEN: usize = 50;

/// In the order of the report.
const TYPES: [(FileType, &str); 7] = [
    (FileType::Regular, "regular file"),
    (FileType::Directory, "directory"),
    (FileType::CharDevice, "char dev"),
    (FileType::BlockDevice, "block dev"),
    (FileType::Fifo, "FIFO file"),
    (FileType::Socket, "SOCK file"),
    (FileType::Symlink, "symlink file"),
];

/// Counts and sums over the names of an image, without "." and "..".
#[derive(Default)]
struct Statistics {
    /// As in [`TYPES`].
    types: [u64; TYPES.len()],
    compressed: u64,
    uncompressed: u64,
    /// Size of regular files in bytes.
    size: u64,
    /// Bytes that store them, including the packed inode.
    stored: u64,
    size_classes: [u64; CLASSES],
    /// Including the packed inode.
    stored_classes: [u64; CLASSES],
    suffixes: [u64; SUFFIXES.len() + 1],
}

pub fn print(out: &mut Out, opened: &Opened) -> Result<(), Stop> {
    let statistics = Statistics::collect(&opened.image).map_err(|error| opened.failure(error))?;
    Ok(statistics.print(out)?)
}

impl Statistics {
    fn collect(image: &Image) -> Result<Self, ReadError> {
        let mut sums = Statistics::default();
        for entry in image.walk(&image.inode(image.root_nid())?, b"/") {
            let entry = entry?;
            sums.add(image, &entry.path, &entry.inode);
        }
        if let Some(nid) = image.superblock().packed_nid {
            let packed = image.inode(nid)?;
            let stored = stored::claimed_len(image, &packed);
            sums.count_layout(&packed);
            sums.stored = sums.stored.saturating_add(stored);
            sums.stored_classes[class(stored)] += 1;
        }
        Ok(sums)
    }

    fn add(&mut self, image: &Image, path: &[u8], inode: &Inode) {
        let file_type = inode.meta.file_type;
        if let Some(idx) = TYPES.iter().position(|(known, _)| *known == file_type) {
            self.types[idx] += 1;
        }
        self.count_layout(inode);
        if file_type == FileType::Regular {
            let (size, stored) = (inode.meta.size, stored::claimed_len(image, inode));
            self.size = self.size.saturating_add(size);
            self.stored = self.stored.saturating_add(stored);
            self.size_classes[class(size)] += 1;
            self.stored_classes[class(stored)] += 1;
            self.suffixes[suffix(path)] += 1;
        }
    }

    fn count_layout(&mut self, inode: &Inode) {
        match inode.meta.layout().is_compressed() {
            true => self.compressed += 1,
            false => self.uncompressed += 1,
        }
    }

    fn print(&self, out: &mut Out) -> io::Result<()> {
        let regular = self.types[0];
        writeln!(out, "Filesystem total file count:\t\t{}", self.types.iter().sum::<u64>())?;
        writeln!(out, "Filesystem unknown type count:\t\t0")?;
        for ((_, name), count) in TYPES.iter().zip(self.types) {
            writeln!(out, "Filesystem {name} count:\t\t{count}")?;
        }
        writeln!(out, "Filesystem compressed files:            {}", self.compressed)?;
        writeln!(out, "Filesystem uncompressed files:          {}", self.uncompressed)?;
        writeln!(out, "Filesystem total original file size:    {} Bytes", self.size)?;
        writeln!(out, "Filesystem total file size:             {} Bytes", self.stored)?;
        writeln!(out, "Filesystem compress rate:               {:.2}%", percent(self.stored, self.size))?;
        writeln!(out, "\nOriginal file size distribution:")?;
        print_classes(out, &self.size_classes, regular)?;
        writeln!(out, "\nOn-disk file size distribution:")?;
        print_classes(out, &self.stored_classes, regular)?;
        writeln!(out, "\nFile type distribution:")?;
        print_head(out, "type           ")?;
        for (suffix, count) in SUFFIXES.iter().chain(&["others"]).zip(self.suffixes) {
            print_row(out, &format!("{suffix:<17}"), count, regular)?;
        }
        Ok(())
    }
}

fn print_classes(out: &mut Out, classes: &[u64; CLASSES], total: u64) -> io::Result<()> {
    print_head(out, ">=(KB) .. <(KB)")?;
    for (idx, &count) in classes.iter().enumerate() {
        let from = if idx == 0 { 0 } else { 1u64 << (idx - 1) };
        let label = match idx + 1 == CLASSES {
            true => format!("{from:>6} ..       "),
            false => format!("{from:>6} .. {:<6}", 1u64 << idx),
        };
        print_row(out, &label, count, total)?;
    }
    Ok(())
}

fn print_head(out: &mut Out, label: &str) -> io::Result<()> {
    writeln!(out, "{label}        count            ratio |{:<BAR_LEN$}|", "distribution")
}

fn print_row(out: &mut Out, label: &str, count: u64, total: u64) -> io::Result<()> {
    let bar = if total == 0 { 0 } else { (u128::from(count) * BAR_LEN as u128 / u128::from(total)) as usize };
    writeln!(out, "{label}\t{count:<10} {:>9.2}% |{:<BAR_LEN$}|", percent(count, total), "#".repeat(bar))
}

/// Returns the index of the class of a size in bytes.
fn class(size: u64) -> usize {
    let kib = size >> 10;
    ((u64::BITS - kib.leading_zeros()) as usize).min(CLASSES - 1)
}

/// Returns the index of a path's suffix.
fn suffix(path: &[u8]) -> usize {
    let ends = |suffix: &str| path.ends_with(suffix.as_bytes());
    SUFFIXES.iter().position(|suffix| ends(suffix)).unwrap_or(SUFFIXES.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_powers_of_two() {
        for (size, expected) in [(0, 0), (1023, 0), (1024, 1), (2047, 1), (2048, 2), (32 << 20, 16), (u64::MAX, 16)] {
            assert_eq!(class(size), expected, "{size}");
        }
    }
}

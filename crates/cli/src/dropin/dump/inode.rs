//! The report of `dump.erofs` about one inode.

use super::options::Options;
use crate::console::report::Out;
use crate::console::text;
use crate::dropin::Stop;
use crate::dropin::source::Opened;
use crate::dropin::stored;
use kiln_format::inode::FileType;
use kiln_read::{DirEntries, Inode, ReadError};
use std::io::Write;

/// An inode to be reported.
pub struct Shown<'a> {
    pub opened: &'a Opened,
    /// The user's name for it.
    pub name: &'a [u8],
    pub inode: Inode,
}

impl Shown<'_> {
    pub fn print(&self, out: &mut Out, options: &Options) -> Result<(), Stop> {
        self.facts(out)?;
        if options.ls {
            self.entries(out)?;
        }
        if options.extents {
            self.extents(out)?;
        }
        Ok(())
    }

    fn failed(&self, error: ReadError) -> Stop {
        self.opened.failure(error.at_path(self.name)).into()
    }

    fn facts(&self, out: &mut Out) -> Result<(), Stop> {
        let meta = &self.inode.meta;
        let stored = stored::claimed_len(&self.opened.image, &self.inode);
        write!(out, "Path : ")?;
        out.name(self.name)?;
        writeln!(out, "\nSize: {}  On-disk size: {stored}  {}", meta.size, file_type(meta.file_type))?;
        write!(out, "NID: {}   Links: {}   ", self.inode.nid, meta.nlink)?;
        writeln!(out, "Layout: {}   Compression ratio: {:.2}%", meta.layout() as u8, percent(stored, meta.size))?;
        writeln!(out, "Inode size: {}   Xattr size: {}", meta.form.len(), meta.xattr_len())?;
        let mode = text::mode(meta.file_type, meta.permissions);
        writeln!(out, "Uid: {}   Gid: {}  Access: {:04o}/{}", meta.uid, meta.gid, meta.permissions, &mode[1..])?;
        let time = text::time_nsec(meta.mtime, meta.mtime_nsec).replace('T', " ");
        Ok(writeln!(out, "Timestamp: {}", time.trim_end_matches('Z'))?)
    }

    fn entries(&self, out: &mut Out) -> Result<(), Stop> {
        let entries = DirEntries::new(&self.opened.image, &self.inode).with_dots();
        let entries: Vec<_> = entries.collect::<Result<_, _>>().map_err(|error| self.failed(error))?;
        writeln!(out, "\n       NID TYPE  FILENAME")?;
        for entry in entries {
            write!(out, "{:>10} {:>4}  ", entry.nid.to_string(), entry.file_type)?;
            out.name(&entry.name)?;
            writeln!(out)?;
        }
        Ok(())
    }

    fn extents(&self, out: &mut Out) -> Result<(), Stop> {
        writeln!(out, "\n Ext:   logical offset   |  length :     physical offset    |  length")?;
        let mut count = 0;
        for extent in stored::extents(&self.opened.image, &self.inode) {
            let extent = extent.map_err(|error| self.failed(error))?;
            let (pa, plen, device) = stored::physical(&extent);
            write!(out, "{count:>4}: {:>8}..{:>8} | {:>7} : ", extent.la, extent.end(), extent.llen)?;
            write!(out, "{pa:>10}..{:>10} | {plen:>7}", pa.saturating_add(plen))?;
            writeln!(out, "{}", if device == 0 { String::new() } else { format!("  # device {device}") })?;
            count += 1;
        }
        out.name(self.name)?;
        Ok(writeln!(out, ": {count} extents found")?)
    }
}

fn file_type(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "regular file",
        FileType::Directory => "directory",
        FileType::CharDevice => "char dev",
        FileType::BlockDevice => "block dev",
        FileType::Fifo => "FIFO file",
        FileType::Socket => "SOCK file",
        FileType::Symlink => "symlink file",
    }
}

/// Returns `part` of `whole` in percent; 0 if `whole` is 0.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

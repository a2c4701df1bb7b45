//! The device on which the files of a tree lie, one behind the other.

use crate::open_contents::OpenContents;
use crate::placement::PlacedFile;
use kiln_read::{RangeMut, ReadAt};
use kiln_tree::{Content, Contents, NodeId, Tree, Version};
use std::io;

/// Contents of the files on the device.
pub(crate) enum FileContents {
    /// Those of a tree, with one of its files for each.
    OfTree(Tree, Vec<NodeId>),
    /// Those of a source whose tree is not in memory, which opens them without paths.
    OfIndex(Box<dyn Contents>),
}

/// The device.
pub(crate) struct TreeDevice {
    contents: FileContents,
    files: Vec<PlacedFile>,
    len: u64,
    open: OpenContents,
}

impl TreeDevice {
    /// Returns the device of `len` bytes on which `files` lie.
    pub(crate) fn new(contents: FileContents, files: Vec<PlacedFile>, len: u64) -> Self {
        Self { contents, files, len, open: OpenContents::default() }
    }

    fn open_file(&self, idx: usize) -> io::Result<Box<dyn Content>> {
        match &self.contents {
            FileContents::OfTree(tree, nodes) => tree.open(nodes[idx]).map_err(io::Error::other),
            FileContents::OfIndex(contents) => {
                contents.open(self.files[idx].content, b"", Version::Scanned).map_err(io::Error::other)
            }
        }
    }

    /// Fills `buf` from byte `off` of a file on, all of which is in the file.
    fn read_file(&self, idx: usize, buf: &mut [u8], off: u64) -> io::Result<()> {
        let mut content = match self.open.take(idx) {
            Some(content) => content,
            None => self.open_file(idx)?,
        };
        content.read_exact_at(buf, off).map_err(|error| match &self.contents {
            FileContents::OfTree(tree, nodes) => {
                io::Error::other(format!("{}: {error}", String::from_utf8_lossy(&tree.path(nodes[idx]))))
            }
            FileContents::OfIndex(_) => io::Error::other(error),
        })?;
        self.open.keep(idx, self.files[idx].len, content);
        Ok(())
    }
}

impl ReadAt for TreeDevice {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn read_exact_at(&self, mut buf: &mut [u8], mut off: u64) -> io::Result<()> {
        if off.checked_add(buf.len() as u64).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while !buf.is_empty() {
            // The first file begins at 0, and each further one behind the end of another.
            let idx = self.files.partition_point(|file| file.start <= off) - 1;
            let file = self.files[idx];
            let (end, next) = (file.start + file.len, self.files.get(idx + 1).map_or(self.len, |next| next.start));
            let is_data = off < end;
            let part = (if is_data { end } else { next } - off).min(buf.len() as u64) as usize;
            let (front, rest) = buf.split_at_mut(part);
            match is_data {
                true => self.read_file(idx, front, off - file.start)?,
                false => front.fill(0),
            }
            (buf, off) = (rest, off + part as u64);
        }
        Ok(())
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        ranges.iter_mut().try_for_each(|range| self.read_exact_at(range.buf, range.off))
    }

    fn borrow(&self, _off: u64, _len: usize) -> Option<&[u8]> {
        None
    }

    fn will_need(&self, _off: u64, _len: u64) {}
}

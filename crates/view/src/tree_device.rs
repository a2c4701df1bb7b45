//! The device on which the files of a tree lie, one behind the other.

use crate::open_contents::OpenContents;
use crate::placement::{PlacedFile, Placement};
use kiln_read::{RangeMut, ReadAt};
use kiln_tree::Tree;
use std::io;

/// The device.
pub(crate) struct TreeDevice {
    tree: Tree,
    files: Vec<PlacedFile>,
    len: u64,
    open: OpenContents,
}

impl TreeDevice {
    pub(crate) fn new(tree: Tree, placement: &Placement) -> Self {
        Self { tree, files: placement.files.clone(), len: placement.len, open: OpenContents::default() }
    }

    /// Fills `buf` from byte `off` of a file on, all of which is in the file.
    fn read_file(&self, idx: usize, buf: &mut [u8], off: u64) -> io::Result<()> {
        let PlacedFile { len, node, .. } = self.files[idx];
        let mut content = match self.open.take(idx) {
            Some(content) => content,
            None => self.tree.open(node).map_err(io::Error::other)?,
        };
        content.read_exact_at(buf, off).map_err(|error| {
            io::Error::other(format!("{}: {error}", String::from_utf8_lossy(&self.tree.path(node))))
        })?;
        self.open.keep(idx, len, content);
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

//! A file of an image as an object: for code that wants a reader, and for images inside of images.

use crate::data::batch_into::FileRangeMut;
use crate::data::read::readable;
use crate::error::ReadError;
use crate::image::Image;
use crate::metadata::inode::Inode;
use crate::source::read_at::{RangeMut, ReadAt};
use kiln_parallel::Threads;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};

/// An open file of an image: [`Read`], [`Seek`], and [`ReadAt`] for positional reads by any number
/// of threads.
///
/// It holds a clone of the [`Image`], which is cheap. Clones have positions of their own. Small
/// reads are served from the caches of the image; a [`BufReader`](std::io::BufReader) around a file
/// helps only where single bytes are read.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use kiln_read::Image;
/// use std::io::{Read, Seek, SeekFrom};
///
/// # let image = Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
/// let mut file = image.open_file("/big/text")?;
/// let mut text = String::new();
/// file.read_to_string(&mut text)?;
/// assert_eq!(text.len() as u64, file.size());
/// file.seek(SeekFrom::Start(2))?;
/// let mut part = [0; 3];
/// file.read_exact(&mut part)?;
/// assert_eq!(&part, &text.as_bytes()[2..5]);
/// # Ok(())
/// # }
/// ```
///
/// A file that is an image itself opens like any other source:
///
/// ```no_run
/// use kiln_read::Image;
/// use std::sync::Arc;
///
/// let outer = Image::open_path("outer.erofs".as_ref(), &[], &Default::default())?;
/// let inner = Image::open(Arc::new(outer.open_file("/inner.erofs")?), vec![], &Default::default())?;
/// # Ok::<(), kiln_read::ReadError>(())
/// ```
#[derive(Clone, Debug)]
pub struct File {
    image: Image,
    inode: Inode,
    /// Position of [`Read`] in bytes; may be behind the end.
    pos: u64,
}

impl File {
    pub(crate) fn new(image: Image, inode: &Inode) -> Result<Self, ReadError> {
        readable(inode, 0, 0)?;
        Ok(Self { image, inode: *inode, pos: 0 })
    }

    /// Returns the length in bytes: a claim of the image, until the bytes are read.
    pub fn size(&self) -> u64 {
        self.inode.size()
    }

    /// Returns the file's inode.
    pub fn inode(&self) -> &Inode {
        &self.inode
    }

    /// Returns the image that the file is in.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Reads from byte `off` on into `buf`. Returns the number of bytes, which is less than
    /// `buf.len()` only at the end of the file. The position of [`Read`] does not matter and does
    /// not change.
    ///
    /// # Errors
    /// As [`Image::read_at`].
    pub fn read_at(&self, buf: &mut [u8], off: u64) -> Result<usize, ReadError> {
        self.image.read_at(&self.inode, buf, off)
    }

    /// Returns the number of bytes from the position to the end.
    fn left(&self) -> u64 {
        self.size().saturating_sub(self.pos)
    }

    /// Returns true if a range ends behind the file.
    fn ends_before(&self, off: u64, len: usize) -> bool {
        off.checked_add(len as u64).is_none_or(|end| end > self.size())
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.read_at(buf, self.pos)?;
        self.pos += len as u64;
        Ok(len)
    }

    /// Reads all bytes that are left. Memory grows no faster than the bytes read confirm the size,
    /// see [`Image::read_bytes`].
    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> io::Result<usize> {
        let len = usize::try_from(self.left()).unwrap_or(usize::MAX);
        if len > 0 {
            self.image.reader().append(&self.inode, self.pos, len, buf)?;
            self.pos += len as u64;
        }
        Ok(len)
    }

    fn read_to_string(&mut self, buf: &mut String) -> io::Result<usize> {
        let start = self.pos;
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes)?;
        match std::str::from_utf8(&bytes) {
            Ok(text) if buf.is_empty() => *buf = text.to_owned(),
            Ok(text) => buf.push_str(text),
            Err(error) => {
                self.pos = start;
                return Err(io::Error::new(ErrorKind::InvalidData, error));
            }
        }
        Ok(bytes.len())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let pos = match to {
            SeekFrom::Start(pos) => Some(pos),
            SeekFrom::Current(by) => self.pos.checked_add_signed(by),
            SeekFrom::End(by) => self.size().checked_add_signed(by),
        };
        let outside = || io::Error::new(ErrorKind::InvalidInput, format!("{to:?} is before byte 0 or beyond 64 bits"));
        self.pos = pos.ok_or_else(outside)?;
        Ok(self.pos)
    }
}

impl ReadAt for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.size())
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        if self.ends_before(off, buf.len()) {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.read_at(buf, off)?;
        Ok(())
    }

    /// Reads in stored order: ranges that share a pcluster have it decoded once.
    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        if ranges.iter().any(|range| self.ends_before(range.off, range.buf.len())) {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let mut reads: Vec<_> =
            ranges.iter_mut().map(|RangeMut { off, buf }| FileRangeMut { inode: self.inode, off: *off, buf }).collect();
        let results = self.image.read_many_into(&mut reads, Threads::ONE);
        results.into_iter().try_for_each(|len| len.map(drop)).map_err(io::Error::from)
    }

    /// Returns plain data of a source that is in memory itself.
    fn borrow(&self, off: u64, len: usize) -> Option<&[u8]> {
        if self.ends_before(off, len) {
            return None;
        }
        self.image.reader().borrow_contents(&self.inode, off, len).ok().flatten()
    }

    fn will_need(&self, off: u64, len: u64) {
        // A hint that cannot be followed is no error.
        let _ = self.image.reader().announce_range(&self.inode, &(off..off.saturating_add(len)));
    }
}

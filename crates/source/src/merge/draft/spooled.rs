//! Files of a draft that were added as bytes, consecutively in a spool.

use kiln_read::{RangeMut, ReadAt};
use kiln_tree::Contents;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};

use crate::input::spool::SpoolPlace;
use crate::stored::StoredFiles;

/// Length in bytes of the write buffer.
const BUFFER_LEN: usize = 1 << 20;

/// Files in the spool.
pub(super) struct SpooledFiles {
    place: SpoolPlace,
    bytes: Arc<SpooledBytes>,
    /// Bytes to be written at `written_len`.
    buffer: Vec<u8>,
    written_len: u64,
    /// Files added since the last [`SpooledFiles::take`].
    files: StoredFiles,
    count: u32,
}

/// The spool, once it has been created.
#[derive(Default)]
struct SpooledBytes(OnceLock<File>);

impl SpooledFiles {
    /// Creates an empty list, with its spool in `place`.
    pub(super) fn new(place: SpoolPlace) -> Self {
        let (bytes, buffer, files) = (Arc::default(), Vec::new(), StoredFiles::default());
        Self { place, bytes, buffer, written_len: 0, files, count: 0 }
    }

    /// Adds a file with the contents `bytes`.
    ///
    /// # Errors
    /// A limit of the spool that is exceeded; write errors.
    pub(super) fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.place.take(bytes.len() as u64)?;
        if self.buffer.len() + bytes.len() > BUFFER_LEN {
            self.write_out()?;
        }
        let start = self.written_len + self.buffer.len() as u64;
        match bytes.len() > BUFFER_LEN {
            true => self.write(bytes)?,
            false => self.buffer.extend_from_slice(bytes),
        }
        self.files.whole(start..start + bytes.len() as u64);
        self.count += 1;
        Ok(())
    }

    /// Takes the files added since the last call: their number and contents. These can be read
    /// after [`SpooledFiles::write_out`].
    pub(super) fn take(&mut self) -> (u32, Box<dyn Contents>) {
        let files = Arc::new(std::mem::take(&mut self.files));
        (std::mem::take(&mut self.count), Box::new(files.in_archive(Arc::clone(&self.bytes) as Arc<dyn ReadAt>)))
    }

    /// Writes the buffer to the spool.
    ///
    /// # Errors
    /// Write errors.
    pub(super) fn write_out(&mut self) -> io::Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        let written = if buffer.is_empty() { Ok(()) } else { self.write(&buffer) };
        // After an error the buffer is kept, since files have been added that are in it.
        self.buffer = buffer;
        written?;
        self.buffer.clear();
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let file = match self.bytes.0.get() {
            Some(file) => file,
            None => {
                let file = self.place.create()?.into_file();
                self.bytes.0.get_or_init(|| file)
            }
        };
        let written = file.write_all_at(bytes, self.written_len);
        written.map_err(|error| self.place.write_error("the added files", &error))?;
        self.written_len += bytes.len() as u64;
        Ok(())
    }
}

impl SpooledBytes {
    fn file(&self) -> io::Result<&File> {
        // Empty files alone need no spool.
        self.0.get().ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl ReadAt for SpooledBytes {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file()?.metadata()?.len())
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        self.file()?.read_exact_at(buf, off)
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        ranges.iter_mut().try_for_each(|range| self.read_exact_at(range.buf, range.off))
    }

    fn borrow(&self, _off: u64, _len: usize) -> Option<&[u8]> {
        None
    }

    fn will_need(&self, _off: u64, _len: u64) {}
}

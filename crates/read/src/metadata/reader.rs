//! Reading metadata through a cache of aligned [windows](super::window), so that opening an inode,
//! its map and its attributes costs one read of the device, and the inodes beside it cost none.

use super::space::{MetadataSpace, WindowKey};
use crate::cache::byte_cache::SharedBytes;
use crate::error::ReadError;
use crate::image::reader::{Fetch, Reader};
use crate::options::read_policy::Retention;

impl<'a> Reader<'a> {
    /// Returns the length of a metadata space in bytes.
    pub(crate) fn space_len(self, space: MetadataSpace) -> u64 {
        match space {
            MetadataSpace::Primary => self.volume.devices.primary_len(),
            MetadataSpace::Metabox => self.special.metabox.map_or(0, |inode| inode.meta.size),
        }
    }
}

/// Place that contents beside an inode are read from.
pub(crate) enum ContentsPlace {
    /// This window, from this byte of it on.
    Window(SharedBytes, usize),
    /// Several windows.
    Windows,
    /// The primary device, alone: their window is not cached.
    Primary,
}

/// Reads one metadata space. It holds the window that it read last.
pub(crate) struct MetadataReader<'a> {
    reader: Reader<'a>,
    space: MetadataSpace,
    held: Option<(u64, SharedBytes)>,
}

impl<'a> MetadataReader<'a> {
    pub(crate) fn new(reader: Reader<'a>, space: MetadataSpace) -> Self {
        Self { reader, space, held: None }
    }

    pub(crate) fn space(&self) -> MetadataSpace {
        self.space
    }

    /// Fills `buf` from byte `off` on. `record` names the bytes in errors.
    pub(crate) fn fill(&mut self, record: &'static str, buf: &mut [u8], off: u64) -> Result<(), ReadError> {
        self.check_range(record, off, buf.len() as u64)?;
        if let Some(bytes) = self.lent(off, buf.len()) {
            buf.copy_from_slice(bytes);
            return Ok(());
        }
        let (mut buf, mut off) = (buf, off);
        while !buf.is_empty() {
            let (window, start) = self.window_at(off)?;
            let part = &window[start..];
            let n = part.len().min(buf.len());
            let (head, rest) = buf.split_at_mut(n);
            head.copy_from_slice(&part[..n]);
            (buf, off) = (rest, off + n as u64);
        }
        Ok(())
    }

    /// Returns the bytes where the source has them in memory: a window would be a second copy of
    /// them. Servers keep windows all the same, as they ask what can be had without waiting, and
    /// mapped memory may wait for its file.
    fn lent(&self, off: u64, len: usize) -> Option<&'a [u8]> {
        let is_server = self.reader.volume.policy.retention == Retention::UntilConsumed;
        let is_allowed = self.space == MetadataSpace::Primary && self.reader.fetch == Fetch::Allowed;
        (is_allowed && !is_server).then(|| self.reader.volume.devices.borrow(0, off, len)).flatten()
    }

    /// Returns the next `N` bytes from `off` on.
    pub(crate) fn array<const N: usize>(&mut self, record: &'static str, off: u64) -> Result<[u8; N], ReadError> {
        let mut bytes = [0; N];
        self.fill(record, &mut bytes, off)?;
        Ok(bytes)
    }

    /// Fills `buf` with contents beside an inode, which are not cached for themselves.
    pub(crate) fn fill_contents(&mut self, record: &'static str, buf: &mut [u8], off: u64) -> Result<(), ReadError> {
        match self.find_contents(record, off, buf.len() as u64)? {
            ContentsPlace::Window(window, start) => buf.copy_from_slice(&window[start..start + buf.len()]),
            ContentsPlace::Windows => self.fill(record, buf, off)?,
            ContentsPlace::Primary => self.reader.fetch_past_windows(buf, off)?,
        }
        Ok(())
    }

    /// Finds the place of `len` bytes of contents beside an inode, from `off` on. `record` names
    /// them in errors.
    pub(crate) fn find_contents(
        &mut self,
        record: &'static str,
        off: u64,
        len: u64,
    ) -> Result<ContentsPlace, ReadError> {
        self.check_range(record, off, len)?;
        if self.lent(off, len as usize).is_some() {
            return Ok(ContentsPlace::Primary);
        }
        if !self.is_in_one_window(off, len) {
            return Ok(ContentsPlace::Windows);
        }
        let found = self.likely_contents(off, len)?;
        Ok(found.map_or(ContentsPlace::Primary, |(window, start)| ContentsPlace::Window(window, start)))
    }

    /// Returns the window with `len` bytes from `off` on, and their place in it, if they lie in
    /// one.
    pub(crate) fn within_window(&mut self, off: u64, len: u64) -> Result<Option<(SharedBytes, usize)>, ReadError> {
        if !self.is_in_one_window(off, len) {
            return Ok(None);
        }
        let (window, start) = self.window_at(off)?;
        Ok(Some((window.clone(), start)))
    }

    /// Does the same as [`MetadataReader::within_window`] for contents beside an inode. Returns
    /// `None` if their window is not cached, and they are to be read alone.
    pub(crate) fn likely_contents(&mut self, off: u64, len: u64) -> Result<Option<(SharedBytes, usize)>, ReadError> {
        if !self.is_in_one_window(off, len) {
            return Ok(None);
        }
        let (idx, start) = self.place(off);
        Ok(self.reader.likely_window(WindowKey { space: self.space, idx })?.map(|window| (window, start)))
    }

    /// Returns true if a range is in the space, not empty, and in one window.
    fn is_in_one_window(&self, off: u64, len: u64) -> bool {
        let end = off.checked_add(len).filter(|&end| end <= self.reader.space_len(self.space));
        end.is_some_and(|end| len > 0 && self.place(off).0 == self.place(end - 1).0)
    }

    /// Refuses a range that is not wholly in the space.
    pub(crate) fn check_range(&self, record: &'static str, off: u64, len: u64) -> Result<(), ReadError> {
        match off.checked_add(len) {
            Some(end) if end <= self.reader.space_len(self.space) => Ok(()),
            _ => {
                Err(ReadError::corrupt(record, off, "length", len, "not wholly in the metadata: is the image cut off?"))
            }
        }
    }

    /// Returns the window with byte `off`, which must be in the space, and the byte's place in it.
    fn window_at(&mut self, off: u64) -> Result<(&SharedBytes, usize), ReadError> {
        let (idx, start) = self.place(off);
        let held = match self.held.take() {
            Some(held) if held.0 == idx => held,
            _ => (idx, self.reader.window(WindowKey { space: self.space, idx })?),
        };
        Ok((&self.held.insert(held).1, start))
    }

    /// Returns the window of byte `off`, and the byte's place in it.
    fn place(&self, off: u64) -> (u64, usize) {
        let bits = self.reader.window_bits(self.space);
        (off >> bits, (off & ((1 << bits) - 1)) as usize)
    }
}

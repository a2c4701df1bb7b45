//! Metadata spaces: bytes of the image, or decoded contents of the metabox inode.
//!
//! Metadata is read through a cache of aligned windows, so that opening an inode, its map and its attributes costs one
//! read of the device, and the inodes beside it none.

use crate::cache::{Bytes, Text};
use crate::{Image, ReadError, Reader};

/// Where an inode's metadata lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// Bytes of the image itself.
    Primary,
    /// Decoded contents of the metabox inode.
    Metabox,
}

/// log2 of a window's length.
const WINDOW_BITS: u32 = 14;
/// Length of a window in bytes; the last one of a space may be shorter.
pub(crate) const WINDOW_LEN: u64 = 1 << WINDOW_BITS;

/// Windows that are announced at once; half of them are known already, but for the first time.
const WINDOWS_AHEAD: u64 = 32;

/// A window of a metadata space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WindowKey {
    space: Space,
    idx: u64,
}

impl Image {
    /// Length of a metadata space in bytes.
    pub(crate) fn space_len(&self, space: Space) -> u64 {
        match space {
            Space::Primary => self.core.devices.primary_len(),
            Space::Metabox => self.core.metabox.map_or(0, |inode| inode.meta.size),
        }
    }

    fn window(&self, key: WindowKey) -> Result<Bytes, ReadError> {
        self.core.memory().windows.get_or_load(&key, || {
            let start = key.idx << WINDOW_BITS;
            let len = WINDOW_LEN.min(self.space_len(key.space) - start);
            self.announce_windows(key);
            let mut bytes = vec![0; len as usize];
            match (key.space, &self.core.metabox) {
                (Space::Primary, _) => self.core.devices.read(0, &mut bytes, start)?,
                (Space::Metabox, Some(metabox)) => self.fill(metabox, &mut bytes, start)?,
                (Space::Metabox, None) => return Err(ReadError::Internal { what: "no metabox".into() }),
            }
            Ok(Text::new(bytes.into_boxed_slice()))
        })
    }

    /// Who reads on in metadata will want what is behind this window, too, if the system does not guess that itself: at every
    /// so many windows, twice as many are announced.
    fn announce_windows(&self, WindowKey { space, idx }: WindowKey) {
        if self.core.reader == Reader::Programs || space == Space::Metabox || idx % (WINDOWS_AHEAD / 2) != 0 {
            return;
        }
        let before = idx.checked_sub(1).map(|idx| WindowKey { space, idx });
        if before.is_some_and(|before| self.core.memory().windows.get(&before).is_some()) {
            self.core.devices.will_need(0, idx << WINDOW_BITS, WINDOWS_AHEAD << WINDOW_BITS);
        }
    }
}

/// Reads one metadata space, holding on to the window it read last.
pub(crate) struct MetaReader<'a> {
    image: &'a Image,
    space: Space,
    held: Option<(u64, Bytes)>,
}

impl<'a> MetaReader<'a> {
    pub fn new(image: &'a Image, space: Space) -> Self {
        Self { image, space, held: None }
    }

    pub fn space(&self) -> Space {
        self.space
    }

    /// Fill `buf` from byte `off` on. `record` is what the bytes are, for messages.
    pub fn fill(&mut self, record: &'static str, buf: &mut [u8], off: u64) -> Result<(), ReadError> {
        self.check_range(record, off, buf.len() as u64)?;
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

    /// The next `N` bytes from `off` on.
    pub fn array<const N: usize>(&mut self, record: &'static str, off: u64) -> Result<[u8; N], ReadError> {
        let mut bytes = [0; N];
        self.fill(record, &mut bytes, off)?;
        Ok(bytes)
    }

    /// `len` bytes from `off` on, where they lie in one window: without a copy.
    pub fn within_window(&mut self, off: u64, len: u64) -> Result<Option<(Bytes, usize)>, ReadError> {
        let end = off.checked_add(len).filter(|&end| end <= self.image.space_len(self.space));
        match end {
            Some(end) if len > 0 && off >> WINDOW_BITS == (end - 1) >> WINDOW_BITS => {
                let (window, start) = self.window_at(off)?;
                Ok(Some((window.clone(), start)))
            }
            _ => Ok(None),
        }
    }

    /// Refuse a range that is not wholly in the space.
    pub fn check_range(&self, record: &'static str, off: u64, len: u64) -> Result<(), ReadError> {
        match off.checked_add(len) {
            Some(end) if end <= self.image.space_len(self.space) => Ok(()),
            _ => {
                Err(ReadError::corrupt(record, off, "length", len, "not wholly in the metadata: is the image cut off?"))
            }
        }
    }

    /// The window with byte `off`, which must be in the space, and the byte's place in it.
    fn window_at(&mut self, off: u64) -> Result<(&Bytes, usize), ReadError> {
        let idx = off >> WINDOW_BITS;
        let held = match self.held.take() {
            Some(held) if held.0 == idx => held,
            _ => (idx, self.image.window(WindowKey { space: self.space, idx })?),
        };
        Ok((&self.held.insert(held).1, (off & (WINDOW_LEN - 1)) as usize))
    }
}

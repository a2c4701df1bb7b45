//! Contents without a copy, where that is possible.

use crate::cache::Bytes;
use crate::course::Course;
use crate::data::{Fragments, readable};
use crate::decode::{Encoded, Stored, sized};
use crate::map::{Extent, ExtentKind, Map};
use crate::meta::MetaReader;
use crate::{Image, Inode, ReadError, Reader, Space};
use std::ops::{Deref, Range};

/// Bytes of a file, wherever they are: in the source's own memory, in a cache, or in the reader's buffer.
#[derive(Debug)]
pub struct View<'a> {
    place: Place<'a>,
    around: Option<Around>,
}

/// The extent that bytes are taken from, and where in the file it begins.
#[derive(Debug)]
struct Around {
    la: u64,
    stored: Stored,
}

#[derive(Debug)]
enum Place<'a> {
    Borrowed(&'a [u8]),
    Shared(Bytes, Range<usize>),
}

impl Deref for View<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.place {
            Place::Borrowed(bytes) => bytes,
            Place::Shared(bytes, range) => &bytes[range.clone()],
        }
    }
}

impl<'a> View<'a> {
    fn borrowed(bytes: &'a [u8]) -> Self {
        View { place: Place::Borrowed(bytes), around: None }
    }

    fn shared(bytes: Bytes, range: Range<usize>) -> Self {
        View { place: Place::Shared(bytes, range), around: None }
    }

    /// All bytes of the extent that these come from, and where in the file they begin. Only for a [`Reader::Kernel`], if they were
    /// decoded and kept because the file is read here and there: it may take them at once, and then [`Image::release`] them.
    pub fn around(&self) -> Option<(u64, &[u8])> {
        match (&self.place, &self.around) {
            (Place::Shared(bytes, _), Some(around)) => Some((around.la, bytes)),
            _ => None,
        }
    }
}

impl Image {
    /// Contents: at most `len` bytes from byte `off` on, fewer only at the end of the file. What one extent holds is not copied
    /// if its source is in memory (a [`MappedSource`](crate::MappedSource)) and stores it plain, or if it is in the cache;
    /// all else is put into `buf`, which grows to what is needed, at most the longest extent, and can be used again.
    ///
    /// # Errors
    /// As [`Image::read_at`].
    pub fn view<'a>(
        &'a self,
        inode: &Inode,
        off: u64,
        len: usize,
        buf: &'a mut Vec<u8>,
    ) -> Result<View<'a>, ReadError> {
        let len = readable(inode, len, off)?;
        self.core.counters.read(len);
        if len == 0 {
            return Ok(View::borrowed(&[]));
        }
        self.look(inode, off, len, buf).map_err(|error| error.at_nid(inode.nid))
    }

    /// Drop the extent around a view from the cache, for somebody else has all of it now.
    pub fn release(&self, view: View<'_>) {
        if let Some(around) = view.around {
            self.core.memory().decoded.remove(&around.stored);
        }
    }

    fn look<'a>(&'a self, inode: &Inode, off: u64, len: usize, buf: &'a mut Vec<u8>) -> Result<View<'a>, ReadError> {
        let wanted = off..off + len as u64;
        let mut map = Map::open_for(self, inode, &wanted)?;
        if self.core.reader == Reader::Kernel {
            self.announce_stride(inode, &mut map, wanted)?;
        }
        let extent = map.extent_at(off)?;
        if let ExtentKind::Fragment { off: start } = extent.kind {
            let from = start.saturating_add(off - extent.la);
            let packed = self.packed_range(from, len as u64)?;
            // The packed inode has no fragments, so this ends.
            let mut map = Map::open_for(self, packed, &(from..from + len as u64))?;
            let extent = map.extent_at(from)?;
            return match matches!(extent.kind, ExtentKind::Fragment { .. }) {
                true => Err(crate::data::fragment_error(from, "a fragment inside the packed inode")),
                false => {
                    let viewed = self.look_into(&mut map, &extent, from, len, buf, Fragments::Refused);
                    viewed.map_err(|error| error.at_nid(packed.nid))
                }
            };
        }
        self.look_into(&mut map, &extent, off, len, buf, Fragments::Allowed)
    }

    /// Bytes from `off` on, which is in `extent`.
    fn look_into<'a>(
        &'a self,
        map: &mut Map<'_>,
        extent: &Extent,
        off: u64,
        len: usize,
        buf: &'a mut Vec<u8>,
        fragments: Fragments,
    ) -> Result<View<'a>, ReadError> {
        let skip = off - extent.la;
        if extent.end() >= off + len as u64 {
            match extent.kind {
                ExtentKind::Encoded { .. } => {
                    let stored = Stored::of(extent)?;
                    return Ok(match self.encoded(&stored, skip..skip + len as u64, buf, map.course)? {
                        Encoded::Buffer(bytes) => View::borrowed(bytes),
                        Encoded::Cached(bytes, range) => {
                            // What surrounds a fragment belongs to other files.
                            let is_own = fragments == Fragments::Allowed;
                            let is_for_all = self.core.reader == Reader::Kernel && map.course == Course::AtRandom;
                            let around = (is_own && is_for_all).then_some(Around { la: extent.la, stored });
                            View { place: Place::Shared(bytes, range), around }
                        }
                    });
                }
                ExtentKind::Raw { device, pa }
                | ExtentKind::Plain { device, pa, interlaced: false, inline: None, .. } => {
                    if let Some(bytes) = self.borrow_raw("data", device, pa, skip, len)? {
                        return Ok(View::borrowed(bytes));
                    }
                }
                ExtentKind::Meta { pa, in_metabox } => {
                    let space = if in_metabox { Space::Metabox } else { Space::Primary };
                    let at = pa.saturating_add(skip);
                    if let Some((window, start)) = MetaReader::new(self, space).within_window(at, len as u64)? {
                        return Ok(View::shared(window, start..start + len));
                    }
                }
                _ => {}
            }
        }
        let part = sized(buf, len);
        self.fill_by(map, part, off, fragments)?;
        Ok(View::borrowed(part))
    }
}

//! Contents without a copy, where that is possible.

use crate::cache::Bytes;
use crate::data::{Fragments, readable};
use crate::decode::{Encoded, Stored, sized};
use crate::map::{Extent, ExtentKind, Map};
use crate::meta::MetaReader;
use crate::{Image, Inode, ReadError, Reader, Space};
use std::ops::{Deref, Range};

/// Bytes of a file, wherever they are: in the source's own memory, in a cache, or in the reader's buffer.
#[derive(Debug)]
pub struct View<'a>(Place<'a>);

#[derive(Debug)]
enum Place<'a> {
    Borrowed(&'a [u8]),
    Shared(Bytes, Range<usize>),
}

impl Deref for View<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Place::Borrowed(bytes) => bytes,
            Place::Shared(bytes, range) => &bytes[range.clone()],
        }
    }
}

impl<'a> From<Encoded<'a>> for View<'a> {
    fn from(encoded: Encoded<'a>) -> Self {
        View(match encoded {
            Encoded::Cached(bytes, range) => Place::Shared(bytes, range),
            Encoded::Buffer(bytes) => Place::Borrowed(bytes),
        })
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
            return Ok(View(Place::Borrowed(&[])));
        }
        self.look(inode, off, len, buf).map_err(|error| error.at_nid(inode.nid))
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
                    return Ok(self.encoded(&Stored::of(extent)?, skip..skip + len as u64, buf, map.course)?.into());
                }
                ExtentKind::Raw { device, pa }
                | ExtentKind::Plain { device, pa, interlaced: false, inline: None, .. } => {
                    if let Some(bytes) = self.borrow_raw("data", device, pa, skip, len)? {
                        return Ok(View(Place::Borrowed(bytes)));
                    }
                }
                ExtentKind::Meta { pa, in_metabox } => {
                    let space = if in_metabox { Space::Metabox } else { Space::Primary };
                    let at = pa.saturating_add(skip);
                    if let Some((window, start)) = MetaReader::new(self, space).within_window(at, len as u64)? {
                        return Ok(View(Place::Shared(window, start..start + len)));
                    }
                }
                _ => {}
            }
        }
        let part = sized(buf, len);
        self.fill_by(map, part, off, fragments)?;
        Ok(View(Place::Borrowed(part)))
    }
}

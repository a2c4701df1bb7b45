//! Contents without a copy, where that is possible.

use super::decode::Encoded;
use super::read::{Fragments, fragment_error, readable};
use crate::cache::access_pattern::Course;
use crate::cache::byte_cache::Bytes;
use crate::cache::workspaces::sized;
use crate::error::ReadError;
use crate::image::{Fetch, Image};
use crate::map::extent::{Extent, ExtentKind};
use crate::map::inode_map::Map;
use crate::map::pcluster::Stored;
use crate::metadata::inode::Inode;
use crate::metadata::reader::MetaReader;
use crate::metadata::space::Space;
use crate::options::Reader;
use kiln_format::Nid;
use std::io::ErrorKind;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Bytes of a file, wherever they are: in the source's own memory, in a cache, or in the reader's buffer.
#[derive(Debug)]
pub struct View<'a> {
    place: Place<'a>,
    origin: Origin,
    is_hit: bool,
}

/// What is known of the extent that bytes are taken from.
#[derive(Debug)]
enum Origin {
    Any,
    /// It is in the cache, of the file's own, and begins at this byte of it.
    Own {
        la: u64,
        stored: Stored,
    },
    /// It is in the cache; it is not counted yet that these bytes are handed out.
    Uncounted {
        stored: Stored,
    },
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
        View { place: Place::Borrowed(bytes), origin: Origin::Any, is_hit: false }
    }

    fn shared(bytes: Bytes, range: Range<usize>) -> Self {
        View { place: Place::Shared(bytes, range), origin: Origin::Any, is_hit: false }
    }

    /// Whether these bytes were decoded already, because somebody wanted others of their extent.
    pub fn is_hit(&self) -> bool {
        self.is_hit
    }

    /// All bytes of the extent that these come from, and where in the file they begin. Only for a [`Reader::Kernel`], if they were
    /// decoded and kept because the file is read here and there: it may take them at once, and then [`Image::release`] them.
    pub fn around(&self) -> Option<(u64, &[u8])> {
        match (&self.place, &self.origin) {
            (Place::Shared(bytes, _), Origin::Own { la, .. }) => Some((*la, bytes)),
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

    /// All of a file of at most `len_max` bytes, if it is at hand and nothing must be fetched: its inode is kept, and its contents beside
    /// that, or as part of one extent that was decoded for other bytes. [`Image::release`] it when somebody else has it.
    ///
    /// # Errors
    /// As [`Image::inode`] and [`Image::read_at`].
    pub fn at_hand(&self, nid: Nid, len_max: u64) -> Result<Option<View<'_>>, ReadError> {
        let kept = Image { core: Arc::clone(&self.core), fetch: Fetch::Refused };
        let found = match kept.find_at_hand(nid, len_max) {
            Err(ReadError::Io { source, .. }) if source.kind() == ErrorKind::WouldBlock => None,
            found => found.map_err(|error| error.at_nid(nid))?,
        };
        if let Some(view) = &found {
            self.core.counters.read(view.len());
        }
        Ok(found)
    }

    fn find_at_hand(&self, nid: Nid, len_max: u64) -> Result<Option<View<'static>>, ReadError> {
        let inode = self.inode(nid)?;
        if inode.meta.size > len_max {
            return Ok(None);
        }
        let len = readable(&inode, usize::MAX, 0)?;
        let (mut extent, mut off) = (Map::open(self, &inode)?.extent_at(0)?, 0);
        if let ExtentKind::Fragment { off: start } = extent.kind {
            extent = Map::open(self, self.packed_range(start, len as u64)?)?.extent_at(start)?;
            off = start;
        }
        if extent.end() < off + len as u64 {
            return Ok(None);
        }
        let skip = (off - extent.la) as usize;
        match extent.kind {
            ExtentKind::Encoded { .. } => {
                let stored = Stored::of(&extent)?;
                let found = self.core.memory().decoded.get(&stored).map(|bytes| View {
                    place: Place::Shared(bytes, skip..skip + len),
                    origin: Origin::Uncounted { stored },
                    is_hit: true,
                });
                Ok(found)
            }
            ExtentKind::Meta { pa, in_metabox } => self.in_window(pa, in_metabox, len),
            _ => Ok(None),
        }
    }

    /// Keep an extent no longer than needed: somebody else has the bytes of this view now, and those [around](View::around) it.
    pub fn release(&self, view: View<'_>) {
        match (&view.origin, &view.place) {
            (Origin::Own { stored, .. }, _) => self.core.memory().decoded.remove(stored),
            (Origin::Uncounted { stored }, Place::Shared(bytes, range)) => {
                self.count_handed_out(stored, bytes, range.len())
            }
            _ => {}
        }
    }

    /// Contents beside an inode, if they are in one window that is kept.
    fn in_window(&self, pa: u64, in_metabox: bool, len: usize) -> Result<Option<View<'static>>, ReadError> {
        let space = if in_metabox { Space::Metabox } else { Space::Primary };
        let found = MetaReader::new(self, space).likely_contents(pa, len as u64)?;
        Ok(found.map(|(window, start)| View::shared(window, start..start + len)))
    }

    fn look<'a>(&'a self, inode: &Inode, off: u64, len: usize, buf: &'a mut Vec<u8>) -> Result<View<'a>, ReadError> {
        let wanted = off..off + len as u64;
        let (mut map, course) = self.map_for_read(inode, &wanted)?;
        if self.core.reader == Reader::Kernel {
            self.announce_stride(inode, &mut map, wanted)?;
        }
        let extent = map.extent_at(off)?;
        if let ExtentKind::Fragment { off: start } = extent.kind {
            let from = start.saturating_add(off - extent.la);
            let packed = self.packed_range(from, len as u64)?;
            // The packed inode has no fragments, so this ends.
            let (mut map, course) = self.map_for_read(packed, &(from..from + len as u64))?;
            let extent = map.extent_at(from)?;
            return match matches!(extent.kind, ExtentKind::Fragment { .. }) {
                true => Err(fragment_error(from, "a fragment inside the packed inode")),
                false => {
                    let viewed =
                        self.look_into((&mut map, course), &extent, from..from + len as u64, buf, Fragments::Refused);
                    viewed.map_err(|error| error.at_nid(packed.nid))
                }
            };
        }
        self.look_into((&mut map, course), &extent, off..off + len as u64, buf, Fragments::Allowed)
    }

    /// Bytes from `off` on, which is in `extent`.
    fn look_into<'a>(
        &'a self,
        (map, course): (&mut Map<'_>, Course),
        extent: &Extent,
        wanted: Range<u64>,
        buf: &'a mut Vec<u8>,
        fragments: Fragments,
    ) -> Result<View<'a>, ReadError> {
        let (off, len) = (wanted.start, (wanted.end - wanted.start) as usize);
        let skip = off - extent.la;
        if extent.end() >= wanted.end {
            match extent.kind {
                ExtentKind::Encoded { .. } => {
                    let stored = Stored::of(extent)?;
                    return Ok(match self.encoded(&stored, skip..skip + len as u64, buf, course)? {
                        Encoded::Buffer(bytes) => View::borrowed(bytes),
                        Encoded::Cached { bytes, range, is_hit } => {
                            // What surrounds a fragment belongs to other files.
                            let is_own = fragments == Fragments::Allowed;
                            let is_for_all = self.core.reader == Reader::Kernel && course == Course::AtRandom;
                            let origin =
                                if is_own && is_for_all { Origin::Own { la: extent.la, stored } } else { Origin::Any };
                            View { place: Place::Shared(bytes, range), origin, is_hit }
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
                    if let Some(view) = self.in_window(pa.saturating_add(skip), in_metabox, len)? {
                        return Ok(view);
                    }
                }
                _ => {}
            }
        }
        let part = sized(buf, len);
        self.fill_by(map, part, off, fragments, course)?;
        Ok(View::borrowed(part))
    }
}

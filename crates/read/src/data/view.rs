//! Contents without a copy, where that is possible.

use super::decode::Encoded;
use super::pieces::{FileAccess, FileRead, FragmentPolicy, fragment_error};
use super::read::readable;
use crate::cache::access_pattern::AccessPattern;
use crate::cache::byte_cache::SharedBytes;
use crate::cache::workspaces::grow_to;
use crate::error::ReadError;
use crate::image::{Fetch, Image};
use crate::map::extent::ExtentKind;
use crate::map::inode_map::Map;
use crate::map::pcluster::EncodedExtent;
use crate::metadata::inode::Inode;
use crate::metadata::reader::MetadataReader;
use crate::metadata::space::MetadataSpace;
use crate::options::read_policy::{Readahead, Retention};
use kiln_format::Nid;
use std::io::ErrorKind;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Bytes of a file, wherever they are: in the source's own memory, in a cache, or in the reader's buffer.
#[derive(Debug)]
pub struct View<'a> {
    bytes_at: ViewBytes<'a>,
    origin: Origin,
    is_hit: bool,
}

/// The extent that the bytes of a view come from, where the cache is told of their consumption.
#[derive(Debug)]
enum Origin {
    /// Not tracked.
    Any,
    /// A cached extent of the file itself, not of the packed inode, that begins at byte `la` of the file.
    Own { la: u64, encoded: EncodedExtent },
    /// A cached extent; these bytes do not count as consumed yet.
    Uncounted { encoded: EncodedExtent },
}

#[derive(Debug)]
pub(super) enum ViewBytes<'a> {
    /// In the reader's buffer, or none.
    Buffer(&'a [u8]),
    /// In the memory of a device's source, from byte `pa` of the device on.
    Source { bytes: &'a [u8], device: u16, pa: u64 },
    /// In a cache.
    Shared(SharedBytes, Range<usize>),
}

impl Deref for View<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes_at {
            ViewBytes::Buffer(bytes) | ViewBytes::Source { bytes, .. } => bytes,
            ViewBytes::Shared(bytes, range) => &bytes[range.clone()],
        }
    }
}

impl<'a> View<'a> {
    fn at(bytes_at: ViewBytes<'a>) -> Self {
        View { bytes_at, origin: Origin::Any, is_hit: false }
    }

    fn in_buffer(bytes: &'a [u8]) -> Self {
        View::at(ViewBytes::Buffer(bytes))
    }

    /// Where the bytes are.
    pub(super) fn into_place(self) -> ViewBytes<'a> {
        self.bytes_at
    }
}

/// # For servers
///
/// What a server needs whose consumer is a kernel, which has a page cache of its own.
impl View<'_> {
    /// Whether these bytes were in the cache, decoded by an earlier read of other bytes of their extent.
    pub fn is_hit(&self) -> bool {
        self.is_hit
    }

    /// The extent that contains these bytes: its first byte in the file, and all its bytes. Only if extents are kept
    /// [until they are consumed](Retention::UntilConsumed), and this one because the file is read at random. The server may push the whole extent into the kernel's page cache, and
    /// then calls [`Image::mark_consumed`].
    pub fn containing_extent(&self) -> Option<(u64, &[u8])> {
        match (&self.bytes_at, &self.origin) {
            (ViewBytes::Shared(bytes, _), Origin::Own { la, .. }) => Some((*la, bytes)),
            _ => None,
        }
    }
}

impl Image {
    /// Contents: at most `len` bytes from byte `off` on, fewer only at the end of the file. What one extent holds is not copied
    /// if its source is in memory (a [`MappedSource`](crate::MappedSource)) and stores it plain, or if it is in the cache;
    /// all else is put into `buf`, which grows to what is needed, at most the longest extent, and can be used again.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// let file = image.open_file("/big/text")?;
    /// let mut buf = Vec::new();
    /// let mut lines = 0;
    /// for off in (0..file.size()).step_by(65536) {
    ///     let view = image.view(file.inode(), off, 65536, &mut buf)?;
    ///     lines += view.iter().filter(|&&byte| byte == b'\n').count();
    /// }
    /// # assert!(lines > 0);
    /// # Ok(())
    /// # }
    /// ```
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
            return Ok(View::in_buffer(&[]));
        }
        self.view_range(inode, off, len, buf).map_err(|error| error.at_nid(inode.nid))
    }
}

/// # For servers
///
/// What a server needs whose consumer is a kernel: bytes that are there already, and a cache that learns what the kernel has got.
impl Image {
    /// All contents of a file of at most `len_max` bytes, if they are cached: its inode in a cached window of metadata, its contents
    /// beside the inode or in one cached extent. Fetches and decodes nothing. Call [`Image::mark_consumed`] when the consumer has the
    /// bytes.
    ///
    /// # Errors
    /// As [`Image::inode`] and [`Image::read_at`].
    pub fn get_if_cached(&self, nid: Nid, len_max: u64) -> Result<Option<View<'_>>, ReadError> {
        let kept = Image { core: Arc::clone(&self.core), fetch: Fetch::Refused };
        let found = match kept.find_cached(nid, len_max) {
            Err(ReadError::Io { source, .. }) if source.kind() == ErrorKind::WouldBlock => None,
            found => found.map_err(|error| error.at_nid(nid))?,
        };
        if let Some(view) = &found {
            self.core.counters.read(view.len());
        }
        Ok(found)
    }

    fn find_cached(&self, nid: Nid, len_max: u64) -> Result<Option<View<'static>>, ReadError> {
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
                let encoded = EncodedExtent::of(&extent)?;
                let found = self.core.state().decoded(&encoded).map(|bytes| View {
                    bytes_at: ViewBytes::Shared(bytes, skip..skip + len),
                    origin: Origin::Uncounted { encoded },
                    is_hit: true,
                });
                Ok(found)
            }
            ExtentKind::Meta { pa, in_metabox } => self.in_window(pa, in_metabox, len),
            _ => Ok(None),
        }
    }

    /// Tell the cache that the consumer has the bytes of this view, and those of its
    /// [containing extent](View::containing_extent): the cache drops the extent when all its bytes are consumed.
    pub fn mark_consumed(&self, view: View<'_>) {
        match (&view.origin, &view.bytes_at) {
            (Origin::Own { encoded, .. }, _) => self.core.state().decoded.remove(encoded),
            (Origin::Uncounted { encoded }, ViewBytes::Shared(bytes, range)) => {
                self.consume(encoded, bytes, range.len())
            }
            _ => {}
        }
    }
}

impl Image {
    /// Contents beside an inode, if one cached window holds them.
    fn in_window(&self, pa: u64, in_metabox: bool, len: usize) -> Result<Option<View<'static>>, ReadError> {
        let space = if in_metabox { MetadataSpace::Metabox } else { MetadataSpace::Primary };
        let found = MetadataReader::new(self, space).likely_contents(pa, len as u64)?;
        Ok(found.map(|(window, start)| View::at(ViewBytes::Shared(window, start..start + len))))
    }

    pub(super) fn view_range<'a>(
        &'a self,
        inode: &Inode,
        off: u64,
        len: usize,
        buf: &'a mut Vec<u8>,
    ) -> Result<View<'a>, ReadError> {
        let wanted = off..off + len as u64;
        let (mut map, pattern) = self.map_for_read(inode, &wanted)?;
        if self.core.policy.readahead == Readahead::Image {
            self.announce_stride(inode, &mut map, wanted)?;
        }
        let extent = map.extent_at(off)?;
        if let ExtentKind::Fragment { off: start } = extent.kind {
            let from = start.saturating_add(off - extent.la);
            let packed = self.packed_range(from, len as u64)?;
            // The packed inode has no fragments, so this ends.
            let (mut map, pattern) = self.map_for_read(packed, &(from..from + len as u64))?;
            let first = map.extent_at(from)?;
            if matches!(first.kind, ExtentKind::Fragment { .. }) {
                return Err(fragment_error(from, "a fragment inside the packed inode"));
            }
            let access = FileAccess { fragments: FragmentPolicy::Refused, pattern };
            let read = FileRead { map: &mut map, first, access };
            let viewed = self.view_extent(read, from..from + len as u64, buf);
            return viewed.map_err(|error| error.at_nid(packed.nid));
        }
        let access = FileAccess { fragments: FragmentPolicy::Allowed, pattern };
        self.view_extent(FileRead { map: &mut map, first: extent, access }, off..off + len as u64, buf)
    }

    /// Bytes `wanted` of the file, which begin in the first extent.
    fn view_extent<'a>(
        &'a self,
        read: FileRead<'_, '_>,
        wanted: Range<u64>,
        buf: &'a mut Vec<u8>,
    ) -> Result<View<'a>, ReadError> {
        let FileRead { map, first: extent, access } = read;
        let FileAccess { fragments, pattern } = access;
        let (off, len) = (wanted.start, (wanted.end - wanted.start) as usize);
        let skip = off - extent.la;
        if extent.end() >= wanted.end {
            match extent.kind {
                ExtentKind::Encoded { .. } => {
                    let encoded = EncodedExtent::of(&extent)?;
                    return Ok(match self.encoded(&encoded, skip..skip + len as u64, buf, pattern)? {
                        Encoded::Buffer(bytes) => View::in_buffer(bytes),
                        Encoded::Cached { bytes, range, is_hit } => {
                            // The bytes around a fragment belong to other files.
                            let is_own = fragments == FragmentPolicy::Allowed;
                            let is_for_all = self.core.policy.retention == Retention::UntilConsumed
                                && pattern == AccessPattern::Random;
                            let origin =
                                if is_own && is_for_all { Origin::Own { la: extent.la, encoded } } else { Origin::Any };
                            View { bytes_at: ViewBytes::Shared(bytes, range), origin, is_hit }
                        }
                    });
                }
                ExtentKind::Raw { device, pa }
                | ExtentKind::Plain { device, pa, interlaced: false, inline: None, .. } => {
                    if let Some(bytes) = self.borrow_raw("data", device, pa.saturating_add(skip), len)? {
                        return Ok(View::at(ViewBytes::Source { bytes, device, pa: pa.saturating_add(skip) }));
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
        let part = grow_to(buf, len);
        self.fill_by(map, part, off, access)?;
        Ok(View::in_buffer(part))
    }
}

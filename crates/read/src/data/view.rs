//! Contents without a copy, where that is possible.

use super::decode::Encoded;
use super::file_read::FileRead;
use super::read::readable;
use crate::cache::access_pattern::AccessPattern;
use crate::cache::byte_cache::SharedBytes;
use crate::cache::workspaces::grow_to;
use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::map::data_part::{DataPart, DataPiece};
use crate::map::encoded_extent::EncodedExtent;
use crate::map::file_map::FileMap;
use crate::metadata::inode::Inode;
use crate::metadata::reader::MetadataReader;
use crate::metadata::space::MetadataSpace;
use crate::options::read_policy::{Readahead, Retention};
use kiln_format::Nid;
use std::io::ErrorKind;
use std::ops::{Deref, Range};

/// Bytes of a file, wherever they are: in the source's own memory, in a cache, or in the reader's
/// buffer.
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
    /// A cached extent of the file itself, not of the packed inode, that begins at byte `la` of the
    /// file.
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

    /// Returns the place of the bytes.
    pub(super) fn into_place(self) -> ViewBytes<'a> {
        self.bytes_at
    }
}

impl View<'_> {
    /// Implements `ServerView::is_hit`.
    pub(crate) fn is_hit(&self) -> bool {
        self.is_hit
    }

    /// Implements `ServerView::containing_extent`.
    pub(crate) fn containing_extent(&self) -> Option<(u64, &[u8])> {
        match (&self.bytes_at, &self.origin) {
            (ViewBytes::Shared(bytes, _), Origin::Own { la, .. }) => Some((*la, bytes)),
            _ => None,
        }
    }
}

impl<'a> Reader<'a> {
    /// Implements `Image::view`.
    pub(crate) fn view<'b>(
        self,
        inode: &Inode,
        off: u64,
        len: usize,
        buf: &'b mut Vec<u8>,
    ) -> Result<View<'b>, ReadError>
    where
        'a: 'b,
    {
        let len = readable(inode, len, off)?;
        self.volume.counters.read(len);
        if len == 0 {
            return Ok(View::in_buffer(&[]));
        }
        self.view_range(inode, off, len, buf).map_err(|error| error.at_nid(inode.nid))
    }

    /// Implements `ServerView::get_if_cached`.
    pub(crate) fn get_if_cached(self, nid: Nid, len_max: u64) -> Result<Option<View<'a>>, ReadError> {
        let found = match self.without_fetches().find_cached(nid, len_max) {
            Err(ReadError::Io { source, .. }) if source.kind() == ErrorKind::WouldBlock => None,
            found => found.map_err(|error| error.at_nid(nid))?,
        };
        if let Some(view) = &found {
            self.volume.counters.read(view.len());
        }
        Ok(found)
    }

    fn find_cached(self, nid: Nid, len_max: u64) -> Result<Option<View<'static>>, ReadError> {
        let inode = self.inode(nid)?;
        if inode.meta.size > len_max {
            return Ok(None);
        }
        let len = readable(&inode, usize::MAX, 0)? as u64;
        let mut map = FileMap::open(self, &inode)?;
        let Some(part) = map.parts(0..len).next().transpose()?.filter(|part| part.len() == len) else {
            return Ok(None);
        };
        match part.pieces(self.volume.sb.block_bits)?.next() {
            Some(DataPiece::Encoded { encoded, wanted }) => {
                let found = self.volume.state().decoded(&encoded).map(|bytes| View {
                    bytes_at: ViewBytes::Shared(bytes, wanted.start as usize..wanted.end as usize),
                    origin: Origin::Uncounted { encoded },
                    is_hit: true,
                });
                Ok(found)
            }
            Some(DataPiece::Metadata { space, pa, len, .. }) => self.in_window(space, pa, len),
            _ => Ok(None),
        }
    }

    /// Implements `ServerView::mark_consumed`.
    pub(crate) fn mark_consumed(self, view: View<'_>) {
        match (&view.origin, &view.bytes_at) {
            (Origin::Own { encoded, .. }, _) => self.volume.state().decoded.remove(encoded),
            (Origin::Uncounted { encoded }, ViewBytes::Shared(bytes, range)) => {
                self.consume(encoded, bytes, range.len())
            }
            _ => {}
        }
    }

    /// Returns contents beside an inode if one cached window holds them.
    fn in_window(self, space: MetadataSpace, pa: u64, len: u64) -> Result<Option<View<'static>>, ReadError> {
        let found = MetadataReader::new(self, space).likely_contents(pa, len)?;
        Ok(found.map(|(window, start)| View::at(ViewBytes::Shared(window, start..start + len as usize))))
    }

    /// Returns `len` bytes of a file from `off` on, which it has.
    pub(super) fn view_range<'b>(
        self,
        inode: &Inode,
        off: u64,
        len: usize,
        buf: &'b mut Vec<u8>,
    ) -> Result<View<'b>, ReadError>
    where
        'a: 'b,
    {
        let wanted = off..off + len as u64;
        let (mut map, pattern) = self.map_for_read(inode, &wanted)?;
        if self.volume.policy.readahead == Readahead::Image {
            self.announce_stride(inode, &mut map, wanted.clone())?;
        }
        let mut read = FileRead::new(self, &mut map, wanted, pattern);
        let Some((part, pattern)) = read.next()? else { return Ok(View::in_buffer(&[])) };
        if part.len() == len as u64 {
            let viewed = self.view_part(&part, buf, pattern);
            return viewed.map_err(|error| error.at_nid(part.nid));
        }
        let whole = grow_to(buf, len);
        read.fill_from((part, pattern), whole)?;
        Ok(View::in_buffer(whole))
    }

    fn view_part<'b>(self, part: &DataPart, buf: &'b mut Vec<u8>, pattern: AccessPattern) -> Result<View<'b>, ReadError>
    where
        'a: 'b,
    {
        let mut pieces = part.pieces(self.volume.sb.block_bits)?;
        match (pieces.next(), pieces.next()) {
            (Some(DataPiece::Encoded { encoded, wanted }), _) => {
                return Ok(match self.encoded(&encoded, wanted, buf, pattern)? {
                    Encoded::Buffer(bytes) => View::in_buffer(bytes),
                    Encoded::Cached { bytes, range, is_hit } => {
                        // The bytes around a fragment belong to other files.
                        let is_for_all = self.volume.policy.retention == Retention::UntilConsumed
                            && pattern == AccessPattern::Random
                            && !part.is_fragment;
                        let origin = if is_for_all { Origin::Own { la: part.extent.la, encoded } } else { Origin::Any };
                        View { bytes_at: ViewBytes::Shared(bytes, range), origin, is_hit }
                    }
                });
            }
            (Some(DataPiece::Device { record, device, pa, len }), None) => {
                if let Some(bytes) = self.borrow_raw(record, device, pa, len as usize)? {
                    return Ok(View::at(ViewBytes::Source { bytes, device, pa }));
                }
            }
            (Some(DataPiece::Metadata { space, pa, len, .. }), None) => {
                if let Some(view) = self.in_window(space, pa, len)? {
                    return Ok(view);
                }
            }
            _ => {}
        }
        let whole = grow_to(buf, part.len() as usize);
        self.read_part(part, whole, pattern)?;
        Ok(View::in_buffer(whole))
    }
}

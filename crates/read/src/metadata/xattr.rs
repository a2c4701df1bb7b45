//! Extended attributes.

use super::inode::Inode;
use super::long_prefixes::{self, LongPrefixes};
use super::reader::MetadataReader;
use super::space::MetadataSpace;
use crate::error::ReadError;
use crate::image::reader::Reader;
use kiln_format::xattr::{
    BODY_HEADER_LEN, ENTRY_HEADER_LEN, LONG_PREFIX, RawXattrBodyHeader, RawXattrEntry, entry_len, filter_bit, prefix,
    split_name,
};
use kiln_format::{Compat, Nid};
use std::ops::ControlFlow;
use zerocopy::FromBytes;

const BODY: &str = "erofs_xattr_ibody_header";
const ENTRY: &str = "erofs_xattr_entry";

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xattr {
    /// Full name, `user.mime_type` for example.
    pub name: Vec<u8>,
    /// Value.
    pub value: Vec<u8>,
}

/// An entry as stored: its name is in three parts.
pub(crate) struct StoredXattr<'a> {
    prefix: &'static [u8],
    infix: &'a [u8],
    suffix: &'a [u8],
    value: &'a [u8],
    /// The name starts with a long prefix.
    pub is_long: bool,
}

impl StoredXattr<'_> {
    pub(crate) fn name(&self) -> Vec<u8> {
        [self.prefix, self.infix, self.suffix].concat()
    }

    fn is_named(&self, name: &[u8]) -> bool {
        let rest = name.strip_prefix(self.prefix).and_then(|rest| rest.strip_prefix(self.infix));
        rest == Some(self.suffix)
    }
}

/// Xattr body of an inode, without its inline entries decoded.
struct Body {
    name_filter: u32,
    shared: Vec<u32>,
    bytes: Vec<u8>,
    inline_start: usize,
    at: u64,
}

impl<'a> Reader<'a> {
    /// Implements `Image::list_xattrs`.
    pub(crate) fn list_xattrs(self, inode: &Inode) -> Result<Vec<Xattr>, ReadError> {
        let mut list = Vec::new();
        self.each_xattr(inode, &mut |entry| {
            if let Some(name) = self.shown_xattr(entry.name()) {
                list.push(Xattr { name, value: entry.value.to_vec() });
            }
            ControlFlow::Continue(())
        })?;
        Ok(list)
    }

    /// Implements `Image::xattr_prefixes`.
    pub(crate) fn xattr_prefixes(self) -> Vec<Vec<u8>> {
        let whole = |long: &long_prefixes::LongPrefix| [prefix(long.base).unwrap_or_default(), &long.infix].concat();
        self.prefixes.iter().map(whole).collect()
    }

    /// Implements `Image::get_xattr`.
    pub(crate) fn get_xattr(self, inode: &Inode, name: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        self.get_stored_xattr(inode, &self.stored_xattr(name))
    }

    /// Returns the value of an attribute by its name in the image.
    pub(crate) fn get_stored_xattr(self, inode: &Inode, name: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        if self.filter_excludes(inode, name)? {
            return Ok(None);
        }
        let mut found = None;
        self.each_xattr(inode, &mut |entry| {
            if !entry.is_named(name) {
                return ControlFlow::Continue(());
            }
            found = Some(entry.value.to_vec());
            ControlFlow::Break(())
        })?;
        Ok(found)
    }
}

impl<'a> Reader<'a> {
    /// Returns true if the inode's name filter promises that there is no such attribute.
    fn filter_excludes(self, inode: &Inode, name: &[u8]) -> Result<bool, ReadError> {
        let sb = self.superblock();
        if inode.meta.xattr_icount == 0 {
            return Ok(true);
        }
        if !sb.compat.contains(Compat::XATTR_FILTER) || sb.xattr_filter_reserved != 0 {
            return Ok(false);
        }
        let Some((index, rest)) = split_name(name) else { return Ok(false) };
        let header = self.xattr_header(inode).map_err(|error| error.at_nid(inode.nid))?;
        Ok(header.h_name_filter.get() & filter_bit(index, rest) != 0)
    }

    fn xattr_header(self, inode: &Inode) -> Result<RawXattrBodyHeader, ReadError> {
        let at = self.inode_pos(inode.nid)? + inode.meta.form.len() as u64;
        let bytes = MetadataReader::new(self, inode.space()).array::<BODY_HEADER_LEN>(BODY, at)?;
        Ok(RawXattrBodyHeader::read_from_bytes(&bytes).expect("exact length"))
    }

    /// Visits all attributes: inline ones first, then shared ones in the order of the inode's list.
    pub(crate) fn each_xattr(
        self,
        inode: &Inode,
        each: &mut dyn FnMut(&StoredXattr<'_>) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        if inode.meta.xattr_icount == 0 {
            return Ok(());
        }
        self.visit_xattrs(inode, each).map_err(|error| error.at_nid(inode.nid))
    }

    fn visit_xattrs(
        self,
        inode: &Inode,
        each: &mut dyn FnMut(&StoredXattr<'_>) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        self.visit_entries(inode, &mut |bytes| match self.entry(bytes) {
            Some(entry) => each(&entry),
            None => ControlFlow::Continue(()),
        })
    }

    /// Visits all entries as stored, those that Linux does not show included. Each gets bytes that
    /// start with an entry and hold it whole.
    pub(crate) fn visit_entries(
        self,
        inode: &Inode,
        each: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        let body = self.xattr_body(inode)?;
        let mut off = body.inline_start;
        while off < body.bytes.len() {
            let len = inline_entry_len(&body, off)?;
            if each(&body.bytes[off..]).is_break() {
                return Ok(());
            }
            off += len;
        }
        let mut bytes = Vec::new();
        for &id in &body.shared {
            self.read_shared(id, &mut bytes)?;
            if each(&bytes).is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn xattr_body(self, inode: &Inode) -> Result<Body, ReadError> {
        let at = self.inode_pos(inode.nid)? + inode.meta.form.len() as u64;
        let len = inode.meta.xattr_len();
        if len == BODY_HEADER_LEN as u64 {
            return Err(ReadError::unsupported("erofs_inode", at, "i_xattr_icount", 1, "reserved"));
        }
        // At most 256 KiB, and memory is allocated only if the body is in the metadata.
        let mut meta = MetadataReader::new(self, inode.space());
        meta.check_range(BODY, at, len)?;
        let mut bytes = vec![0; len as usize];
        meta.fill(BODY, &mut bytes, at)?;
        let (header, rest) = RawXattrBodyHeader::read_from_prefix(&bytes).expect("longer than the header");
        let ids = rest.get(..4 * usize::from(header.h_shared_count)).ok_or_else(|| {
            let count = header.h_shared_count.into();
            ReadError::corrupt(BODY, at, "h_shared_count", count, "more than the body holds")
        })?;
        let shared: Vec<_> =
            ids.chunks_exact(4).map(|id| u32::from_le_bytes(id.try_into().expect("4 bytes"))).collect();
        let inline_start = BODY_HEADER_LEN + ids.len();
        Ok(Body { name_filter: header.h_name_filter.get(), shared, bytes, inline_start, at })
    }

    /// Returns the byte range of a shared entry in its space.
    pub(crate) fn shared_range(self, id: u32) -> Result<(u64, u64), ReadError> {
        let sb = self.superblock();
        // No overflow: the sum of a number of 32 + 16 bits and one of 34.
        let at = (sb.xattr_blkaddr.0 << sb.block_bits.bits()) + 4 * u64::from(id);
        let head = MetadataReader::new(self, self.shared_xattr_space()).array::<ENTRY_HEADER_LEN>(ENTRY, at)?;
        let raw = RawXattrEntry::read_from_bytes(&head).expect("exact length");
        Ok((at, (ENTRY_HEADER_LEN + usize::from(raw.e_name_len) + usize::from(raw.e_value_size.get())) as u64))
    }

    fn read_shared(self, id: u32, bytes: &mut Vec<u8>) -> Result<(), ReadError> {
        let (at, len) = self.shared_range(id)?;
        bytes.resize(len as usize, 0);
        MetadataReader::new(self, self.shared_xattr_space()).fill(ENTRY, bytes, at)
    }

    /// Returns the entry that `bytes` start with and hold whole; `None` for one that Linux does not
    /// show.
    fn entry<'b>(self, bytes: &'b [u8]) -> Option<StoredXattr<'b>>
    where
        'a: 'b,
    {
        let (raw, rest) = RawXattrEntry::ref_from_prefix(bytes).expect("checked");
        let (suffix, rest) = rest.split_at(raw.e_name_len.into());
        let value = &rest[..usize::from(raw.e_value_size.get())];
        let is_long = raw.e_name_index & LONG_PREFIX != 0;
        let long = || self.prefixes.get(raw.e_name_index & !LONG_PREFIX);
        let (base, infix) = match is_long {
            false => (Some(raw.e_name_index), &[][..]),
            true => (long().map(|long| long.base), long().map_or(&[][..], |long| &long.infix)),
        };
        base.and_then(prefix).map(|prefix| StoredXattr { prefix, infix, suffix, value, is_long })
    }

    /// Returns the space in which shared xattrs lie.
    pub(crate) fn shared_xattr_space(self) -> MetadataSpace {
        match self.volume.sb.compat.contains(Compat::SHARED_EA_IN_METABOX) {
            true => MetadataSpace::Metabox,
            false => MetadataSpace::Primary,
        }
    }

    /// Returns ids of the inode's shared attributes.
    pub(crate) fn shared_xattr_ids(self, inode: &Inode) -> Result<Vec<u32>, ReadError> {
        match inode.meta.xattr_icount {
            0 => Ok(Vec::new()),
            _ => Ok(self.xattr_body(inode)?.shared),
        }
    }

    /// Returns the first attribute, if any, that the inode's name filter wrongly denies.
    pub(crate) fn denied_by_filter(self, inode: &Inode) -> Result<Option<Vec<u8>>, ReadError> {
        let sb = self.superblock();
        if !sb.compat.contains(Compat::XATTR_FILTER) || sb.xattr_filter_reserved != 0 || inode.meta.xattr_icount == 0 {
            return Ok(None);
        }
        let filter = self.xattr_body(inode)?.name_filter;
        let mut denied = None;
        self.visit_xattrs(inode, &mut |entry| {
            let name = entry.name();
            match split_name(&name) {
                Some((index, rest)) if filter & filter_bit(index, rest) != 0 => {
                    denied = Some(name);
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        })?;
        Ok(denied)
    }

    /// Reads the table of long prefixes from the space or the inode that the superblock says.
    pub(crate) fn read_long_prefixes(self) -> Result<LongPrefixes, ReadError> {
        let sb = self.superblock();
        let source = match (&self.special.metabox, &self.special.packed) {
            _ if sb.compat.contains(Compat::PLAIN_XATTR_PFX) => PrefixSource::Space(MetadataSpace::Primary),
            (Some(_), _) => PrefixSource::Space(MetadataSpace::Metabox),
            (None, Some(packed)) => PrefixSource::Contents(*packed),
            (None, None) => PrefixSource::Space(MetadataSpace::Primary),
        };
        let (start, count) = (sb.xattr_prefix_off, sb.xattr_prefix_count);
        let (mut table, end) = LongPrefixes::read(count.into(), start, |buf, off| source.fill(self, buf, off))?;
        let is_in_image = matches!(source, PrefixSource::Space(MetadataSpace::Primary)) && count > 0;
        table.in_image = is_in_image.then_some((start, end));
        Ok(table)
    }
}

/// Place of the table of long prefixes.
enum PrefixSource {
    Space(MetadataSpace),
    /// Decoded contents of the packed inode.
    Contents(Inode),
}

impl PrefixSource {
    fn fill(&self, reader: Reader<'_>, buf: &mut [u8], off: u64) -> Result<(), ReadError> {
        match self {
            PrefixSource::Space(space) => MetadataReader::new(reader, *space).fill(long_prefixes::RECORD, buf, off),
            PrefixSource::Contents(inode) if off + buf.len() as u64 <= inode.meta.size => reader.fill(inode, buf, off),
            PrefixSource::Contents(Inode { nid: Nid(nid), .. }) => Err(ReadError::corrupt(
                long_prefixes::RECORD,
                off,
                "packed_nid",
                *nid,
                "prefixes behind the packed inode's end",
            )),
        }
    }
}

/// Returns the bytes that the inline entry at `off` of a body takes.
fn inline_entry_len(body: &Body, off: usize) -> Result<usize, ReadError> {
    let rest = &body.bytes[off..];
    let len = RawXattrEntry::ref_from_prefix(rest).ok().map(|(raw, _)| padded_len(raw));
    len.filter(|len| *len <= rest.len()).ok_or_else(|| {
        let (at, room) = (body.at + off as u64, rest.len() as u64);
        ReadError::corrupt(ENTRY, at, "e_value_size", room, "entry crosses the body's end")
    })
}

/// Returns the bytes that an entry takes, padding included.
fn padded_len(raw: &RawXattrEntry) -> usize {
    entry_len(raw.e_name_len.into(), raw.e_value_size.get().into())
}

//! Reads of several extents: first all extents are looked up, then their bytes on devices are
//! fetched in one call, then they are decoded.
//!
//! Plain bytes go from the device straight into the destination. Bytes in memory, cached or lent by
//! their source, are decoded or copied at once. No two threads decode one extent into the cache at
//! the same time: a thread claims it before it fetches. It looks nothing up while it has claims,
//! and does not wait for claims of others until it has given up its own. So the threads that wait
//! for a claim wait for one that fetches, or for a turn to decode, and no circle of waiting can
//! occur.

use super::fetch::FetchPlan;
use super::file_read::FileRead;
use super::plan::{DecodePlan, DecodeTarget, plan};
use crate::cache::access_pattern::AccessPattern;
use crate::cache::byte_cache::{Claim, LoadGuard, SharedBytes};
use crate::cache::workspaces::grow_to;
use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::map::data_part::{DataPart, DataPiece, PCLUSTER};
use crate::map::encoded_extent::EncodedExtent;
use crate::map::extent::Pcluster;
use crate::metadata::reader::{ContentsPlace, MetadataReader};
use crate::metadata::space::MetadataSpace;
use crate::source::devices::DeviceRange;
use kiln_format::Nid;
use std::mem;
use std::ops::Range;

/// Most ranges and parts of extents that one fetch is for.
const PARTS_MAX: usize = 1024;

/// Part of an encoded extent, and what the planner wants with it.
pub(super) struct EncodedPart<'b> {
    pub(super) encoded: EncodedExtent,
    /// Bytes of the extent.
    pub(super) wanted: Range<u64>,
    pub(super) target: DecodeTarget,
    /// Bytes of the extent that earlier accesses got without the cache.
    pub(super) consumed: u64,
    /// The inode that errors name.
    pub(super) nid: Nid,
    pub(super) dst: &'b mut [u8],
}

/// Step that finishes a part once the bytes are fetched.
enum Step<'i> {
    /// Nothing but a copy: another thread has just decoded the extent.
    Copy(SharedBytes),
    /// Decode it from the pcluster, which begins at this byte of the buffer.
    Decode(usize),
    /// The same, into the cache.
    Load(LoadGuard<'i, EncodedExtent>, usize),
    /// Wait for another thread, which is about to decode the extent.
    Wait,
}

/// A read whose stored bytes are gathered, to be fetched together.
pub(super) struct Gather<'i, 'b> {
    reader: Reader<'i>,
    direct: Vec<DeviceRange<'b>>,
    parts: Vec<EncodedPart<'b>>,
    /// Bytes of pclusters that `parts` need at most.
    stored_len: usize,
}

impl<'i, 'b> Gather<'i, 'b> {
    pub(super) fn new(reader: Reader<'i>) -> Self {
        Self { reader, direct: Vec::new(), parts: Vec::new(), stored_len: 0 }
    }

    /// Adds the range of `read`, whose first part is `first`. `buf` is as long as the range. If
    /// this fails, everything that was added before is still to be fetched, as its errors come
    /// first.
    pub(super) fn add_range(
        &mut self,
        first: (DataPart, AccessPattern),
        read: &mut FileRead<'_, 'i>,
        buf: &'b mut [u8],
    ) -> Result<(), ReadError> {
        let ((mut part, mut pattern), mut buf) = (first, buf);
        loop {
            let (dst, rest) = buf.split_at_mut(part.len() as usize);
            if !self.has_room_for(&part) {
                read.announce_rest(&part)?;
                self.finish()?;
            }
            self.add(&part, dst, pattern).map_err(|error| error.at_nid(part.nid))?;
            buf = rest;
            match read.next()? {
                Some(next) => (part, pattern) = next,
                None => return Ok(()),
            }
        }
    }

    /// Returns true if a part can be added to those that are gathered.
    fn has_room_for(&self, part: &DataPart) -> bool {
        let has_room = match part.pcluster() {
            Some(Pcluster { plen, inline: None, .. }) if part.is_encoded() => {
                self.stored_len == 0 || self.stored_len + plen as usize <= self.reader.fetch_max_len()
            }
            _ => true,
        };
        has_room && self.direct.len() + self.parts.len() < PARTS_MAX
    }

    fn add(&mut self, part: &DataPart, dst: &'b mut [u8], pattern: AccessPattern) -> Result<(), ReadError> {
        let mut rest = dst;
        for piece in part.pieces(self.reader.volume.sb.block_bits)? {
            let (dst, behind) = rest.split_at_mut(piece.len() as usize);
            rest = behind;
            match piece {
                DataPiece::Zeros { .. } => dst.fill(0),
                DataPiece::Device { record, device, pa, .. } => self.add_stored(record, device, pa, dst)?,
                DataPiece::Metadata { record, space, pa, .. } => self.add_metadata(record, space, pa, dst)?,
                DataPiece::Encoded { encoded, wanted } => {
                    self.add_encoded(encoded, wanted, dst, (part.nid, pattern))?;
                }
                DataPiece::Object { nid, off, .. } => self.reader.read_object(nid, dst, off)?,
            }
        }
        Ok(())
    }

    /// Adds plain bytes of a device.
    fn add_stored(&mut self, record: &'static str, device: u16, pa: u64, dst: &'b mut [u8]) -> Result<(), ReadError> {
        match self.reader.borrow_raw(record, device, pa, dst.len())? {
            Some(bytes) => dst.copy_from_slice(bytes),
            None => self.direct.push(DeviceRange { device, off: pa, buf: dst }),
        }
        Ok(())
    }

    /// Adds plain bytes beside an inode.
    fn add_metadata(
        &mut self,
        record: &'static str,
        space: MetadataSpace,
        pa: u64,
        dst: &'b mut [u8],
    ) -> Result<(), ReadError> {
        let mut meta = MetadataReader::new(self.reader, space);
        match meta.find_contents(record, pa, dst.len() as u64)? {
            ContentsPlace::Window(window, start) => dst.copy_from_slice(&window[start..start + dst.len()]),
            ContentsPlace::Windows => meta.fill(record, dst, pa)?,
            ContentsPlace::Primary => self.direct.push(DeviceRange { device: 0, off: pa, buf: dst }),
        }
        Ok(())
    }

    fn add_encoded(
        &mut self,
        encoded: EncodedExtent,
        wanted: Range<u64>,
        dst: &'b mut [u8],
        (nid, pattern): (Nid, AccessPattern),
    ) -> Result<(), ReadError> {
        let (reader, Pcluster { pa, plen, inline, .. }) = (self.reader, encoded.pcluster);
        let (target, consumed) = match plan(&mut reader.volume.state(), &encoded, &wanted, pattern) {
            DecodePlan::Copy(bytes) => {
                reader.volume.counters.hit();
                reader.take_part(&encoded, &bytes, wanted, dst);
                return Ok(());
            }
            DecodePlan::Decode { target, consumed } => (target, consumed),
        };
        let part = EncodedPart { encoded, wanted, target, consumed, nid, dst };
        if let Some(bytes) = reader.borrow_pcluster(&encoded.pcluster)? {
            return reader.decode_part(part, bytes);
        }
        if let Some(space) = inline {
            match MetadataReader::new(reader, space).find_contents(PCLUSTER, pa, plen.into())? {
                ContentsPlace::Window(window, start) => {
                    return reader.decode_part(part, &window[start..start + plen as usize]);
                }
                ContentsPlace::Windows => return reader.decode_part(part, &[]),
                ContentsPlace::Primary => {}
            }
        }
        self.stored_len += plen as usize;
        self.parts.push(part);
        Ok(())
    }

    /// Fetches and decodes the gathered parts.
    pub(super) fn finish(&mut self) -> Result<(), ReadError> {
        let (direct, parts) = (mem::take(&mut self.direct), mem::take(&mut self.parts));
        self.stored_len = 0;
        match parts.is_empty() {
            true => self.reader.fetch(&FetchPlan::default(), &mut [], direct),
            false => self.reader.volume.state().sources.with(|buf| self.fetch_and_decode(direct, parts, buf)),
        }
    }

    fn fetch_and_decode<'s>(
        &self,
        direct: Vec<DeviceRange<'s>>,
        parts: Vec<EncodedPart<'b>>,
        buf: &'s mut Vec<u8>,
    ) -> Result<(), ReadError> {
        let (reader, mut fetch) = (self.reader, FetchPlan::default());
        let mut steps = Vec::with_capacity(parts.len());
        for EncodedPart { encoded, wanted, target, .. } in &parts {
            let claim = match target {
                DecodeTarget::Cache => Some(reader.volume.state().decoded.try_claim(encoded)?),
                _ => None,
            };
            let mut place = || {
                let len = reader.fetched_len(encoded, target.decoded_len(encoded, wanted.end) as usize);
                let Pcluster { device, inline, pa, .. } = encoded.pcluster;
                // Inline pclusters that are not cached are in the primary space, which is on the
                // primary device.
                fetch.add(if inline.is_some() { 0 } else { device }, pa, len)
            };
            steps.push(match claim {
                None => Step::Decode(place()),
                Some(Claim::Cached(bytes)) => Step::Copy(bytes),
                Some(Claim::Ours(guard)) => Step::Load(guard, place()),
                Some(Claim::Elsewhere) => Step::Wait,
            });
        }
        reader.fetch(&fetch, grow_to(buf, fetch.len()), direct)?;
        let mut waiting = Vec::new();
        for (part, step) in parts.into_iter().zip(steps) {
            let pcluster = |start: usize| {
                let len = part.target.decoded_len(&part.encoded, part.wanted.end) as usize;
                let len = reader.fetched_len(&part.encoded, len);
                &buf[start..start + len]
            };
            match step {
                Step::Copy(bytes) => {
                    reader.volume.counters.avoided();
                    reader.take_part(&part.encoded, &bytes, part.wanted, part.dst);
                }
                Step::Decode(start) => {
                    let pcluster = pcluster(start);
                    reader.decode_part(part, pcluster)?;
                }
                Step::Load(guard, start) => {
                    let pcluster = pcluster(start);
                    let bytes = guard.finish(|| reader.load(&part.encoded, part.consumed, pcluster));
                    let bytes = bytes.map_err(|error| error.at_nid(part.nid))?;
                    reader.take_part(&part.encoded, &bytes, part.wanted, part.dst);
                }
                Step::Wait => waiting.push(part),
            }
        }
        waiting.into_iter().try_for_each(|part| reader.decode_part(part, &[]))
    }
}

impl<'a> FileRead<'_, 'a> {
    /// Fills `buf`, which is as long as the range.
    pub(super) fn fill(&mut self, buf: &mut [u8]) -> Result<(), ReadError> {
        match self.next()? {
            Some(first) => self.fill_from(first, buf),
            None => Ok(()),
        }
    }

    /// Fills `buf`, which is as long as the range, with `first` and all parts behind it.
    pub(super) fn fill_from(&mut self, first: (DataPart, AccessPattern), buf: &mut [u8]) -> Result<(), ReadError> {
        let (part, pattern) = first;
        if part.len() == buf.len() as u64 {
            return self.reader.read_part(&part, buf, pattern);
        }
        let mut gather = Gather::new(self.reader);
        let added = gather.add_range((part, pattern), self, buf);
        gather.finish()?;
        added
    }
}

//! Reads of several extents: first all extents are looked up, then what is stored on devices is fetched in one call, then it is decoded.
//!
//! Bytes that are stored as they are go from the device straight into the destination. What is in memory, cached or lent by its source,
//! is decoded or copied at once. No two threads decode one extent into the cache at the same time: a thread claims it before it fetches.
//! It looks nothing up while it has claims, and does not wait for claims of others until it has given up its own. So the threads that
//! wait for a claim wait for one that fetches, or for a turn to decode, and no circle of waiting can occur.

use super::fetch::FetchPlan;
use super::pieces::{FileAccess, FileRead, FragmentPolicy, PCLUSTER, fragment_off, join_raw, rotated_len};
use super::plan::{DecodePlan, DecodeTarget, plan};
use crate::cache::access_pattern::AccessPattern;
use crate::cache::byte_cache::{Claim, LoadGuard, SharedBytes};
use crate::cache::workspaces::grow_to;
use crate::error::ReadError;
use crate::image::Image;
use crate::map::extent::{Extent, ExtentKind};
use crate::map::pcluster::{EncodedExtent, Pcluster};
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

/// What is to be done for a part once the bytes are fetched.
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
    image: &'i Image,
    direct: Vec<DeviceRange<'b>>,
    parts: Vec<EncodedPart<'b>>,
    /// Bytes of pclusters that `parts` need at most.
    stored_len: usize,
}

impl<'i, 'b> Gather<'i, 'b> {
    pub(super) fn new(image: &'i Image) -> Self {
        Self { image, direct: Vec::new(), parts: Vec::new(), stored_len: 0 }
    }

    /// Add a range: `buf` from byte `off` of the file on, which is in the first extent. If this fails, what was added before is still to
    /// be fetched, as its errors come first.
    pub(super) fn add_range(&mut self, read: FileRead<'_, '_>, buf: &'b mut [u8], off: u64) -> Result<(), ReadError> {
        let FileRead { map, first, access } = read;
        let (mut extent, mut buf, mut off) = (first, buf, off);
        loop {
            let len = (extent.end().saturating_sub(off)).min(buf.len() as u64) as usize;
            if len == 0 {
                return Err(ReadError::Internal { what: "an extent without progress".into() });
            }
            let (part, rest) = buf.split_at_mut(len);
            if !self.has_room_for(&extent) {
                self.image.announce_rest(map, off..off + (len + rest.len()) as u64)?;
                self.finish()?;
            }
            self.add(&extent, part, off - extent.la, (map.nid(), access))?;
            if rest.is_empty() {
                return Ok(());
            }
            (buf, off) = (rest, off + len as u64);
            extent = map.extent_at(off)?;
            join_raw(map, &mut extent, off + buf.len() as u64)?;
        }
    }

    /// Whether an extent can be added to what is gathered.
    fn has_room_for(&self, extent: &Extent) -> bool {
        let has_room = match extent.kind {
            ExtentKind::Encoded { plen, inline: None, .. } => {
                self.stored_len == 0 || self.stored_len + plen as usize <= self.image.fetch_max_len()
            }
            _ => true,
        };
        has_room && self.direct.len() + self.parts.len() < PARTS_MAX
    }

    /// Add a part of an extent, from its byte `skip` on.
    fn add(
        &mut self,
        extent: &Extent,
        dst: &'b mut [u8],
        skip: u64,
        (nid, access): (Nid, FileAccess),
    ) -> Result<(), ReadError> {
        match extent.kind {
            ExtentKind::Hole => {
                dst.fill(0);
                Ok(())
            }
            ExtentKind::Raw { device, pa } => self.add_stored("data", device, pa.saturating_add(skip), dst),
            ExtentKind::Meta { pa, in_metabox } => {
                let space = if in_metabox { MetadataSpace::Metabox } else { MetadataSpace::Primary };
                self.add_metadata("inline data", space, pa.saturating_add(skip), dst)
            }
            ExtentKind::Plain { device, pa, plen, interlaced, inline } => {
                let pcluster = Pcluster { device, inline, pa, plen };
                if !interlaced {
                    return self.add_plain(&pcluster, skip, dst);
                }
                let rotated = rotated_len(self.image, extent.la);
                let (first, rest) = dst.split_at_mut(rotated.saturating_sub(skip).min(dst.len() as u64) as usize);
                let behind = (skip + first.len() as u64).saturating_sub(rotated);
                if !first.is_empty() {
                    self.add_plain(&pcluster, u64::from(plen) - rotated + skip, first)?;
                }
                if rest.is_empty() { Ok(()) } else { self.add_plain(&pcluster, behind, rest) }
            }
            ExtentKind::Encoded { .. } => {
                let wanted = skip..skip + dst.len() as u64;
                self.add_encoded(EncodedExtent::of(extent)?, wanted, dst, (nid, access.pattern))
            }
            ExtentKind::Fragment { off } => {
                let from = fragment_off(off, skip, access.fragments)?;
                let packed = self.image.packed_range(from, dst.len() as u64)?;
                let end = from + dst.len() as u64;
                let (mut map, pattern) = self.image.map_for_read(packed, &(from..end))?;
                let access = FileAccess { fragments: FragmentPolicy::Refused, pattern };
                let added = map.extent_at(from).and_then(|mut first| {
                    join_raw(&mut map, &mut first, end)?;
                    self.add_range(FileRead { map: &mut map, first, access }, dst, from)
                });
                added.map_err(|error| error.at_nid(packed.nid))
            }
        }
    }

    /// Add bytes of a device that are stored as they are.
    fn add_stored(&mut self, record: &'static str, device: u16, pa: u64, dst: &'b mut [u8]) -> Result<(), ReadError> {
        match self.image.borrow_raw(record, device, pa, dst.len())? {
            Some(bytes) => dst.copy_from_slice(bytes),
            None => self.direct.push(DeviceRange { device, off: pa, buf: dst }),
        }
        Ok(())
    }

    /// Add bytes beside an inode that are stored as they are.
    fn add_metadata(
        &mut self,
        record: &'static str,
        space: MetadataSpace,
        pa: u64,
        dst: &'b mut [u8],
    ) -> Result<(), ReadError> {
        let mut meta = MetadataReader::new(self.image, space);
        match meta.find_contents(record, pa, dst.len() as u64)? {
            ContentsPlace::Window(window, start) => dst.copy_from_slice(&window[start..start + dst.len()]),
            ContentsPlace::Windows => meta.fill(record, dst, pa)?,
            ContentsPlace::Primary => self.direct.push(DeviceRange { device: 0, off: pa, buf: dst }),
        }
        Ok(())
    }

    /// Add bytes from byte `skip` of a plain pcluster on.
    fn add_plain(&mut self, pcluster: &Pcluster, skip: u64, dst: &'b mut [u8]) -> Result<(), ReadError> {
        let pa = pcluster.pa.saturating_add(skip);
        match pcluster.inline {
            Some(space) => self.add_metadata(PCLUSTER, space, pa, dst),
            None => self.add_stored(PCLUSTER, pcluster.device, pa, dst),
        }
    }

    fn add_encoded(
        &mut self,
        encoded: EncodedExtent,
        wanted: Range<u64>,
        dst: &'b mut [u8],
        (nid, pattern): (Nid, AccessPattern),
    ) -> Result<(), ReadError> {
        let (image, Pcluster { pa, plen, inline, .. }) = (self.image, encoded.pcluster);
        let (target, consumed) = match plan(&mut image.core.state(), &encoded, &wanted, pattern) {
            DecodePlan::Copy(bytes) => {
                image.core.counters.hit();
                image.take_part(&encoded, &bytes, wanted, dst);
                return Ok(());
            }
            DecodePlan::Decode { target, consumed } => (target, consumed),
        };
        let part = EncodedPart { encoded, wanted, target, consumed, nid, dst };
        if let Some(bytes) = image.borrow_pcluster(&encoded.pcluster)? {
            return image.decode_part(part, bytes);
        }
        if let Some(space) = inline {
            match MetadataReader::new(image, space).find_contents(PCLUSTER, pa, plen.into())? {
                ContentsPlace::Window(window, start) => {
                    return image.decode_part(part, &window[start..start + plen as usize]);
                }
                ContentsPlace::Windows => return image.decode_part(part, &[]),
                ContentsPlace::Primary => {}
            }
        }
        self.stored_len += plen as usize;
        self.parts.push(part);
        Ok(())
    }

    /// Fetch and decode what is gathered.
    pub(super) fn finish(&mut self) -> Result<(), ReadError> {
        let (direct, parts) = (mem::take(&mut self.direct), mem::take(&mut self.parts));
        self.stored_len = 0;
        match parts.is_empty() {
            true => self.image.fetch(&FetchPlan::default(), &mut [], direct),
            false => self.image.core.state().sources.with(|buf| self.fetch_and_decode(direct, parts, buf)),
        }
    }

    fn fetch_and_decode<'s>(
        &self,
        direct: Vec<DeviceRange<'s>>,
        parts: Vec<EncodedPart<'b>>,
        buf: &'s mut Vec<u8>,
    ) -> Result<(), ReadError> {
        let (image, mut fetch) = (self.image, FetchPlan::default());
        let mut steps = Vec::with_capacity(parts.len());
        for EncodedPart { encoded, wanted, target, .. } in &parts {
            let claim = match target {
                DecodeTarget::Cache => Some(image.core.state().decoded.try_claim(encoded)?),
                _ => None,
            };
            let mut place = || {
                let len = image.fetched_len(encoded, target.decoded_len(encoded, wanted.end) as usize);
                let Pcluster { device, inline, pa, .. } = encoded.pcluster;
                // Inline pclusters that are not cached are in the primary space, which is on the primary device.
                fetch.add(if inline.is_some() { 0 } else { device }, pa, len)
            };
            steps.push(match claim {
                None => Step::Decode(place()),
                Some(Claim::Cached(bytes)) => Step::Copy(bytes),
                Some(Claim::Ours(guard)) => Step::Load(guard, place()),
                Some(Claim::Elsewhere) => Step::Wait,
            });
        }
        image.fetch(&fetch, grow_to(buf, fetch.len()), direct)?;
        let mut waiting = Vec::new();
        for (part, step) in parts.into_iter().zip(steps) {
            let pcluster = |start: usize| {
                let len = part.target.decoded_len(&part.encoded, part.wanted.end) as usize;
                let len = image.fetched_len(&part.encoded, len);
                &buf[start..start + len]
            };
            match step {
                Step::Copy(bytes) => {
                    image.core.counters.avoided();
                    image.take_part(&part.encoded, &bytes, part.wanted, part.dst);
                }
                Step::Decode(start) => {
                    let pcluster = pcluster(start);
                    image.decode_part(part, pcluster)?;
                }
                Step::Load(guard, start) => {
                    let pcluster = pcluster(start);
                    let bytes = guard.finish(|| image.load(&part.encoded, part.consumed, pcluster));
                    let bytes = bytes.map_err(|error| error.at_nid(part.nid))?;
                    image.take_part(&part.encoded, &bytes, part.wanted, part.dst);
                }
                Step::Wait => waiting.push(part),
            }
        }
        waiting.into_iter().try_for_each(|part| image.decode_part(part, &[]))
    }
}

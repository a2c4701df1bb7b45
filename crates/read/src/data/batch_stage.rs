//! The stored bytes that the pieces of a batch take from devices, to be fetched in one call.

use super::fetch::FetchPlan;
use crate::cache::workspaces::grow_to;
use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::map::data_part::{DataPart, DataPiece, PCLUSTER};
use crate::map::encoded_extent::EncodedExtent;
use crate::map::extent::Pcluster;
use crate::metadata::reader::{ContentsPlace, MetadataReader};
use crate::metadata::space::MetadataSpace;
use crate::source::devices::DeviceRange;
use crate::source::read_at::FETCH_MAX_LEN;
use std::collections::HashMap;
use std::ops::Range;

/// Bytes that a piece takes from devices: two ranges if its extent is interlaced, none if its bytes
/// are in memory.
#[derive(Clone, Copy, Default)]
pub(super) struct Need {
    ranges: [DeviceBytes; 2],
    /// The encoded extent, if other pieces may need the same bytes.
    pub(super) shared: Option<EncodedExtent>,
}

/// Bytes of a device.
#[derive(Clone, Copy, Default)]
struct DeviceBytes {
    device: u16,
    pa: u64,
    len: usize,
}

impl Need {
    fn one(device: u16, pa: u64, len: usize) -> Self {
        Self { ranges: [DeviceBytes { device, pa, len }, DeviceBytes::default()], shared: None }
    }

    /// Adds the ranges, with the parts of `buf` that they fill one after the other; `buf` is as
    /// long as all of them, or nothing is needed.
    pub(super) fn split<'b>(&self, buf: &'b mut [u8], ranges: &mut Vec<DeviceRange<'b>>) {
        let mut buf = buf;
        for &DeviceBytes { device, pa: off, len } in self.ranges.iter().filter(|range| range.len > 0) {
            let (part, rest) = buf.split_at_mut(len);
            ranges.push(DeviceRange { device, off, buf: part });
            buf = rest;
        }
    }

    /// Returns the bytes of all ranges.
    pub(super) fn len(&self) -> usize {
        self.ranges.iter().map(|range| range.len).sum()
    }
}

/// Place of the stored bytes of a piece after the fetch.
pub(super) enum Stored {
    /// They are not fetched together with others.
    NotFetched,
    /// In the stage.
    Staged(Range<usize>),
    /// They are fetched to their destination, if they are needed at all.
    InPlace(Need),
}

/// The bytes for the pieces of a batch.
#[derive(Default)]
pub(super) struct Stage {
    plan: FetchPlan,
    /// The places of encoded extents that several pieces may need.
    shared: HashMap<EncodedExtent, Range<usize>>,
    buf: Vec<u8>,
}

impl Stage {
    /// Returns true if these bytes can be fetched together with those that are planned.
    pub(super) fn has_room_for(&self, need: &Need) -> bool {
        self.plan.len() == 0 || self.plan.len() + need.len() <= FETCH_MAX_LEN
    }

    /// Plans to fetch these bytes. Returns where they will be.
    pub(super) fn add(&mut self, need: &Need) -> Stored {
        let len = need.len();
        if len == 0 {
            return Stored::NotFetched;
        }
        if let Some(place) =
            need.shared.and_then(|encoded| self.shared.get(&encoded)).filter(|place| place.len() >= len)
        {
            return Stored::Staged(place.clone());
        }
        let start = self.plan.len();
        for DeviceBytes { device, pa, len } in need.ranges.iter().filter(|range| range.len > 0) {
            self.plan.add(*device, *pa, *len);
        }
        if let Some(encoded) = need.shared {
            self.shared.insert(encoded, start..start + len);
        }
        Stored::Staged(start..start + len)
    }

    /// Fetches the planned bytes, and the ranges `in_place`. `None` if that fails: each piece then
    /// fetches for itself, so that only those fail that must.
    pub(super) fn fetch(&mut self, reader: Reader<'_>, in_place: Vec<DeviceRange<'_>>) -> Option<&[u8]> {
        let buf = grow_to(&mut self.buf, self.plan.len());
        reader.fetch(&self.plan, buf, in_place).ok()?;
        Some(buf)
    }

    /// Forgets the plan, and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.plan.clear();
        self.shared.clear();
    }
}

impl<'a> Reader<'a> {
    /// Returns the ranges that reading a part takes, which is not encoded: all of them, or none if
    /// only some must be fetched.
    pub(super) fn stored_need(self, part: &DataPart) -> Result<Need, ReadError> {
        let (mut need, mut found) = (Need::default(), 0);
        for piece in part.pieces(self.volume.sb.block_bits)? {
            let piece = match piece {
                DataPiece::Device { record, device, pa, len } => self.device_need(record, device, pa, len as usize)?,
                DataPiece::Metadata { record, space, pa, len } => {
                    self.metadata_need(record, space, pa, len as usize)?
                }
                DataPiece::Zeros { .. } | DataPiece::Encoded { .. } | DataPiece::Object { .. } => Need::default(),
            };
            need.ranges[found] = piece.ranges[0];
            found += 1;
        }
        Ok(if need.len() as u64 == part.len() { need } else { Need::default() })
    }

    /// Returns the bytes that decoding the first `len` bytes of an extent takes.
    pub(super) fn encoded_need(self, encoded: &EncodedExtent, len: usize) -> Result<Need, ReadError> {
        let Pcluster { device, inline, pa, plen } = encoded.pcluster;
        match inline {
            Some(space) => self.metadata_need(PCLUSTER, space, pa, plen as usize),
            None => {
                let whole = self.device_need(PCLUSTER, device, pa, plen as usize)?;
                Ok(match whole.len() {
                    0 => whole,
                    _ => Need::one(device, pa, self.fetched_len(encoded, len)),
                })
            }
        }
    }

    fn device_need(self, record: &'static str, device: u16, pa: u64, len: usize) -> Result<Need, ReadError> {
        let devices = &self.volume.devices;
        devices.check_range(record, device, pa, len as u64)?;
        // Longer ranges go straight into the item.
        let is_fetched = len <= FETCH_MAX_LEN && !devices.is_in_memory(device, pa, len);
        Ok(if is_fetched { Need::one(device, pa, len) } else { Need::default() })
    }

    fn metadata_need(self, record: &'static str, space: MetadataSpace, pa: u64, len: usize) -> Result<Need, ReadError> {
        Ok(match MetadataReader::new(self, space).find_contents(record, pa, len as u64)? {
            ContentsPlace::Primary => Need::one(0, pa, len),
            ContentsPlace::Window(..) | ContentsPlace::Windows => Need::default(),
        })
    }
}

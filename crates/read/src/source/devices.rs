//! Devices of an image: the primary device, extra devices, and the flat space that joins them.

use super::read_at::{FETCH_MAX_LEN, RangeMut, ReadAt};
use crate::error::ReadError;
use crate::stats::Counters;
use kiln_format::device::{DEVICE_SLOT_LEN, DeviceSlot, RawDeviceSlot};
use kiln_format::superblock::Superblock;
use kiln_format::{BlockBits, FormatError};
use std::sync::Arc;
use zerocopy::FromBytes;

/// Bytes of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PhysicalRange {
    /// 0 for the primary device, else the number of an extra device.
    pub device: u16,
    /// Byte address on it.
    pub pa: u64,
    /// Number of bytes from `pa` on that the mapping holds for.
    pub run: u64,
}

/// A range of a device, and where its bytes go.
pub(crate) struct DeviceRange<'a> {
    pub device: u16,
    /// Byte address on the device.
    pub off: u64,
    pub buf: &'a mut [u8],
}

/// All devices of an image.
pub(crate) struct Devices {
    /// The primary device, then the extra devices that were given.
    list: Vec<OpenDevice>,
    slots: Vec<DeviceSlot>,
    /// Parts of the flat space that lie on extra devices: sorted, without overlaps. Empty without
    /// extra devices, and where they are all part of the primary one.
    mapped: Vec<Mapping>,
    /// Numbers of the extra devices that were not given and do not follow in the primary one.
    missing: Vec<u16>,
    block_bits: BlockBits,
    counters: Arc<Counters>,
    /// Largest number of bytes that any source wants fetched at once.
    fetch_max_len: usize,
}

struct OpenDevice {
    source: Arc<dyn ReadAt>,
    len: u64,
}

/// Bytes `start..end` of the flat space are on this device.
struct Mapping {
    start: u64,
    end: u64,
    device: u16,
}

impl OpenDevice {
    fn new(source: Arc<dyn ReadAt>) -> Result<Self, ReadError> {
        let len = source.len().map_err(|error| ReadError::io(0, 0, error))?;
        Ok(Self { source, len })
    }
}

impl Devices {
    /// Returns the primary device alone: enough to read the superblock.
    pub(crate) fn primary(source: Arc<dyn ReadAt>, counters: Arc<Counters>) -> Result<Self, ReadError> {
        let fetch_max_len = source.fetch_max_len();
        let list = vec![OpenDevice::new(source)?];
        let (slots, mapped, missing) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { list, slots, mapped, missing, block_bits: BlockBits::DEFAULT, counters, fetch_max_len })
    }

    /// Reads the device table and add the extra devices: all in its order, or none for a flat
    /// image.
    pub(crate) fn add_extra(&mut self, sb: &Superblock, extra: Vec<Arc<dyn ReadAt>>) -> Result<(), ReadError> {
        let expected = usize::from(sb.extra_devices);
        if !extra.is_empty() && extra.len() != expected {
            return Err(ReadError::DeviceCount { expected, given: extra.len() });
        }
        self.block_bits = sb.block_bits;
        self.slots = self.read_table(sb)?;
        let is_flat = extra.is_empty();
        for source in extra {
            self.fetch_max_len = self.fetch_max_len.max(source.fetch_max_len());
            self.list.push(OpenDevice::new(source)?);
        }
        for (slot, device) in self.slots.iter().zip(1..) {
            let mapping = mapping(slot, device, sb)?;
            if is_flat && self.follows(slot, mapping.as_ref()) {
                continue;
            }
            self.missing.extend(is_flat.then_some(device));
            self.mapped.extend(mapping);
        }
        self.mapped.sort_by_key(|m| m.start);
        match self.mapped.windows(2).find(|pair| pair[1].start < pair[0].end) {
            Some(pair) => {
                let device = pair[1].device.into();
                Err(ReadError::corrupt("erofs_deviceslot", sb.devt_off, "uniaddr", device, "devices overlap"))
            }
            None => Ok(()),
        }
    }

    /// Returns true if what would be on a device is part of the primary one.
    fn follows(&self, slot: &DeviceSlot, mapping: Option<&Mapping>) -> bool {
        slot.blocks == 0 || mapping.is_some_and(|mapping| mapping.end <= self.primary_len())
    }

    /// Returns the extra devices that are needed and not there, as an error.
    pub(crate) fn missing(&self) -> Option<ReadError> {
        (!self.missing.is_empty()).then(|| {
            let tag = |&device: &u16| self.slots[usize::from(device) - 1].tag.split(|&b| b == 0).next();
            let tags = self.missing.iter().map(|device| tag(device).unwrap_or_default().to_vec());
            ReadError::MissingDevices { tags: tags.collect() }
        })
    }

    fn read_table(&self, sb: &Superblock) -> Result<Vec<DeviceSlot>, ReadError> {
        if sb.extra_devices == 0 {
            return Ok(Vec::new());
        }
        let len = usize::from(sb.extra_devices) * DEVICE_SLOT_LEN;
        self.check_range("erofs_deviceslot", 0, sb.devt_off, len as u64)?;
        let mut bytes = vec![0; len];
        self.read(0, &mut bytes, sb.devt_off)?;
        let slot = |raw: &[u8]| {
            DeviceSlot::decode(
                RawDeviceSlot::ref_from_bytes(raw).expect("a chunk has the length of a slot"),
                sb.incompat,
            )
        };
        Ok(bytes.chunks_exact(DEVICE_SLOT_LEN).map(slot).collect())
    }

    pub(crate) fn slots(&self) -> &[DeviceSlot] {
        &self.slots
    }

    pub(crate) fn primary_len(&self) -> u64 {
        self.list[0].len
    }

    /// Returns the length of all devices in bytes.
    pub(crate) fn total_len(&self) -> u64 {
        self.list.iter().fold(0, |sum, device| device.len.saturating_add(sum))
    }

    /// Returns the length of a device in bytes; 0 for one that is not there.
    pub(crate) fn len(&self, device: u16) -> u64 {
        self.list.get(usize::from(device)).map_or(0, |d| d.len)
    }

    /// Returns the place of byte `addr` of the flat space.
    pub(crate) fn in_flat_space(&self, addr: u64) -> PhysicalRange {
        let behind = self.mapped.partition_point(|m| m.start <= addr);
        match behind.checked_sub(1).map(|idx| &self.mapped[idx]) {
            Some(m) if addr < m.end => PhysicalRange { device: m.device, pa: addr - m.start, run: m.end - addr },
            _ => {
                let run = self.mapped.get(behind).map_or(u64::MAX, |next| next.start) - addr;
                PhysicalRange { device: 0, pa: addr, run }
            }
        }
    }

    /// Returns the place of byte `off` of the device that `device_id` names in a chunk index.
    pub(crate) fn in_chunk_space(&self, device_id: u16, off: u64) -> Result<PhysicalRange, ReadError> {
        // The id is masked with the smallest 2^k - 1 that holds every device's number.
        let mask = (1u32 << (32 - (self.slots.len() as u32).leading_zeros())) - 1;
        let id = (u32::from(device_id) & mask) as u16;
        let Some(idx) = usize::from(id).checked_sub(1) else { return Ok(self.in_flat_space(off)) };
        let unknown = |reason| ReadError::corrupt("erofs_inode_chunk_index", off, "device_id", id.into(), reason);
        let slot = self.slots.get(idx).ok_or_else(|| unknown("no such device"))?;
        if self.list.len() > 1 || self.missing.contains(&id) {
            return Ok(PhysicalRange { device: id, pa: off, run: u64::MAX - off });
        }
        // All devices in one file: what would be on the device follows at its address in the flat
        // space.
        let start = slot.uniaddr.map_or(Some(0), |addr| self.block_bits.byte_off(addr));
        let pa = start.and_then(|start| start.checked_add(off)).ok_or_else(|| unknown("address over 64 bits"))?;
        Ok(PhysicalRange { device: 0, pa, run: u64::MAX - pa })
    }

    /// Refuses a range that is not wholly on its device, or whose device is missing: it is going to
    /// be read.
    pub(crate) fn check_range(&self, record: &'static str, device: u16, pa: u64, len: u64) -> Result<(), ReadError> {
        match self.missing.contains(&device) {
            true => self.missing().map_or(Ok(()), Err),
            false => within(record, pa, len, self.len(device)),
        }
    }

    /// Refuses a range that is not wholly on its device. Of one that is missing the table says how
    /// long it is.
    pub(crate) fn check_place(&self, record: &'static str, device: u16, pa: u64, len: u64) -> Result<(), ReadError> {
        let device_len = match self.missing.contains(&device) {
            true => self.slots[usize::from(device) - 1].blocks.saturating_mul(self.block_bits.len()),
            false => self.len(device),
        };
        within(record, pa, len, device_len)
    }

    /// Fills `buf` from byte `pa` of a device. The range must have been checked.
    pub(crate) fn read(&self, device: u16, buf: &mut [u8], pa: u64) -> Result<(), ReadError> {
        let source = &self.list[usize::from(device)].source;
        self.counters.fetched(buf.len());
        source.read_exact_at(buf, pa).map_err(|error| ReadError::io(pa, buf.len() as u64, error))
    }

    /// Returns the source of a device, if it is there.
    pub(crate) fn source(&self, device: u16) -> Option<&Arc<dyn ReadAt>> {
        self.list.get(usize::from(device)).map(|device| &device.source)
    }

    /// Fills all `ranges`, in one call for each device. They must have been checked, and sorted by
    /// address.
    pub(crate) fn fetch(&self, mut ranges: Vec<DeviceRange<'_>>) -> Result<(), ReadError> {
        ranges.chunk_by_mut(|one, other| one.device == other.device).try_for_each(|ranges| match ranges {
            [DeviceRange { device, off, buf }] => self.read(*device, buf, *off),
            ranges => self.fetch_of_one(ranges),
        })
    }

    /// Fills several ranges of one device.
    fn fetch_of_one(&self, ranges: &mut [DeviceRange<'_>]) -> Result<(), ReadError> {
        let Some(device) = ranges.first().map(|range| usize::from(range.device)) else { return Ok(()) };
        ranges.iter().for_each(|range| self.counters.fetched(range.buf.len()));
        let mut call: Vec<_> =
            ranges.iter_mut().map(|DeviceRange { off, buf, .. }| RangeMut { off: *off, buf }).collect();
        let Err(error) = self.list[device].source.read_ranges(&mut call) else { return Ok(()) };
        // The error does not say of which range it is: the first one that fails alone is named,
        // else all.
        let (start, mut end) = (ranges[0].off, 0);
        for DeviceRange { device, off, buf } in ranges {
            self.read(*device, buf, *off)?;
            end = *off + buf.len() as u64;
        }
        Err(ReadError::io(start, end.saturating_sub(start), error))
    }

    /// Returns true if the bytes of a device from `pa` on are in its source's memory. The range
    /// must have been checked.
    pub(crate) fn is_in_memory(&self, device: u16, pa: u64, len: usize) -> bool {
        self.list[usize::from(device)].source.borrow(pa, len).is_some()
    }

    /// Returns the bytes of a device from `pa` on, where its source has them in memory. The range
    /// must have been checked.
    pub(crate) fn borrow(&self, device: u16, pa: u64, len: usize) -> Option<&[u8]> {
        let bytes = self.list[usize::from(device)].source.borrow(pa, len)?;
        self.counters.fetched(len);
        Some(bytes)
    }

    /// Returns most bytes that one read should fetch at once: as many as the source wants that
    /// wants most.
    pub(crate) fn fetch_max_len(&self) -> usize {
        self.fetch_max_len.min(FETCH_MAX_LEN)
    }

    /// Returns true if the bytes of a device from `pa` on are probably in memory, or `None` if its
    /// source cannot tell.
    pub(crate) fn is_resident(&self, device: u16, pa: u64, len: u64) -> Option<bool> {
        self.list.get(usize::from(device))?.source.is_resident(pa, len)
    }

    /// Tells a device's source that these bytes will be read soon.
    pub(crate) fn will_need(&self, device: u16, pa: u64, len: u64) {
        if let Some(device) = self.list.get(usize::from(device)) {
            device.source.will_need(pa, len);
        }
    }
}

fn within(record: &'static str, pa: u64, len: u64, device_len: u64) -> Result<(), ReadError> {
    match pa.checked_add(len) {
        Some(end) if end <= device_len => Ok(()),
        _ => Err(FormatError::corrupt(record, pa, "length", len, "not wholly on its device: is the image cut off?"))?,
    }
}

/// Returns the part of the flat space that a slot claims.
fn mapping(slot: &DeviceSlot, device: u16, sb: &Superblock) -> Result<Option<Mapping>, ReadError> {
    let Some(uniaddr) = slot.uniaddr.filter(|_| slot.blocks > 0) else { return Ok(None) };
    // Both have at most 48 bits and blocks at most 16, so nothing here exceeds 64 bits by more than
    // a carry.
    let start = sb.block_bits.byte_off(uniaddr);
    let end = uniaddr.0.checked_add(slot.blocks).and_then(|end| end.checked_mul(sb.block_bits.len()));
    match (start, end) {
        (Some(start), Some(end)) => Ok(Some(Mapping { start, end, device })),
        _ => Err(ReadError::corrupt("erofs_deviceslot", sb.devt_off, "uniaddr", uniaddr.0, "address over 64 bits")),
    }
}

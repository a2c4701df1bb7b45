//! The device table: extra devices whose blocks continue the flat data space.

use crate::{Blkaddr, FormatError, Incompat};
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of a device slot in bytes.
pub const DEVICE_SLOT_LEN: usize = 128;

/// `struct erofs_deviceslot`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawDeviceSlot {
    /// Free text.
    pub tag: [u8; 64],
    /// Low half of the size in blocks.
    pub blocks_lo: U32,
    /// Low half of the first block in the flat data space.
    pub uniaddr_lo: U32,
    /// High half of the size.
    pub blocks_hi: U16,
    /// High half of the first block.
    pub uniaddr_hi: U16,
    /// Zero.
    pub reserved: [u8; 52],
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<RawDeviceSlot>() == DEVICE_SLOT_LEN);
    assert!(offset_of!(RawDeviceSlot, tag) == 0);
    assert!(offset_of!(RawDeviceSlot, blocks_lo) == 64);
    assert!(offset_of!(RawDeviceSlot, uniaddr_lo) == 68);
    assert!(offset_of!(RawDeviceSlot, blocks_hi) == 72);
    assert!(offset_of!(RawDeviceSlot, uniaddr_hi) == 74);
    assert!(offset_of!(RawDeviceSlot, reserved) == 76);
};

/// Checked form of a device slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSlot {
    /// Free text: a digest or a path, zero-terminated.
    pub tag: [u8; 64],
    /// Size in blocks.
    pub blocks: u64,
    /// First block in the flat data space; `None` if the device is not mapped there.
    pub uniaddr: Option<Blkaddr>,
}

impl DeviceSlot {
    /// Decodes a slot. The high halves are ignored without 48BIT.
    pub fn decode(raw: &RawDeviceSlot, incompat: Incompat) -> Self {
        let hi = |field: U16| match incompat.contains(Incompat::ADDR_48BIT) {
            true => u64::from(field.get()) << 32,
            false => 0,
        };
        let uniaddr = u64::from(raw.uniaddr_lo.get()) | hi(raw.uniaddr_hi);
        Self {
            tag: raw.tag,
            blocks: u64::from(raw.blocks_lo.get()) | hi(raw.blocks_hi),
            uniaddr: (uniaddr != 0).then_some(Blkaddr(uniaddr)),
        }
    }

    /// Returns the slot's record. The high halves are 0.
    ///
    /// # Errors
    /// Numbers over 32 bits.
    pub fn encode(&self) -> Result<RawDeviceSlot, FormatError> {
        let small = |field, value: u64| {
            u32::try_from(value).map(U32::new).map_err(|_| FormatError::does_not_fit("erofs_deviceslot", field, value))
        };
        Ok(RawDeviceSlot {
            tag: self.tag,
            blocks_lo: small("blocks", self.blocks)?,
            uniaddr_lo: small("uniaddr", self.uniaddr.map_or(0, |addr| addr.0))?,
            blocks_hi: U16::ZERO,
            uniaddr_hi: U16::ZERO,
            reserved: [0; 52],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_back() {
        for (blocks, uniaddr) in [(0, None), (7, Some(9)), (u32::MAX.into(), Some(u32::MAX.into()))] {
            let slot = DeviceSlot { tag: [b'x'; 64], blocks, uniaddr: uniaddr.map(Blkaddr) };
            for incompat in [Incompat::DEVICE_TABLE, Incompat::DEVICE_TABLE | Incompat::ADDR_48BIT] {
                assert_eq!(DeviceSlot::decode(&slot.encode().unwrap(), incompat), slot);
            }
        }
        assert!(DeviceSlot { tag: [0; 64], blocks: 1 << 32, uniaddr: None }.encode().is_err());
    }
}

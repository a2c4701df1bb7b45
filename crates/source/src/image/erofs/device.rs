//! Images as devices, to which another image refers.

use kiln_format::device::DeviceSlot;
use kiln_read::{ExtentKind, Image, Inode};
use kiln_tree::{ContentError, Device, PlacedRun};
use std::io;
use std::path::{Path, PathBuf};

use super::problem::failed;

/// Devices to which another image can refer: the image itself, or its extra devices if it has any.
pub(super) struct ImageDevices {
    /// Name of the image in error messages.
    name: PathBuf,
    /// Extra devices in the image's device table.
    slots: Vec<DeviceSlot>,
    pub devices: Vec<Device>,
    /// log2 of the image's block size.
    block_bits: u8,
}

impl ImageDevices {
    /// Returns the devices of `image`, which is at byte `offset` of the file `path`. `extra` has
    /// the paths of its extra devices, as far as they are given.
    pub(super) fn of(image: &Image, (path, offset): (&Path, u64), extra: &[PathBuf]) -> Self {
        let superblock = image.superblock();
        let (block_bits, slots) = (superblock.block_bits, image.device_slots().to_vec());
        let uuid = uuid_tag(superblock.uuid);
        let len = |blocks: u64| blocks.saturating_mul(block_bits.len());
        // The rest of a truncated image does not count.
        let own_len = len(superblock.blocks).min(image.source_len());
        let own = || vec![Device { path: (offset == 0).then(|| path.to_owned()), tag: uuid, len: own_len }];
        let tag = |slot: &DeviceSlot| if slot.tag[0] == 0 { uuid } else { slot.tag };
        let device = |(idx, slot): (usize, &DeviceSlot)| Device {
            path: extra.get(idx).cloned(),
            tag: tag(slot),
            len: len(slot.blocks),
        };
        let devices = if slots.is_empty() { own() } else { slots.iter().enumerate().map(device).collect() };
        Self { name: path.to_owned(), slots, devices, block_bits: block_bits.bits() }
    }

    /// Returns the position of a file's data.
    ///
    /// # Errors
    /// A file with compressed or inline data, or with data in the image itself while it has extra
    /// devices; an unreadable map.
    pub(super) fn place(&self, image: &Image, inode: &Inode) -> Result<Vec<PlacedRun>, ContentError> {
        let (mut runs, mut la) = (Vec::new(), 0);
        while la < inode.meta.size {
            let extent = image.extent_at(inode, la).map_err(failed)?;
            match extent.kind {
                ExtentKind::Hole => {}
                ExtentKind::Raw { device, pa } => runs.push(self.run(extent.la, (device, pa), extent.llen)?),
                ExtentKind::Meta { .. } => return Err(self.refuse("flat, with its end beside the inode (inline data)")),
                _ => return Err(self.refuse("compressed")),
            }
            la = extent.end();
        }
        Ok(runs)
    }

    /// Returns a run of `len` bytes at byte `pa` of a device of the image.
    fn run(&self, la: u64, (device, pa): (u16, u64), len: u64) -> Result<PlacedRun, ContentError> {
        let first_byte = |slot: &DeviceSlot| slot.uniaddr.map(|start| start.0 << self.block_bits);
        let in_flat_space = |slot: &DeviceSlot| {
            let off = pa.checked_sub(first_byte(slot)?)?;
            (off.checked_add(len)? <= slot.blocks << self.block_bits).then_some(off)
        };
        match device.checked_sub(1) {
            Some(device) => Ok(PlacedRun { la, device, pa, len }),
            None if self.slots.is_empty() => Ok(PlacedRun { la, device: 0, pa, len }),
            None => {
                let found = (0..).zip(&self.slots).find_map(|(device, slot)| Some((device, in_flat_space(slot)?)));
                let refuse = || self.refuse("in the image itself, which has extra devices");
                found.map(|(device, pa)| PlacedRun { la, device, pa, len }).ok_or_else(refuse)
            }
        }
    }

    /// Returns the error for a file whose layout cannot be referred to.
    fn refuse(&self, layout: &str) -> ContentError {
        let reason = format!(
            "stored {layout} in {}: another image can refer only to flat files and chunks. Make the image uncompressed and without \
             inline data (mkfs.erofs -Enoinline_data, kiln pack --no-inline-data), or copy the contents (mkfs.erofs --clean=data, kiln pack \
             without --reference)",
            self.name.display()
        );
        io::Error::new(io::ErrorKind::Unsupported, reason).into()
    }
}

/// Returns the tag of a device without a name: its UUID in hexadecimal.
fn uuid_tag(uuid: [u8; 16]) -> [u8; 64] {
    let mut tag = [0; 64];
    let digits = uuid.iter().flat_map(|byte| [byte >> 4, byte & 0xF]);
    tag.iter_mut().zip(digits).for_each(|(to, digit)| *to = b"0123456789abcdef"[usize::from(digit)]);
    tag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_a_tag_in_hex() {
        let mut uuid = [0; 16];
        (uuid[0], uuid[1], uuid[15]) = (0x01, 0xC5, 0xFA);
        let tag = uuid_tag(uuid);
        assert!(tag.starts_with(b"01c500") && tag[30..32] == *b"fa" && tag[32..] == [0; 32]);
    }
}

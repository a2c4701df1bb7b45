//! Damage to images, as by bad sectors, bad downloads and attackers.

use crate::rng::Rng;
use std::ops::Range;

/// Edge values of sizes, counts and addresses.
const EDGES: [u64; 10] =
    [0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF, u64::MAX >> 1, u64::MAX];

/// Generator of damage.
pub struct Damager {
    rng: Rng,
    /// Ranges where damage matters most.
    metadata: Vec<Range<usize>>,
    block_len: usize,
}

impl Damager {
    /// Creates a generator for images with `metadata` and blocks of `block_len` bytes. Equal seeds
    /// give equal damage.
    pub fn new(seed: u64, metadata: Vec<Range<usize>>, block_len: usize) -> Self {
        Self { rng: Rng::new(seed), metadata, block_len }
    }

    /// Damages `bytes`; `other` is another image. Returns a description for messages.
    pub fn damage(&mut self, bytes: &mut Vec<u8>, other: &[u8]) -> String {
        match self.rng.below(20) {
            0 => self.cut(bytes),
            1 => self.fill_block(bytes),
            2 => self.copy_block(bytes),
            3 => self.splice(bytes, other),
            _ => self.change_fields(bytes),
        }
    }

    /// Damages only some bytes. Returns a description.
    pub fn change_fields(&mut self, bytes: &mut [u8]) -> String {
        let count = 1 + self.rng.below(4);
        (0..count).map(|_| self.change_field(bytes)).collect::<Vec<_>>().join(", ")
    }

    fn change_field(&mut self, bytes: &mut [u8]) -> String {
        let at = self.place(bytes.len());
        match self.rng.below(4) {
            0 => {
                bytes[at] ^= 1 << self.rng.below(8);
                format!("byte {at} = {:#x}", bytes[at])
            }
            1 => {
                bytes[at] = self.rng.word() as u8;
                format!("byte {at} = {:#x}", bytes[at])
            }
            _ => {
                let len = *self.rng.pick(&[1, 2, 4, 6, 8]);
                let at = at & !(len.min(4) - 1);
                let edge = self.rng.pick(&EDGES).wrapping_add(self.rng.below(3)).wrapping_sub(1);
                let end = bytes.len().min(at + len);
                bytes[at..end].copy_from_slice(&edge.to_le_bytes()[..end - at]);
                format!("{} bytes at {at} = {edge:#x}", end - at)
            }
        }
    }

    /// Returns a place to damage, more often in metadata than in contents.
    fn place(&mut self, len: usize) -> usize {
        if self.rng.below(8) > 0 {
            let range = self.rng.pick(&self.metadata).clone();
            if !range.is_empty() && range.end <= len {
                return range.start + self.rng.below(range.len() as u64) as usize;
            }
        }
        self.rng.below(len as u64) as usize
    }

    fn cut(&mut self, bytes: &mut Vec<u8>) -> String {
        bytes.truncate(self.rng.below(bytes.len() as u64) as usize);
        // Some files end anywhere, most at a block boundary.
        if self.rng.below(3) > 0 {
            bytes.truncate(bytes.len() / self.block_len * self.block_len);
        }
        format!("cut to {} bytes", bytes.len())
    }

    fn block(&mut self, len: usize) -> Range<usize> {
        let start = self.place(len) / self.block_len * self.block_len;
        start..len.min(start + self.block_len)
    }

    fn fill_block(&mut self, bytes: &mut [u8]) -> String {
        let block = self.block(bytes.len());
        let byte = *self.rng.pick(&[0, 0, 0xFF, b'a']);
        bytes[block.clone()].fill(byte);
        format!("bytes {block:?} are {byte:#x}")
    }

    fn copy_block(&mut self, bytes: &mut [u8]) -> String {
        let (from, to) = (self.block(bytes.len()), self.block(bytes.len()));
        let len = from.len().min(to.len());
        let moved = bytes[to.start..to.start + len].to_vec();
        bytes.copy_within(from.start..from.start + len, to.start);
        if self.rng.below(2) == 0 {
            return format!("bytes {from:?} are at {} too", to.start);
        }
        bytes[from.start..from.start + len].copy_from_slice(&moved);
        format!("bytes {from:?} and {to:?} are swapped")
    }

    /// Overwrites a run of blocks with blocks of another image.
    fn splice(&mut self, bytes: &mut [u8], other: &[u8]) -> String {
        let blocks = 1 + self.rng.below(8) as usize;
        let to = self.place(bytes.len()) / self.block_len * self.block_len;
        let from = (self.rng.below(1 + other.len() as u64) as usize / self.block_len * self.block_len).min(other.len());
        let len = (blocks * self.block_len).min(bytes.len() - to).min(other.len() - from);
        bytes[to..to + len].copy_from_slice(&other[from..from + len]);
        format!("{len} bytes at {to} are those at {from} of another image")
    }
}

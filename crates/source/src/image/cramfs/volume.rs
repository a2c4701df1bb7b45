//! Bytes of an image and their byte order.

use kiln_read::ReadAt;
use std::io;
use std::sync::Arc;

/// Byte order of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    /// Returns the words in `bytes`; an incomplete last word is ignored.
    pub(super) fn words(self, bytes: &[u8]) -> impl Iterator<Item = u32> {
        let (words, _) = bytes.as_chunks();
        words.iter().map(move |word| match self {
            Self::Little => u32::from_le_bytes(*word),
            Self::Big => u32::from_be_bytes(*word),
        })
    }

    /// Splits a word into two bit fields, of which the first has `bits` bits.
    pub(super) fn split(self, word: u32, bits: u32) -> (u32, u32) {
        let low = |bits| word & (u32::MAX >> (32 - bits));
        match self {
            Self::Little => (low(bits), word >> bits),
            Self::Big => (word >> (32 - bits), low(32 - bits)),
        }
    }
}

/// An open image.
#[derive(Clone)]
pub(super) struct Volume {
    pub bytes: Arc<dyn ReadAt>,
    pub order: Order,
    /// Offset of the root inode in bytes. Nothing before it belongs to a file.
    pub root_off: u64,
    /// Length of the image in bytes.
    pub len: u64,
}

impl Volume {
    /// Fills `buf` from byte `off`.
    ///
    /// # Errors
    /// Bytes beyond the end of the image; read errors.
    pub(super) fn read(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        match off.checked_add(buf.len() as u64) {
            Some(end) if end <= self.len => self.bytes.read_exact_at(buf, off),
            _ => Err(invalid(format!("{} bytes at byte {off} of an image of {}", buf.len(), self.len))),
        }
    }

    /// Reads `len` bytes at `off`, which must be data of an inode.
    ///
    /// # Errors
    /// Those of [`Volume::read`]; bytes of the superblock.
    pub(super) fn read_vec(&self, off: u64, len: u64) -> io::Result<Vec<u8>> {
        if off <= self.root_off || off > self.len || len > self.len - off {
            let (root_off, image_len) = (self.root_off, self.len);
            return Err(invalid(format!("{len} bytes at byte {off} are not within {root_off} to {image_len}")));
        }
        let mut buf = vec![0; len as usize];
        self.read(&mut buf, off).map(|()| buf)
    }
}

/// Returns an error for data that violates the format.
pub(super) fn invalid(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_fields_are_low_in_little_words_and_high_in_big_ones() {
        assert_eq!(Order::Little.split(0xAABB_CCDD, 24), (0x00BB_CCDD, 0xAA));
        assert_eq!(Order::Big.split(0xAABB_CCDD, 24), (0x00AA_BBCC, 0xDD));
        assert_eq!(Order::Little.words(&[1, 2, 3, 4, 5]).collect::<Vec<_>>(), [0x0403_0201]);
        assert_eq!(Order::Big.words(&[1, 2, 3, 4, 5]).collect::<Vec<_>>(), [0x0102_0304]);
    }
}

//! Directory blocks: 12-byte records, followed by the names.

use crate::{FormatError, Nid};
use zerocopy::byteorder::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of a directory entry's record in bytes.
pub const DIRENT_LEN: usize = 12;
/// Longest name in bytes.
pub const NAME_MAX_LEN: usize = 255;
/// Longest path in bytes, with a slash before each name. The format sets no limit, but programs
/// cannot use deeper trees, and a hostile tree would cost readers time quadratic in its depth.
pub const PATH_MAX_LEN: usize = 64 << 10;

const RECORD: &str = "erofs_dirent";

/// `struct erofs_dirent`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawDirent {
    /// Nid of the inode.
    pub nid: U64,
    /// Offset of the name from the start of the block.
    pub nameoff: U16,
    /// Type, for `d_type`.
    pub file_type: u8,
    /// Zero.
    pub reserved: u8,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<RawDirent>() == DIRENT_LEN);
    assert!(offset_of!(RawDirent, nid) == 0);
    assert!(offset_of!(RawDirent, nameoff) == 8);
    assert!(offset_of!(RawDirent, file_type) == 10);
    assert!(offset_of!(RawDirent, reserved) == 11);
};

/// Entry of a directory block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirent<'a> {
    /// Nid of the inode.
    pub nid: Nid,
    /// Type number; only a hint for `d_type`.
    pub file_type: u8,
    /// Name: 1 to 255 bytes without zero.
    pub name: &'a [u8],
}

/// Directory block with a checked header.
#[derive(Clone, Copy, Debug)]
pub struct DirBlock<'a> {
    bytes: &'a [u8],
    at: u64,
    count: usize,
}

impl<'a> DirBlock<'a> {
    /// Checks the header of the block in `bytes`, which ends at the directory's size. `at` is the
    /// block's byte offset in the directory, for error messages.
    ///
    /// # Errors
    /// A first `nameoff` that is below 12, not a multiple of 12, or outside the block.
    pub fn new(bytes: &'a [u8], at: u64) -> Result<Self, FormatError> {
        let corrupt = |nameoff: u16, reason| Err(FormatError::corrupt(RECORD, at, "nameoff", nameoff.into(), reason));
        let Ok((first, _)) = RawDirent::ref_from_prefix(bytes) else {
            return corrupt(0, "block too short for an entry");
        };
        let nameoff = first.nameoff.get();
        match usize::from(nameoff) {
            off if off < DIRENT_LEN || off >= bytes.len() => corrupt(nameoff, "first name outside the block"),
            off if !off.is_multiple_of(DIRENT_LEN) => corrupt(nameoff, "not a multiple of 12"),
            off => Ok(Self { bytes, at, count: off / DIRENT_LEN }),
        }
    }

    /// Returns the number of entries, at least 1.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns entry `idx`.
    ///
    /// # Panics
    /// If `idx` is not below [`DirBlock::len`].
    ///
    /// # Errors
    /// A name outside the block, empty, longer than 255 bytes, or with a zero byte or a slash.
    pub fn entry(&self, idx: usize) -> Result<Dirent<'a>, FormatError> {
        let raw = self.raw(idx);
        let start = usize::from(raw.nameoff.get());
        let last = idx + 1 == self.count;
        let end = if last { self.bytes.len() } else { usize::from(self.raw(idx + 1).nameoff.get()) };
        let corrupt = |reason| {
            let at = self.at + (idx * DIRENT_LEN) as u64;
            FormatError::corrupt(RECORD, at, "nameoff", start as u64, reason)
        };
        let mut name = self
            .bytes
            .get(start..end)
            .filter(|_| start >= self.count * DIRENT_LEN)
            .ok_or_else(|| corrupt("name outside the block"))?;
        if last {
            name = &name[..name.iter().position(|&b| b == 0).unwrap_or(name.len())];
        }
        if name.is_empty() || name.len() > NAME_MAX_LEN {
            return Err(corrupt("name is not 1 to 255 bytes long"));
        }
        if name.iter().any(|&b| b == 0 || b == b'/') {
            return Err(corrupt("name with a zero byte or a slash"));
        }
        Ok(Dirent { nid: Nid(raw.nid.get()), file_type: raw.file_type, name })
    }

    /// Returns all entries in order.
    pub fn entries(self) -> impl Iterator<Item = Result<Dirent<'a>, FormatError>> {
        (0..self.count).map(move |idx| self.entry(idx))
    }

    fn raw(&self, idx: usize) -> &'a RawDirent {
        let off = idx * DIRENT_LEN;
        RawDirent::ref_from_bytes(&self.bytes[off..off + DIRENT_LEN]).expect("exact length, alignment 1")
    }
}

/// Returns the bytes that an entry with a name of `name_len` bytes takes in its block.
pub fn entry_len(name_len: usize) -> usize {
    DIRENT_LEN + name_len
}

/// Writes a block's entries, in the order given, to the front of `out`. The rest of `out` stays as
/// it is.
///
/// # Errors
/// Entries that do not fit in `out`; a name that is empty, longer than 255 bytes, or has a zero
/// byte or a slash.
pub fn encode_block(entries: &[Dirent<'_>], out: &mut [u8]) -> Result<(), FormatError> {
    let mut nameoff = entries.len() * DIRENT_LEN;
    for (idx, entry) in entries.iter().enumerate() {
        let end = nameoff + entry.name.len();
        let is_name =
            (1..=NAME_MAX_LEN).contains(&entry.name.len()) && !entry.name.iter().any(|&b| b == 0 || b == b'/');
        if end > out.len() || !is_name {
            return Err(FormatError::does_not_fit(RECORD, "nameoff", end as u64));
        }
        let start = u16::try_from(nameoff).map_err(|_| FormatError::does_not_fit(RECORD, "nameoff", nameoff as u64))?;
        let raw = RawDirent { nid: entry.nid.0.into(), nameoff: start.into(), file_type: entry.file_type, reserved: 0 };
        out[idx * DIRENT_LEN..(idx + 1) * DIRENT_LEN].copy_from_slice(raw.as_bytes());
        out[nameoff..end].copy_from_slice(entry.name);
        nameoff = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_reads_back() {
        let names: [&[u8]; 4] = [b"!", b".", b"..", b"name with \xff"];
        let entries: Vec<_> =
            names.iter().enumerate().map(|(i, &name)| Dirent { nid: Nid(i as u64), file_type: 2, name }).collect();
        let mut block = [0; 128];
        encode_block(&entries, &mut block).unwrap();
        let read: Vec<_> = DirBlock::new(&block, 0).unwrap().entries().map(Result::unwrap).collect();
        assert_eq!(read, entries);
        // If the block is filled to the last byte, no zero follows the last name.
        let used: usize = names.iter().map(|n| entry_len(n.len())).sum();
        let mut exact = vec![0; used];
        encode_block(&entries, &mut exact).unwrap();
        assert_eq!(DirBlock::new(&exact, 0).unwrap().entry(3).unwrap().name, names[3]);
        assert!(encode_block(&entries, &mut exact[1..]).is_err());
    }

    #[test]
    fn hostile_blocks_are_errors() {
        assert!(DirBlock::new(&[0; 4096], 0).is_err());
        assert!(DirBlock::new(&[0; 11], 0).is_err());
        for nameoff in [0u16, 11, 13, 4096, 65535] {
            let mut block = vec![0; 4096];
            block[8..10].copy_from_slice(&nameoff.to_le_bytes());
            assert!(DirBlock::new(&block, 0).is_err(), "{nameoff}");
        }
    }
}

//! Compression algorithms, and their configuration records after the superblock.

use crate::FormatError;
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Largest physical cluster that kernels accept, in bytes.
pub const PCLUSTER_MAX_LEN: usize = 1 << 20;

/// Longest extent that kernels decode, in bytes of plain text.
pub const EXTENT_MAX_LEN: usize = 12 << 20;

/// Compression algorithm, numbered as on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Algorithm {
    /// LZ4 block format, no frame.
    Lz4 = 0,
    /// LZMA1 without header and end marker; the first byte is replaced by the inverted properties.
    Lzma = 1,
    /// Raw DEFLATE (RFC 1951).
    Deflate = 2,
    /// One Zstandard frame.
    Zstd = 3,
}

impl Algorithm {
    /// All algorithms in the order of their numbers.
    pub const ALL: [Algorithm; 4] = [Algorithm::Lz4, Algorithm::Lzma, Algorithm::Deflate, Algorithm::Zstd];

    /// Returns the algorithm with this number on disk.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Returns the name that users and the kernel's documentation use.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Lz4 => "lz4",
            Algorithm::Lzma => "lzma",
            Algorithm::Deflate => "deflate",
            Algorithm::Zstd => "zstd",
        }
    }

    /// Returns the algorithm's bit in `available_compr_algs`.
    pub fn bit(self) -> u16 {
        1 << self as u8
    }
}

/// Configuration of LZ4.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawLz4Cfgs {
    /// Longest match distance in bytes, 0 for 65535.
    pub max_distance: U16,
    /// Largest LZ4 pcluster in blocks, 0 for 1.
    pub max_pclusterblks: U16,
    /// Zero.
    pub reserved: [u8; 10],
}

/// Configuration of MicroLZMA.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawLzmaCfgs {
    /// Dictionary size in bytes: 4 KiB to 8 MiB.
    pub dict_size: U32,
    /// Zero.
    pub format: U16,
    /// Zero.
    pub reserved: [u8; 8],
}

/// Configuration of DEFLATE.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawDeflateCfgs {
    /// log2 of the window, at most 15.
    pub windowbits: u8,
    /// Zero.
    pub reserved: [u8; 5],
}

/// Configuration of Zstandard.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawZstdCfgs {
    /// Zero.
    pub format: u8,
    /// log2 of the window, minus 10; at most 10.
    pub windowlog: u8,
    /// Zero.
    pub reserved: [u8; 4],
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<RawLz4Cfgs>() == 14);
    assert!(offset_of!(RawLz4Cfgs, max_distance) == 0);
    assert!(offset_of!(RawLz4Cfgs, max_pclusterblks) == 2);
    assert!(offset_of!(RawLz4Cfgs, reserved) == 4);
    assert!(size_of::<RawLzmaCfgs>() == 14);
    assert!(offset_of!(RawLzmaCfgs, dict_size) == 0);
    assert!(offset_of!(RawLzmaCfgs, format) == 4);
    assert!(offset_of!(RawLzmaCfgs, reserved) == 6);
    assert!(size_of::<RawDeflateCfgs>() == 6);
    assert!(offset_of!(RawDeflateCfgs, windowbits) == 0);
    assert!(offset_of!(RawDeflateCfgs, reserved) == 1);
    assert!(size_of::<RawZstdCfgs>() == 6);
    assert!(offset_of!(RawZstdCfgs, format) == 0);
    assert!(offset_of!(RawZstdCfgs, windowlog) == 1);
    assert!(offset_of!(RawZstdCfgs, reserved) == 2);
};

/// Contents of the configuration records. An algorithm without a record is not used in the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ComprCfgs {
    /// LZ4: longest match distance in bytes and largest pcluster in blocks.
    pub lz4: Option<Lz4Cfg>,
    /// MicroLZMA: dictionary size in bytes.
    pub lzma_dict_size: Option<u32>,
    /// DEFLATE: log2 of the window.
    pub deflate_windowbits: Option<u8>,
    /// Zstandard: log2 of the window.
    pub zstd_windowlog: Option<u8>,
}

/// Limits of LZ4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lz4Cfg {
    /// Longest match distance in bytes.
    pub max_distance: u16,
    /// Largest LZ4 pcluster in blocks.
    pub max_pclusterblks: u16,
}

impl ComprCfgs {
    /// Returns the bit set for `available_compr_algs`.
    pub fn algorithms(&self) -> u16 {
        Algorithm::ALL.into_iter().filter(|&a| self.has(a)).map(Algorithm::bit).sum()
    }

    /// Returns true if the image may use `algorithm`.
    pub fn has(&self, algorithm: Algorithm) -> bool {
        match algorithm {
            Algorithm::Lz4 => self.lz4.is_some(),
            Algorithm::Lzma => self.lzma_dict_size.is_some(),
            Algorithm::Deflate => self.deflate_windowbits.is_some(),
            Algorithm::Zstd => self.zstd_windowlog.is_some(),
        }
    }

    /// Decodes the records of the algorithms in `available`. `bytes` begins with the first record,
    /// at byte `at` of the image.
    ///
    /// # Errors
    /// An unknown algorithm, a record that is cut off or too short, or a value outside the kernel's
    /// limits.
    pub fn decode(available: u16, bytes: &[u8], at: u64) -> Result<Self, FormatError> {
        if available >> Algorithm::ALL.len() != 0 {
            let (record, field) = ("erofs_super_block", "available_compr_algs");
            return Err(FormatError::unsupported(record, at, field, available.into(), "unknown compression algorithm"));
        }
        let mut cfgs = Self::default();
        let mut off = 0usize;
        for algorithm in Algorithm::ALL.into_iter().filter(|a| available & a.bit() != 0) {
            let record = Record::of(algorithm);
            let (payload, next) = record.payload(bytes, off, at)?;
            cfgs.decode_one(record, payload, at + off as u64 + 2)?;
            off = next;
        }
        Ok(cfgs)
    }

    fn decode_one(&mut self, record: Record, payload: &[u8], at: u64) -> Result<(), FormatError> {
        let corrupt = |field, value, reason| Err(FormatError::corrupt(record.name, at, field, value, reason));
        // `payload` holds at least the record: `Record::payload` has checked that.
        match record.algorithm {
            Algorithm::Lz4 => {
                let raw = RawLz4Cfgs::read_from_prefix(payload).expect("length checked").0;
                let or = |value: u16, default| if value == 0 { default } else { value };
                let max_pclusterblks = or(raw.max_pclusterblks.get(), 1);
                if max_pclusterblks > 2048 {
                    return corrupt("max_pclusterblks", max_pclusterblks.into(), "must be at most 2048");
                }
                self.lz4 = Some(Lz4Cfg { max_distance: or(raw.max_distance.get(), u16::MAX), max_pclusterblks });
            }
            Algorithm::Lzma => {
                let raw = RawLzmaCfgs::read_from_prefix(payload).expect("length checked").0;
                if raw.format.get() != 0 {
                    return corrupt("format", raw.format.get().into(), "must be 0");
                }
                if !(4096..=8 << 20).contains(&raw.dict_size.get()) {
                    return corrupt("dict_size", raw.dict_size.get().into(), "must be 4 KiB to 8 MiB");
                }
                self.lzma_dict_size = Some(raw.dict_size.get());
            }
            Algorithm::Deflate => {
                let raw = RawDeflateCfgs::read_from_prefix(payload).expect("length checked").0;
                if raw.windowbits > 15 {
                    return corrupt("windowbits", raw.windowbits.into(), "must be at most 15");
                }
                self.deflate_windowbits = Some(raw.windowbits);
            }
            Algorithm::Zstd => {
                let raw = RawZstdCfgs::read_from_prefix(payload).expect("length checked").0;
                if raw.format != 0 {
                    return corrupt("format", raw.format.into(), "must be 0");
                }
                if raw.windowlog > 10 {
                    return corrupt("windowlog", raw.windowlog.into(), "must be at most 10, a window of 1 MiB");
                }
                self.zstd_windowlog = Some(raw.windowlog + 10);
            }
        }
        Ok(())
    }

    /// Returns the records as they lie after the superblock: each a length and its bytes, at
    /// multiples of 4.
    ///
    /// # Errors
    /// Values outside the kernel's limits.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let out = self.encode_unchecked();
        match Self::decode(self.algorithms(), &out, 0) {
            Ok(decoded) if decoded == *self => Ok(out),
            Ok(_) => Err(FormatError::does_not_fit("z_erofs_lz4_cfgs", "max_distance, max_pclusterblks", 0)),
            Err(error) => Err(FormatError { problem: crate::Problem::DoesNotFit, ..error }),
        }
    }

    fn encode_unchecked(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |record: &[u8]| {
            out.resize(out.len().next_multiple_of(4), 0);
            out.extend_from_slice(&(record.len() as u16).to_le_bytes());
            out.extend_from_slice(record);
        };
        if let Some(lz4) = self.lz4 {
            let (max_distance, max_pclusterblks) = (lz4.max_distance.into(), lz4.max_pclusterblks.into());
            put(RawLz4Cfgs { max_distance, max_pclusterblks, ..Default::default() }.as_bytes());
        }
        if let Some(dict_size) = self.lzma_dict_size {
            put(RawLzmaCfgs { dict_size: dict_size.into(), ..Default::default() }.as_bytes());
        }
        if let Some(windowbits) = self.deflate_windowbits {
            put(RawDeflateCfgs { windowbits, ..Default::default() }.as_bytes());
        }
        if let Some(windowlog) = self.zstd_windowlog {
            put(RawZstdCfgs { windowlog: windowlog.wrapping_sub(10), ..Default::default() }.as_bytes());
        }
        out
    }
}

/// Name and length of an algorithm's record.
#[derive(Clone, Copy)]
struct Record {
    algorithm: Algorithm,
    name: &'static str,
    len: usize,
}

impl Record {
    fn of(algorithm: Algorithm) -> Self {
        let (name, len) = match algorithm {
            Algorithm::Lz4 => ("z_erofs_lz4_cfgs", size_of::<RawLz4Cfgs>()),
            Algorithm::Lzma => ("z_erofs_lzma_cfgs", size_of::<RawLzmaCfgs>()),
            Algorithm::Deflate => ("z_erofs_deflate_cfgs", size_of::<RawDeflateCfgs>()),
            Algorithm::Zstd => ("z_erofs_zstd_cfgs", size_of::<RawZstdCfgs>()),
        };
        Self { algorithm, name, len }
    }

    /// Returns the record's bytes at `off`, and the offset of the next record.
    fn payload<'a>(&self, bytes: &'a [u8], off: usize, at: u64) -> Result<(&'a [u8], usize), FormatError> {
        let here = at + off as u64;
        let (len, rest) = bytes
            .get(off..)
            .and_then(|b| b.split_first_chunk::<2>())
            .ok_or_else(|| FormatError::corrupt(self.name, here, "size", 0, "cut off by the end of the image"))?;
        let len = usize::from(u16::from_le_bytes(*len));
        if len < self.len {
            return Err(FormatError::corrupt(self.name, here, "size", len as u64, "shorter than the record"));
        }
        let payload = rest.get(..len).ok_or_else(|| {
            FormatError::corrupt(self.name, here, "size", len as u64, "cut off by the end of the image")
        })?;
        Ok((payload, (off + 2 + len).next_multiple_of(4)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip() {
        let all = ComprCfgs {
            lz4: Some(Lz4Cfg { max_distance: 65535, max_pclusterblks: 256 }),
            lzma_dict_size: Some(8 << 20),
            deflate_windowbits: Some(15),
            zstd_windowlog: Some(20),
        };
        let bytes = all.encode().unwrap();
        assert_eq!(ComprCfgs::decode(all.algorithms(), &bytes, 1152), Ok(all));
        for cut in 0..bytes.len() {
            assert!(ComprCfgs::decode(all.algorithms(), &bytes[..cut], 1152).is_err(), "cut at {cut}");
        }
        assert!(ComprCfgs { zstd_windowlog: Some(9), ..all }.encode().is_err());
        assert!(ComprCfgs { lz4: Some(Lz4Cfg { max_distance: 0, max_pclusterblks: 1 }), ..all }.encode().is_err());
        assert!(ComprCfgs::decode(0x10, &[], 1152).is_err());
    }
}

//! Table of the methods, with everything about them except the encoders.
//!
//! A new method is a variant of [`Method`], a row of [`METHODS`], and an arm in `Encoder`. A new
//! format also has an arm in `Decoder`.

use kiln_format::Algorithm;
use std::ops::RangeInclusive;

/// Compression method as users name it: the encoder, not the on-disk algorithm (lz4 and lz4hc write
/// the same format).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// LZ4's fast encoder, which has one level.
    Lz4,
    /// LZ4's slow encoder: hash chains; from level 10 on an optimal parse.
    Lz4hc,
    /// MicroLZMA: LZMA1 with the smallest possible header.
    Lzma,
    /// DEFLATE: up to level 9 an encoder of our own, above it libdeflate.
    Deflate,
    /// Zstandard.
    Zstd,
}

/// Row of [`METHODS`].
#[derive(Clone, Debug)]
pub struct MethodInfo {
    /// The method.
    pub method: Method,
    /// Name as users write it.
    pub name: &'static str,
    /// Format that this method writes.
    pub algorithm: Algorithm,
    /// Ordinary levels, from fast to small.
    pub levels: RangeInclusive<i32>,
    /// Additional levels.
    pub extra_levels: Option<RangeInclusive<i32>>,
    /// All levels, in words.
    pub levels_in_words: &'static str,
    /// Level if the user names none: the library's own default.
    pub default_level: i32,
    /// Windows in bytes that can be chosen, for formats with a variable window.
    pub windows: Option<Windows>,
    /// The same windows, in words.
    pub windows_in_words: &'static str,
    /// Speed in MB/s from the first level on. The last one holds for all higher levels. Measured
    /// once, on a source text and a program, in pclusters of 64 KiB.
    pub speeds: &'static [u64],
}

/// Windows that can be chosen for a method.
#[derive(Clone, Debug)]
pub struct Windows {
    /// Lengths of the windows in bytes.
    pub lens: RangeInclusive<u32>,
    /// Level from which on only the longest window is available.
    pub longest_from: Option<i32>,
}

/// All methods, in the order of [`Method`].
pub static METHODS: [MethodInfo; 5] = [
    MethodInfo {
        method: Method::Lz4,
        name: "lz4",
        algorithm: Algorithm::Lz4,
        levels: 1..=1,
        extra_levels: None,
        levels_in_words: "no level (lz4hc has levels)",
        default_level: 1,
        windows: None,
        windows_in_words: "its window is fixed",
        speeds: &[560],
    },
    MethodInfo {
        method: Method::Lz4hc,
        name: "lz4hc",
        algorithm: Algorithm::Lz4,
        levels: 1..=12,
        extra_levels: None,
        levels_in_words: "1 to 12",
        default_level: 9,
        windows: None,
        windows_in_words: "its window is fixed",
        speeds: &[217, 170, 120, 83, 70, 58, 52, 45, 38, 26, 18, 18],
    },
    MethodInfo {
        method: Method::Lzma,
        name: "lzma",
        algorithm: Algorithm::Lzma,
        levels: 0..=9,
        // The "extreme" variants of 0 to 9, numbered as in `mkfs.erofs`. All are as slow as level
        // 9.
        extra_levels: Some(100..=109),
        levels_in_words: "0 to 9, or 100 to 109 (extreme)",
        default_level: 6,
        windows: Some(Windows { lens: 4 << 10..=8 << 20, longest_from: None }),
        windows_in_words: "use 4k to 8m",
        speeds: &[14, 14, 13, 12, 6, 5, 4],
    },
    MethodInfo {
        method: Method::Deflate,
        name: "deflate",
        algorithm: Algorithm::Deflate,
        levels: 1..=12,
        extra_levels: None,
        levels_in_words: "1 to 12",
        default_level: 6,
        // libdeflate, used from level 10 on, has one window.
        windows: Some(Windows { lens: 256..=32 << 10, longest_from: Some(10) }),
        windows_in_words: "use 256 to 32k, from level 10 on 32k",
        speeds: &[151, 140, 125, 104, 90, 76, 60, 44, 37, 3, 3, 2],
    },
    MethodInfo {
        method: Method::Zstd,
        name: "zstd",
        algorithm: Algorithm::Zstd,
        levels: 1..=22,
        extra_levels: None,
        levels_in_words: "1 to 22",
        default_level: 3,
        windows: Some(Windows { lens: 1 << 10..=1 << 20, longest_from: None }),
        windows_in_words: "use 1k to 1m",
        speeds: &[142, 142, 142, 90, 58, 50, 41, 39, 37, 32, 28, 22, 15, 11, 8, 6, 5, 4, 3],
    },
];

impl Method {
    /// All methods.
    pub const ALL: [Method; METHODS.len()] = {
        let mut all = [Method::Lz4; METHODS.len()];
        let mut idx = 0;
        while idx < all.len() {
            all[idx] = METHODS[idx].method;
            assert!(all[idx] as usize == idx, "the rows have the order of the methods");
            idx += 1;
        }
        all
    };

    /// Returns the method's row of the table.
    pub fn info(self) -> &'static MethodInfo {
        &METHODS[self as usize]
    }

    /// Returns the format that this method writes.
    pub fn algorithm(self) -> Algorithm {
        self.info().algorithm
    }

    /// Returns true if frequent bytes get shorter codes, so that data can become smaller even if
    /// nothing in it repeats.
    pub fn has_entropy_coder(self) -> bool {
        self.algorithm() != Algorithm::Lz4
    }

    /// Returns the name as users write it.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// Returns the ordinary levels, from fast to small. LZMA also accepts 100 to 109: the "extreme"
    /// variants of 0 to 9, numbered as in `mkfs.erofs`.
    pub fn levels(self) -> RangeInclusive<i32> {
        self.info().levels.clone()
    }

    /// Returns the level if the user names none: the library's own default.
    pub fn default_level(self) -> i32 {
        self.info().default_level
    }

    /// Returns the range of windows in bytes, for formats with a variable window: the plain text
    /// that readers must remember. LZMA calls it its dictionary.
    pub fn windows(self) -> Option<RangeInclusive<u32>> {
        self.info().windows.as_ref().map(|windows| windows.lens.clone())
    }

    /// Returns the version of the encoder. Equal versions encode equal text with an equal
    /// [`Spec`](crate::Spec) to equal streams. The low half is the version of the C library that is
    /// involved; the high half counts our own changes.
    pub fn encoder_version(self) -> u64 {
        let (ours, library) = match self {
            Method::Lz4 | Method::Lz4hc => (1, crate::lz4::library_version()),
            Method::Lzma => (1, crate::lzma::library_version()),
            // libdeflate has no function that returns its version.
            Method::Deflate => (1, 0x0126),
            Method::Zstd => (2, crate::zstd::library_version()),
        };
        ours << 32 | u64::from(library)
    }

    pub(crate) fn has_level(self, level: i32) -> bool {
        let MethodInfo { levels, extra_levels, .. } = self.info();
        levels.contains(&level) || extra_levels.as_ref().is_some_and(|levels| levels.contains(&level))
    }

    /// Returns true if the encoder of `level` supports a window of `len` bytes.
    pub(crate) fn has_window(self, level: i32, len: u32) -> bool {
        self.info().windows.as_ref().is_some_and(|Windows { lens, longest_from }| {
            let is_fixed = longest_from.is_some_and(|first| level >= first);
            if is_fixed { len == *lens.end() } else { lens.contains(&len) }
        })
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name {
            "libdeflate" => Some(Method::Deflate), // mkfs.erofs distinguishes two encoders; ours is the better one
            _ => Self::ALL.into_iter().find(|m| m.name() == name),
        }
    }

    /// Returns the speed at `level` by the table, in MB/s.
    pub(crate) fn speed(self, level: i32) -> u64 {
        let MethodInfo { levels, speeds, .. } = self.info();
        speeds[usize::try_from(level - levels.start()).unwrap_or(0).min(speeds.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_agrees_with_itself() {
        for row in &METHODS {
            assert_eq!(Method::from_name(row.name), Some(row.method));
            assert!(row.method.has_level(row.default_level), "{row:?}");
            assert!(!row.speeds.is_empty() && row.speeds.len() <= row.levels.clone().count(), "{row:?}");
            // The words contain both ends of each range.
            let ranges = [Some(row.levels.clone()), row.extra_levels.clone()].into_iter().flatten();
            for end in
                ranges.filter(|levels| levels.clone().count() > 1).flat_map(|levels| [*levels.start(), *levels.end()])
            {
                assert!(row.levels_in_words.contains(&end.to_string()), "{row:?}");
            }
            for end in row.method.windows().into_iter().flat_map(|lens| [*lens.start(), *lens.end()]) {
                let shown = match end.trailing_zeros() {
                    0..10 => end.to_string(),
                    10..20 => format!("{}k", end >> 10),
                    _ => format!("{}m", end >> 20),
                };
                assert!(row.windows_in_words.contains(&shown), "{shown}: {row:?}");
            }
        }
    }
}

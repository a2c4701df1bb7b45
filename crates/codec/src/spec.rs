//! What the user asks for with `-z`: a method, a level, a pcluster length.

use crate::CodecError;
use kiln_format::Algorithm;
use kiln_format::compr_cfg::PCLUSTER_MAX_LEN;
use std::fmt;
use std::ops::RangeInclusive;

/// The smallest block that EROFS knows, in bytes: every pcluster is a multiple of it.
const BLOCK_MIN_LEN: u32 = 512;

/// What the user names with `-z`: the encoder, not the on-disk algorithm (lz4 and lz4hc write the same format).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// LZ4's fast encoder. It has one level.
    Lz4,
    /// LZ4's slow encoder: hash chains, from level 10 on an optimal parse.
    Lz4hc,
    /// MicroLZMA: LZMA1 with the smallest possible header.
    Lzma,
    /// DEFLATE: up to level 9 an encoder of our own, above it libdeflate.
    Deflate,
    /// Zstandard.
    Zstd,
}

impl Method {
    /// All methods.
    pub const ALL: [Method; 5] = [Method::Lz4, Method::Lz4hc, Method::Lzma, Method::Deflate, Method::Zstd];

    /// The format that this method writes.
    pub fn algorithm(self) -> Algorithm {
        match self {
            Method::Lz4 | Method::Lz4hc => Algorithm::Lz4,
            Method::Lzma => Algorithm::Lzma,
            Method::Deflate => Algorithm::Deflate,
            Method::Zstd => Algorithm::Zstd,
        }
    }

    /// The name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Method::Lz4 => "lz4",
            Method::Lz4hc => "lz4hc",
            Method::Lzma => "lzma",
            Method::Deflate => "deflate",
            Method::Zstd => "zstd",
        }
    }

    /// The ordinary levels, from fast to small. LZMA takes 100 to 109 as well: the "extreme" variants of 0 to 9,
    /// numbered as `mkfs.erofs` does.
    pub fn levels(self) -> RangeInclusive<i32> {
        match self {
            Method::Lz4 => 1..=1,
            Method::Lz4hc => 1..=12,
            Method::Lzma => 0..=9,
            Method::Deflate => 1..=12,
            Method::Zstd => 1..=22,
        }
    }

    /// The level where the user names none: the libraries' own defaults.
    pub fn default_level(self) -> i32 {
        match self {
            Method::Lz4 => 1,
            Method::Lz4hc => 9,
            Method::Lzma | Method::Deflate => 6,
            Method::Zstd => 3,
        }
    }

    fn has_level(self, level: i32) -> bool {
        self.levels().contains(&level) || self == Method::Lzma && (100..=109).contains(&level)
    }

    fn from_name(name: &str) -> Option<Self> {
        match name {
            "libdeflate" => Some(Method::Deflate), // mkfs.erofs tells two encoders apart; ours is the better one
            _ => Self::ALL.into_iter().find(|m| m.name() == name),
        }
    }
}

/// A method's levels, in words.
pub(crate) struct LevelRange(pub(crate) Method);

impl fmt::Display for LevelRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let levels = self.0.levels();
        match self.0 {
            Method::Lz4 => write!(f, "no level (lz4hc has levels)"),
            Method::Lzma => write!(f, "{} to {}, or 100 to 109 (extreme)", levels.start(), levels.end()),
            _ => write!(f, "{} to {}", levels.start(), levels.end()),
        }
    }
}

/// One way of compressing: method, level, largest pcluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// Which encoder.
    pub method: Method,
    /// How hard it tries, see [`Method::levels`].
    pub level: i32,
    /// The largest pcluster in bytes: a multiple of the block size, at most 1 MiB.
    pub pcluster_len: u32,
}

impl Spec {
    /// A method at a level (`None`: the method's default), for pclusters of up to `pcluster_len` bytes.
    ///
    /// # Errors
    /// A level that the method does not have, or a length that is no multiple of 512 or above 1 MiB.
    pub fn new(method: Method, level: Option<i32>, pcluster_len: u32) -> Result<Spec, CodecError> {
        let level = level.unwrap_or(method.default_level());
        if !method.has_level(level) {
            return Err(CodecError::Level { method, level });
        }
        if pcluster_len == 0 || !pcluster_len.is_multiple_of(BLOCK_MIN_LEN) || pcluster_len as usize > PCLUSTER_MAX_LEN
        {
            return Err(CodecError::PclusterLen { len: pcluster_len });
        }
        Ok(Spec { method, level, pcluster_len })
    }

    /// Read `METHOD`, `METHOD,LEVEL` or `METHOD,level=LEVEL`; `libdeflate` is another name of deflate.
    ///
    /// # Errors
    /// A name, option or level that does not exist, or a bad `pcluster_len`, as [`Spec::new`].
    pub fn parse(text: &str, pcluster_len: u32) -> Result<Spec, CodecError> {
        let (name, options) = text.split_once(',').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let method = Method::from_name(name).ok_or_else(|| CodecError::UnknownMethod { name: name.into() })?;
        let unknown = |option: &str| CodecError::UnknownOption { method, option: option.into() };
        let level = match options {
            None => None,
            Some(option) => {
                let number = option.strip_prefix("level=").unwrap_or(option);
                Some(number.parse().map_err(|_| unknown(option))?)
            }
        };
        Spec::new(method, level, pcluster_len)
    }

    /// About what a byte costs to encode, in picoseconds of one core: measured once, on a source text and a program, in
    /// pclusters of 64 KiB. For choices that must not depend on the machine.
    pub fn cost(&self) -> u64 {
        // Speed in MB/s at the levels from the first on.
        let speeds: &[u64] = match self.method {
            Method::Lz4 => &[560],
            Method::Lz4hc => &[217, 170, 120, 83, 70, 58, 52, 45, 38, 26, 18, 18],
            Method::Lzma => &[14, 14, 13, 12, 6, 5, 4],
            Method::Deflate => &[151, 140, 125, 104, 90, 76, 60, 44, 37, 3, 3, 2],
            Method::Zstd => &[142, 142, 142, 90, 58, 50, 41, 39, 37, 32, 28, 22, 15, 11, 8, 6, 5, 4, 3],
        };
        let first = *self.method.levels().start();
        // LZMA's extreme levels are all as slow as its highest.
        let idx = usize::try_from(self.level - first).unwrap_or(0).min(speeds.len() - 1);
        1_000_000 / speeds[idx]
    }

    /// LZMA's dictionary in bytes, as `mkfs.erofs` chooses it. A larger one costs a quarter of the speed with 4 KiB
    /// pclusters.
    pub fn lzma_dict_size(&self) -> u32 {
        (4 * self.pcluster_len).clamp(32 << 10, 8 << 20)
    }

    /// log2 of Zstandard's window in bytes, as `mkfs.erofs` chooses it: 8 pclusters, between 32 KiB and 1 MiB.
    pub fn zstd_window_log(&self) -> u8 {
        (8 * self.pcluster_len).clamp(32 << 10, 1 << 20).ilog2() as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_users_write() {
        let spec = |method, level| Ok(Spec { method, level, pcluster_len: 65536 });
        for (text, want) in [
            ("zstd", spec(Method::Zstd, 3)),
            ("zstd,15", spec(Method::Zstd, 15)),
            ("zstd,level=15", spec(Method::Zstd, 15)),
            ("lz4hc,9", spec(Method::Lz4hc, 9)),
            ("lz4", spec(Method::Lz4, 1)),
            ("lzma,109", spec(Method::Lzma, 109)),
            ("libdeflate,12", spec(Method::Deflate, 12)),
            ("deflate", spec(Method::Deflate, 6)),
            ("zstd,23", Err(CodecError::Level { method: Method::Zstd, level: 23 })),
            ("lzma,50", Err(CodecError::Level { method: Method::Lzma, level: 50 })),
            ("zstd,fast", Err(CodecError::UnknownOption { method: Method::Zstd, option: "fast".into() })),
            ("zstd,", Err(CodecError::UnknownOption { method: Method::Zstd, option: "".into() })),
            ("gzip", Err(CodecError::UnknownMethod { name: "gzip".into() })),
        ] {
            assert_eq!(Spec::parse(text, 65536), want, "{text}");
        }
    }

    #[test]
    fn errors_name_both_sides() {
        let message = Spec::parse("zstd,23", 4096).unwrap_err().to_string();
        assert_eq!(message, "zstd has no level 23: use 1 to 22");
        for len in [0, 1000, 2 << 20] {
            assert_eq!(Spec::new(Method::Lz4, None, len), Err(CodecError::PclusterLen { len }));
        }
    }

    #[test]
    fn higher_levels_do_not_cost_less() {
        for method in Method::ALL {
            let cost = |level| Spec { method, level, pcluster_len: 4096 }.cost();
            let costs: Vec<u64> = method.levels().map(cost).collect();
            assert!(costs.is_sorted() && costs[0] > 0, "{method:?}: {costs:?}");
            assert!(method != Method::Lzma || cost(109) == cost(9));
        }
    }

    #[test]
    fn windows_follow_the_pcluster() {
        let at = |len| {
            let spec = Spec::new(Method::Zstd, None, len).unwrap();
            (spec.lzma_dict_size(), spec.zstd_window_log())
        };
        assert_eq!(at(4096), (32 << 10, 15));
        assert_eq!(at(12 << 10), (48 << 10, 16)); // 96 KiB, rounded down
        assert_eq!(at(64 << 10), (256 << 10, 19));
        assert_eq!(at(1 << 20), (4 << 20, 20));
    }
}

//! `-z` and `-C`.

use super::value;
use crate::dropin::Stop;
use crate::dropin::getopt::{Misuse, number};
use kiln_builder::{BuildOptions, PclusterLimits};
use kiln_codec::{Method, Spec};
use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;

/// One of the original's compressors.
struct Compressor {
    name: &'static str,
    method: Method,
    levels: &'static [RangeInclusive<i32>],
    default_level: i32,
    /// kiln's level for level 0.
    level_zero: i32,
    /// The length of the dictionary can be chosen.
    has_dict: bool,
}

const COMPRESSORS: [Compressor; 6] = [
    Compressor { name: "lz4", method: Method::Lz4, levels: &[], default_level: 1, level_zero: 1, has_dict: false },
    Compressor {
        name: "lz4hc",
        method: Method::Lz4hc,
        levels: &[0..=12],
        default_level: 9,
        level_zero: 9, // the library's default
        has_dict: false,
    },
    Compressor {
        name: "lzma",
        method: Method::Lzma,
        levels: &[0..=9, 100..=109],
        default_level: 6,
        level_zero: 0,
        has_dict: true,
    },
    Compressor {
        name: "deflate",
        method: Method::Deflate,
        levels: &[0..=9],
        default_level: 1,
        level_zero: 1,
        has_dict: true,
    },
    Compressor {
        name: "libdeflate",
        method: Method::Deflate,
        levels: &[0..=12],
        default_level: 1,
        level_zero: 1,
        has_dict: false,
    },
    Compressor {
        name: "zstd",
        method: Method::Zstd,
        levels: &[0..=22],
        default_level: 3,
        level_zero: 3, // the library's default
        has_dict: true,
    },
];

/// A compressor of `-z` with its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    pub method: Method,
    level: i32,
    /// In bytes.
    dict_len: Option<u32>,
}

impl Compression {
    /// Parses compressors between colons: `NAME`, `NAME,LEVEL` or `NAME,KEY=VALUE,...`. The first one applies to all
    /// files for which no hint names another one.
    pub fn parse(value: &OsString) -> Result<Vec<Self>, Misuse> {
        let text = value.to_str().ok_or_else(|| invalid_compressor(value))?;
        text.split(':').map(parse).collect::<Option<_>>().ok_or_else(|| invalid_compressor(value))
    }

    /// Returns the specification for pclusters of `pcluster_len` bytes.
    pub fn spec(self, pcluster_len: u32) -> Spec {
        Spec { method: self.method, level: self.level, pcluster_len, window_len: self.dict_len }
    }
}

fn invalid_compressor(value: &OsStr) -> Misuse {
    Misuse::Other(format!("invalid compressor {}", value.display()))
}

fn parse(text: &str) -> Option<Compression> {
    let mut items = text.split(',');
    let name = items.next()?;
    let compressor = COMPRESSORS.iter().find(|compressor| compressor.name == name)?;
    let mut compression = Compression { method: compressor.method, level: compressor.default_level, dict_len: None };
    for (idx, item) in items.enumerate() {
        match item.split_once('=') {
            None if idx == 0 => compression.level = compressor.level(item)?,
            Some(("level", level)) => compression.level = compressor.level(level)?,
            Some(("dictsize", len)) => compression.dict_len = Some(compressor.dict_len(len)?),
            // kiln's encoder chooses these itself.
            Some(("lc" | "lp" | "pb", bits)) if compressor.method == Method::Lzma => {
                number(&bits.into()).filter(|bits| *bits <= 4)?;
            }
            _ => return None,
        }
    }
    Some(compression)
}

impl Compressor {
    fn level(&self, text: &str) -> Option<i32> {
        let level = i32::try_from(number(&text.into())?).ok()?;
        let exists = self.levels.iter().any(|levels| levels.contains(&level));
        exists.then_some(if level == 0 { self.level_zero } else { level })
    }

    fn dict_len(&self, text: &str) -> Option<u32> {
        let len = u32::try_from(value::size(text)?).ok()?;
        self.method.windows().filter(|windows| self.has_dict && windows.contains(&len)).map(|_| len)
    }
}

/// The value of `-m`: bytes in a pcluster of metadata, and perhaps a compressor for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataCompression {
    /// Length that was asked for, in bytes.
    pub pcluster_len: u64,
    compression: Option<Compression>,
}

impl MetadataCompression {
    /// Parses `LEN` or `LEN:COMPRESSOR`.
    pub fn parse(value: &OsString) -> Result<Self, Stop> {
        let text = value.to_str().ok_or_else(|| value::invalid("metadata pcluster size", value))?;
        let (len, name) = text.split_once(':').map_or((text, None), |(len, name)| (len, Some(name)));
        Ok(Self {
            pcluster_len: value::size(len).ok_or_else(|| value::invalid("metadata pcluster size", value))?,
            compression: match name {
                Some(name) => Some(parse(name).ok_or_else(|| invalid_compressor(name.as_ref()))?),
                None => None,
            },
        })
    }

    /// Returns the compression of metadata in a file system with such blocks. It is that of files if no other one is
    /// named, and `None` if none is named at all.
    pub fn spec(self, files: &BuildOptions) -> Result<Option<Spec>, Stop> {
        let method =
            self.compression.map(|compression| compression.method).or(files.compression.spec.map(|spec| spec.method));
        // Without compression the length is checked all the same.
        let limits = PclusterLimits::new(method.unwrap_or(Method::Zstd), files);
        let invalid = || value::invalid("metadata pcluster size", &self.pcluster_len.to_string().into());
        let pcluster_len = limits.fit(self.pcluster_len).ok_or_else(invalid)?;
        match self.compression {
            Some(compression) => Ok(Some(compression.spec(pcluster_len))),
            None => Ok(files.compression.spec.map(|spec| Spec { pcluster_len, ..spec })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_codec::Encoder;

    #[test]
    fn compressors_have_their_levels() {
        for (text, method, level) in [
            ("lz4", Method::Lz4, 1),
            ("lz4hc", Method::Lz4hc, 9),
            ("lz4hc,12", Method::Lz4hc, 12),
            ("lz4hc,level=12", Method::Lz4hc, 12),
            ("lz4hc,0", Method::Lz4hc, 9),
            ("lzma,0", Method::Lzma, 0),
            ("lzma,109,dictsize=8m", Method::Lzma, 109),
            ("lzma,dictsize=1m,level=6,lc=3,lp=0,pb=2", Method::Lzma, 6),
            ("deflate", Method::Deflate, 1),
            ("deflate,9,dictsize=32768", Method::Deflate, 9),
            ("libdeflate,12", Method::Deflate, 12),
            ("zstd,level=22", Method::Zstd, 22),
            ("zstd,0", Method::Zstd, 3),
        ] {
            let found = parse(text).unwrap_or_else(|| panic!("{text} is refused"));
            assert_eq!((found.method, found.level), (method, level), "{text}");
            assert!(Encoder::new(&found.spec(4096)).is_ok(), "{text}");
        }
        for text in [
            "",
            "gzip",
            "lz4,1",
            "lz4,",
            "lz4hc,13",
            "lz4hc,-1",
            "lzma,10",
            "lzma,110",
            "deflate,10",
            "libdeflate,13",
            "zstd,23",
            "zstd,level",
            "zstd,level=",
            "zstd,dictsize=2m",
            "zstd,dictsize=0",
            "zstd,dictsize=1023",
            "lzma,dictsize=4095",
            "deflate,dictsize=64k",
            "deflate,dictsize=255",
            "libdeflate,dictsize=32k",
            "lzma,dictsize=4g",
            "lz4,dictsize=4k",
            "zstd,lc=1",
            "lzma,lc=5",
            "zstd,level=3,5",
            "zstd,frob=1",
            "ZSTD",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn dictionaries_are_what_was_asked_for() {
        for (text, len) in [
            ("zstd,dictsize=1m", Some(1 << 20)),
            ("zstd,9,dictsize=1024", Some(1024)),
            ("deflate,dictsize=300", Some(300)),
            ("lzma,dictsize=5000,level=1", Some(5000)),
            ("zstd", None),
        ] {
            assert_eq!(parse(text).unwrap().spec(4096).window_len, len, "{text}");
        }
    }
}

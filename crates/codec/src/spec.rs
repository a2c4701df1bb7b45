//! Compression spec as users write it, for example `zstd,level=15`: a method, a level, a window;
//! and the pcluster length.

use crate::CodecError;
use crate::method::Method;
use crate::size::parse_size;
use kiln_format::compr_cfg::PCLUSTER_MAX_LEN;

/// Smallest block size of EROFS in bytes. Every pcluster is a multiple of it.
const BLOCK_MIN_LEN: u32 = 512;

/// Parameters of compression: method, level, largest pcluster, window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// Method, which selects the encoder.
    pub method: Method,
    /// Level, see [`Method::levels`].
    pub level: i32,
    /// Largest pcluster in bytes: a multiple of the block size, at most 1 MiB.
    pub pcluster_len: u32,
    /// Longest match distance in bytes, see [`Method::windows`]; `None` to choose it by the
    /// pcluster.
    pub window_len: Option<u32>,
}

impl Spec {
    /// Returns the spec of a method at a level (`None`: the method's default), for pclusters of up
    /// to `pcluster_len` bytes.
    ///
    /// # Errors
    /// A level that the method does not have; a length that is 0, not a multiple of 512, or above 1
    /// MiB.
    pub fn new(method: Method, level: Option<i32>, pcluster_len: u32) -> Result<Spec, CodecError> {
        let level = level.unwrap_or(method.default_level());
        if !method.has_level(level) {
            return Err(CodecError::Level { method, level });
        }
        if pcluster_len == 0 || !pcluster_len.is_multiple_of(BLOCK_MIN_LEN) || pcluster_len as usize > PCLUSTER_MAX_LEN
        {
            return Err(CodecError::PclusterLen { len: pcluster_len });
        }
        Ok(Spec { method, level, pcluster_len, window_len: None })
    }

    /// Returns the spec with a longest match distance of `len` bytes. If windows are powers of two
    /// (deflate, zstd), it is rounded down. A window longer than the text of a pcluster gains
    /// nothing.
    ///
    /// # Errors
    /// A window that the method, or its encoder of this level, does not support.
    pub fn with_window(self, len: u32) -> Result<Spec, CodecError> {
        match self.method.has_window(self.level, len) {
            true => Ok(Spec { window_len: Some(len), ..self }),
            false => Err(CodecError::Window { method: self.method, len }),
        }
    }

    /// Returns the longest match distance in bytes that the method allows. Within a pcluster it is no longer than the
    /// text.
    pub fn max_distance(&self) -> u32 {
        // LZ4, which has no variable window, stores distances in 16 bits.
        self.window_len.unwrap_or_else(|| self.method.windows().map_or(u16::MAX.into(), |lens| *lens.end()))
    }

    /// Checks that the spec could have been created by the functions above.
    ///
    /// # Errors
    /// The errors of [`Spec::new`] and [`Spec::with_window`].
    pub(crate) fn check(&self) -> Result<(), CodecError> {
        let spec = Spec::new(self.method, Some(self.level), self.pcluster_len)?;
        self.window_len.map_or(Ok(()), |len| spec.with_window(len).map(drop))
    }

    /// Parses `METHOD`, `METHOD,LEVEL` or `METHOD,level=LEVEL`, each optionally followed by
    /// `,dictsize=SIZE`, a window in bytes, with the suffixes `k` and `m`. `libdeflate` is another
    /// name for deflate.
    ///
    /// # Errors
    /// A name, option, level or window that does not exist; a bad `pcluster_len`, as for
    /// [`Spec::new`].
    pub fn parse(text: &str, pcluster_len: u32) -> Result<Spec, CodecError> {
        let mut items = text.split(',');
        let name = items.next().unwrap_or_default();
        let method = Method::from_name(name).ok_or_else(|| CodecError::UnknownMethod { name: name.into() })?;
        let unknown = |option: &str| CodecError::UnknownOption { method, option: option.into() };
        let (mut level, mut window_len) = (None, None);
        for (idx, item) in items.enumerate() {
            match item.split_once('=') {
                None if idx == 0 => level = Some(item.parse().map_err(|_| unknown(item))?),
                Some(("level", number)) => level = Some(number.parse().map_err(|_| unknown(item))?),
                Some(("dictsize", size)) => {
                    let len = parse_size(size).ok().and_then(|len| u32::try_from(len).ok());
                    window_len = Some(len.ok_or_else(|| unknown(item))?);
                }
                _ => return Err(unknown(item)),
            }
        }
        let spec = Spec::new(method, level, pcluster_len)?;
        window_len.map_or(Ok(spec), |len| spec.with_window(len))
    }

    /// Returns the approximate cost of encoding a byte, in picoseconds of one core: measured once,
    /// on a source text and a program, in pclusters of 64 KiB. For choices that must not depend on
    /// the machine.
    pub fn cost(&self) -> u64 {
        1_000_000 / self.method.speed(self.level)
    }

    /// Returns LZMA's dictionary in bytes. By default it is that of `mkfs.erofs`: 4 pclusters,
    /// between 32 KiB and 8 MiB. A larger one costs a quarter of the speed with 4 KiB pclusters.
    pub fn lzma_dict_size(&self) -> u32 {
        self.window_len.unwrap_or((4 * self.pcluster_len).clamp(32 << 10, 8 << 20))
    }

    /// Returns log2 of DEFLATE's window in bytes.
    pub fn deflate_window_bits(&self) -> u8 {
        self.window_len.map_or(15, |len| len.ilog2() as u8)
    }

    /// Returns log2 of Zstandard's window in bytes. By default it is that of `mkfs.erofs`: 8
    /// pclusters, between 32 KiB and 1 MiB.
    pub fn zstd_window_log(&self) -> u8 {
        self.window_len.unwrap_or((8 * self.pcluster_len).clamp(32 << 10, 1 << 20)).ilog2() as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_users_write() {
        let spec = |method, level| Ok(Spec { method, level, pcluster_len: 65536, window_len: None });
        let window = |method, level, len| spec(method, level).map(|spec| Spec { window_len: Some(len), ..spec });
        for (text, want) in [
            ("zstd", spec(Method::Zstd, 3)),
            ("zstd,15", spec(Method::Zstd, 15)),
            ("zstd,level=15", spec(Method::Zstd, 15)),
            ("lz4hc,9", spec(Method::Lz4hc, 9)),
            ("lz4", spec(Method::Lz4, 1)),
            ("lzma,109", spec(Method::Lzma, 109)),
            ("libdeflate,12", spec(Method::Deflate, 12)),
            ("deflate", spec(Method::Deflate, 6)),
            ("zstd,15,dictsize=64k", window(Method::Zstd, 15, 64 << 10)),
            ("zstd,dictsize=5000,level=1", window(Method::Zstd, 1, 5000)),
            ("lzma,dictsize=8M", window(Method::Lzma, 6, 8 << 20)),
            ("deflate,dictsize=256", window(Method::Deflate, 6, 256)),
            ("deflate,12,dictsize=32k", window(Method::Deflate, 12, 32 << 10)),
            ("deflate,12,dictsize=16k", Err(CodecError::Window { method: Method::Deflate, len: 16 << 10 })),
            ("zstd,dictsize=1023", Err(CodecError::Window { method: Method::Zstd, len: 1023 })),
            ("lzma,dictsize=16m", Err(CodecError::Window { method: Method::Lzma, len: 16 << 20 })),
            ("lz4,dictsize=4k", Err(CodecError::Window { method: Method::Lz4, len: 4096 })),
            ("zstd,dictsize=", Err(CodecError::UnknownOption { method: Method::Zstd, option: "dictsize=".into() })),
            (
                "zstd,dictsize=4096m",
                Err(CodecError::UnknownOption { method: Method::Zstd, option: "dictsize=4096m".into() }),
            ),
            ("zstd,dictsize=4k,3", Err(CodecError::UnknownOption { method: Method::Zstd, option: "3".into() })),
            ("zstd,23", Err(CodecError::Level { method: Method::Zstd, level: 23 })),
            ("lzma,50", Err(CodecError::Level { method: Method::Lzma, level: 50 })),
            ("zstd,fast", Err(CodecError::UnknownOption { method: Method::Zstd, option: "fast".into() })),
            ("zstd,", Err(CodecError::UnknownOption { method: Method::Zstd, option: "".into() })),
            ("zstd,dictsize=x", Err(CodecError::UnknownOption { method: Method::Zstd, option: "dictsize=x".into() })),
            ("zstd,dictsize=4g", Err(CodecError::UnknownOption { method: Method::Zstd, option: "dictsize=4g".into() })),
            ("gzip", Err(CodecError::UnknownMethod { name: "gzip".into() })),
        ] {
            assert_eq!(Spec::parse(text, 65536), want, "{text}");
        }
    }

    #[test]
    fn errors_name_both_sides() {
        let message = Spec::parse("zstd,23", 4096).unwrap_err().to_string();
        assert_eq!(message, "zstd has no level 23: use 1 to 22");
        let message = |text| Spec::parse(text, 4096).unwrap_err().to_string();
        assert_eq!(message("zstd,dictsize=2m"), "zstd has no dictionary of 2097152 bytes: use 1k to 1m");
        assert_eq!(message("lzma,dictsize=4"), "lzma has no dictionary of 4 bytes: use 4k to 8m");
        assert_eq!(
            message("deflate,10,dictsize=4k"),
            "deflate has no dictionary of 4096 bytes: use 256 to 32k, from level 10 on 32k"
        );
        assert_eq!(message("lz4,dictsize=4k"), "lz4 has no dictionary of 4096 bytes: its window is fixed");
        for len in [0, 1000, 2 << 20] {
            assert_eq!(Spec::new(Method::Lz4, None, len), Err(CodecError::PclusterLen { len }));
        }
    }

    #[test]
    fn higher_levels_do_not_cost_less() {
        for method in Method::ALL {
            let cost = |level| Spec { method, level, pcluster_len: 4096, window_len: None }.cost();
            let costs: Vec<u64> = method.levels().map(cost).collect();
            assert!(costs.is_sorted() && costs[0] > 0, "{method:?}: {costs:?}");
            assert!(method != Method::Lzma || cost(109) == cost(9));
        }
    }

    #[test]
    fn distances_are_those_of_the_window() {
        let distance = |text| Spec::parse(text, 1 << 20).unwrap().max_distance();
        assert_eq!([distance("lz4"), distance("lz4hc"), distance("deflate")], [65_535, 65_535, 32_768]);
        assert_eq!([distance("zstd,dictsize=64k"), distance("lzma,dictsize=8k")], [64 << 10, 8 << 10]);
        assert!(distance("zstd") >= 1 << 20 && distance("lzma") >= 1 << 20);
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
        // A requested window is rounded down if windows are powers of two.
        let at = |method, len| Spec::new(method, None, 64 << 10).unwrap().with_window(len).unwrap();
        assert_eq!(at(Method::Lzma, 5000).lzma_dict_size(), 5000);
        assert_eq!(at(Method::Zstd, 5000).zstd_window_log(), 12);
        assert_eq!(at(Method::Deflate, 511).deflate_window_bits(), 8);
        assert_eq!(Spec::new(Method::Deflate, None, 4096).unwrap().deflate_window_bits(), 15);
    }
}

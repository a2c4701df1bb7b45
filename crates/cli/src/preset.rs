//! Presets, and what `-z`, `-C` and `--kernel` make of them.

use crate::exit::Failure;
use kiln_codec::{Method, Spec};
use kiln_format::feature::Feature;
use kiln_format::{Algorithm, KernelVersion};

/// The oldest kernel that images are made for.
const KERNEL_FLOOR: KernelVersion = KernelVersion::new(5, 15);

/// Pclusters are multiples of the block size, in bytes.
const BLOCK_LEN: u64 = 4096;

/// Where a choice of options starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Preset {
    /// No compression
    Plain,
    /// lz4 in pclusters of 64 KiB
    Fast,
    /// zstd,3 in pclusters of 64 KiB
    #[default]
    Balanced,
    /// lzma,6 in pclusters of 1 MiB
    Small,
}

impl Preset {
    /// Method and level, and the largest pcluster in bytes.
    fn choice(self) -> (Option<(Method, i32)>, u32) {
        match self {
            Preset::Plain => (None, 64 << 10),
            Preset::Fast => (Some((Method::Lz4, 1)), 64 << 10),
            Preset::Balanced => (Some((Method::Zstd, 3)), 64 << 10),
            Preset::Small => (Some((Method::Lzma, 6)), 1 << 20),
        }
    }
}

/// The compression that the options ask for together; `None` stores.
///
/// What was asked for by name must be had; a preset's own choice gives way to the best that the kernel has.
pub fn compression(
    preset: Preset,
    algorithm: Option<&str>,
    pcluster_len: Option<u64>,
    kernel: Option<KernelVersion>,
) -> Result<Option<Spec>, Failure> {
    if let Some(kernel) = kernel.filter(|&kernel| kernel < KERNEL_FLOOR) {
        let message = format!("--kernel {kernel}: images are made for Linux {KERNEL_FLOOR} and later");
        return Err(Failure::Usage(message));
    }
    let (default, default_len) = preset.choice();
    let len = pcluster_len.map_or(Ok(default_len), check_pcluster_len)?;
    let spec = match algorithm {
        Some("none") => None,
        Some(text) => {
            let spec = Spec::parse(text, len).map_err(|error| Failure::Usage(format!("-z {text}: {error}")))?;
            check_kernel(spec.method, kernel)?;
            Some(spec)
        }
        None => default.map(|choice| best_for(choice, kernel)).map(|(method, level)| Spec {
            method,
            level,
            pcluster_len: len,
        }),
    };
    match (spec, pcluster_len) {
        (None, Some(_)) => Err(Failure::Usage("-C: nothing is compressed: name an algorithm with -z".into())),
        _ => Ok(spec),
    }
}

fn check_pcluster_len(len: u64) -> Result<u32, Failure> {
    let fits = len > 0 && len.is_multiple_of(BLOCK_LEN) && len <= 1 << 20;
    let refuse = || Failure::Usage(format!("-C {len}: use a multiple of {BLOCK_LEN} bytes, up to 1M"));
    u32::try_from(len).ok().filter(|_| fits).ok_or_else(refuse)
}

fn check_kernel(method: Method, kernel: Option<KernelVersion>) -> Result<(), Failure> {
    let feature = feature_of(method.algorithm());
    match kernel {
        Some(kernel) if kernel < feature.since() => {
            let (name, since) = (feature.name(), feature.since());
            Err(Failure::Usage(format!("{name} came with Linux {since}, but the image is for Linux {kernel}")))
        }
        _ => Ok(()),
    }
}

/// LZ4, the only algorithm of every kernel, at its best where the wish cannot be had.
fn best_for(wish: (Method, i32), kernel: Option<KernelVersion>) -> (Method, i32) {
    match kernel {
        Some(kernel) if kernel < feature_of(wish.0.algorithm()).since() => {
            (Method::Lz4hc, Method::Lz4hc.default_level())
        }
        _ => wish,
    }
}

fn feature_of(algorithm: Algorithm) -> Feature {
    match algorithm {
        Algorithm::Lz4 => Feature::Lz4,
        Algorithm::Lzma => Feature::Lzma,
        Algorithm::Deflate => Feature::Deflate,
        Algorithm::Zstd => Feature::Zstd,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(preset: Preset, z: Option<&str>, c: Option<u64>, kernel: Option<&str>) -> Result<Option<Spec>, String> {
        compression(preset, z, c, kernel.map(|kernel| kernel.parse().unwrap())).map_err(|error| error.to_string())
    }

    fn spec(method: Method, level: i32, pcluster_len: u32) -> Result<Option<Spec>, String> {
        Ok(Some(Spec { method, level, pcluster_len }))
    }

    #[test]
    fn options_override_presets() {
        use Preset::*;
        assert_eq!(choose(Balanced, None, None, None), spec(Method::Zstd, 3, 64 << 10));
        assert_eq!(choose(Fast, None, Some(16 << 10), None), spec(Method::Lz4, 1, 16 << 10));
        assert_eq!(choose(Small, Some("lzma,9"), None, None), spec(Method::Lzma, 9, 1 << 20));
        assert_eq!(choose(Plain, None, None, None), Ok(None));
        assert_eq!(choose(Plain, Some("deflate"), None, None), spec(Method::Deflate, 6, 64 << 10));
        assert_eq!(choose(Small, Some("none"), None, None), Ok(None));
    }

    #[test]
    fn defaults_give_way_to_the_kernel() {
        use Preset::*;
        assert_eq!(choose(Balanced, None, None, Some("6.10")), spec(Method::Zstd, 3, 64 << 10));
        assert_eq!(choose(Balanced, None, None, Some("6.9")), spec(Method::Lz4hc, 9, 64 << 10));
        assert_eq!(choose(Small, None, None, Some("5.15")), spec(Method::Lz4hc, 9, 1 << 20));
        assert_eq!(choose(Fast, None, None, Some("5.15")), spec(Method::Lz4, 1, 64 << 10));
    }

    #[test]
    fn wishes_are_refused_with_the_reason() {
        use Preset::*;
        for (preset, z, c, kernel, message) in [
            (Balanced, Some("zstd"), None, Some("6.6"), "zstd came with Linux 6.10, but the image is for Linux 6.6"),
            (Balanced, Some("deflate"), None, Some("6.1"), "deflate came with Linux 6.6"),
            (Plain, Some("lzma"), None, Some("5.15"), "lzma came with Linux 5.16"),
            (Plain, None, None, Some("5.14"), "images are made for Linux 5.15 and later"),
            (Balanced, Some("gzip"), None, None, "-z gzip: unknown compression method"),
            (Balanced, None, Some(1000), None, "multiple of 4096"),
            (Balanced, None, Some(0), None, "multiple of 4096"),
            (Balanced, None, Some(2 << 20), None, "up to 1M"),
            (Balanced, None, Some(1 << 40), None, "up to 1M"),
            (Plain, None, Some(8192), None, "nothing is compressed"),
        ] {
            let error = choose(preset, z, c, kernel).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }
}

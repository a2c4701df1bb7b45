//! Options about single files, by their paths.

use super::arg_files::{named, read, read_or_stdin, usage};
use super::hot::HotArgs;
use crate::exit::Failure;
use kiln_builder::BuildOptions;
use kiln_codec::Spec;
use kiln_source::manifest::parse_order;
use kiln_tree::filter::lines;
use kiln_tree::storage::{DataOrder, Hint, HintRules};
use kilnfs::Packer;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct ByPathArgs {
    /// Compress files that match GLOB another way
    #[arg(long, value_name = "GLOB=WAY")]
    hint: Vec<OsString>,

    /// Read hints from FILE, one a line
    #[arg(long, value_name = "FILE")]
    hints: Vec<PathBuf>,

    /// Put data of listed files first (see `kiln help order`)
    #[arg(long, value_name = "LIST|shuffle")]
    order: Option<PathBuf>,

    #[command(flatten)]
    pub hot: HotArgs,
}

/// Returns the order that a value of `--order` names: that of a list, or one with a name.
///
/// # Errors
/// A list that cannot be read, and what is no seed.
pub fn list_order(path: &Path) -> Result<DataOrder, Failure> {
    match named_order(path.as_os_str().as_bytes())? {
        Some(order) => Ok(order),
        None => Ok(parse_order(&read_or_stdin(path)?, &path.to_string_lossy()).map_err(usage)?.into()),
    }
}

/// Returns the order that a value of `--order` names, if it is `shuffle` or `shuffle:SEED`.
fn named_order(value: &[u8]) -> Result<Option<DataOrder>, Failure> {
    match value.strip_prefix(b"shuffle") {
        Some(b"") => Ok(Some(DataOrder::Shuffled { seed: 0 })),
        Some([b':', seed @ ..]) => {
            let digits = str::from_utf8(seed).ok().filter(|seed| seed.bytes().all(|byte| byte.is_ascii_digit()));
            let seed = digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| {
                let seed = String::from_utf8_lossy(seed);
                Failure::Usage(format!(
                    "--order shuffle:{seed}: seed `{seed}`: use a number from 0 to {}; a file of that name is ./shuffle:{seed}",
                    u64::MAX
                ))
            })?;
            Ok(Some(DataOrder::Shuffled { seed }))
        }
        _ => Ok(None),
    }
}

impl ByPathArgs {
    /// Returns `packer` with these choices, where files are compressed as `options` have it otherwise, and the order.
    ///
    /// # Errors
    /// Files that cannot be read, invalid hints and seeds, methods that the kernel does not have, and `--hot-as` for an
    /// order that is no list.
    pub fn apply(&self, packer: Packer, options: &BuildOptions) -> Result<(Packer, DataOrder), Failure> {
        let (hints, order) = (self.hints(options)?, self.order()?);
        let (hot_as, budget) = self.hot.choice(&order)?;
        Ok((packer.hints(hints).order(order.clone()).hot_as(hot_as, budget), order))
    }

    /// Returns the order of data.
    pub fn order(&self) -> Result<DataOrder, Failure> {
        self.order.as_deref().map_or(Ok(DataOrder::Path), list_order)
    }

    /// Returns the hints, where files are compressed as `options` have it otherwise.
    pub fn hints(&self, options: &BuildOptions) -> Result<HintRules<Option<Spec>>, Failure> {
        let base = Base { options };
        let mut hints = Vec::new();
        for path in &self.hints {
            for (idx, line) in lines(&read(path)?) {
                let at = |reason| Failure::Usage(format!("{}, line {}: {reason}", path.display(), idx + 1));
                hints.push(base.hint(line).map_err(at)?);
            }
        }
        for hint in &self.hint {
            hints.push(base.hint(hint.as_bytes()).map_err(|reason| Failure::Usage(format!("--hint: {reason}")))?);
        }
        HintRules::new(hints).map_err(|error| named("--hint", &error))
    }
}

/// Options of a way, in front of their signs.
const OPTIONS: [&[u8]; 2] = [b",level", b",dictsize"];

/// Options that hints start from.
struct Base<'a> {
    options: &'a BuildOptions,
}

impl Base<'_> {
    /// Parses a hint, `GLOB=WAY`.
    fn hint(&self, text: &[u8]) -> Result<Hint<Option<Spec>>, String> {
        let shown = String::from_utf8_lossy(text);
        // A way has signs of its own, behind the names of its options.
        let is_inner = |at: &usize| OPTIONS.iter().any(|name| text[..*at].ends_with(name));
        let mut signs = (0..text.len()).filter(|at| text[*at] == b'=');
        let split = signs.clone().rfind(|at| !is_inner(at)).or(signs.next());
        let split = split.ok_or(format!("{shown}: write it as GLOB=WAY"))?;
        let way = str::from_utf8(&text[split + 1..]).map_err(|_| format!("{shown}: the way is no text"))?;
        let way = self.way(way).map_err(|failure| failure.to_string())?;
        Hint::glob(&text[..split], way).map_err(|error| error.to_string())
    }

    /// Parses a way: `none`, `ALGORITHM[,LEVEL][,dictsize=SIZE]`, `:SIZE` or both.
    fn way(&self, text: &str) -> Result<Option<Spec>, Failure> {
        kiln_builder::hint_spec(text, self.options).map_err(usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_codec::Method;

    fn way(text: &str, compression: Option<Spec>, kernel: &str) -> Result<Option<Spec>, String> {
        let kernel = (!kernel.is_empty()).then(|| kernel.parse().unwrap());
        let options = &BuildOptions::default().with(|o| {
            o.compression.spec = compression;
            o.kernel = kernel;
        });
        Base { options }.way(text).map_err(|failure| failure.to_string())
    }

    #[test]
    fn ways_take_what_they_do_not_say_from_the_rest() {
        let zstd = Spec { method: Method::Zstd, level: 3, pcluster_len: 32 << 10, window_len: None };
        for (text, compression, expected) in [
            ("none", Some(zstd), None),
            ("lz4", Some(zstd), Some((Method::Lz4, 1, 32 << 10))),
            ("lz4hc,12", None, Some((Method::Lz4hc, 12, 64 << 10))),
            ("lzma,9:1M", Some(zstd), Some((Method::Lzma, 9, 1 << 20))),
            (":4k", Some(zstd), Some((Method::Zstd, 3, 4096))),
        ] {
            let expected =
                expected.map(|(method, level, pcluster_len)| Spec { method, level, pcluster_len, window_len: None });
            assert_eq!(way(text, compression, ""), Ok(expected), "{text}");
        }
        for (text, compression, kernel, message) in [
            (":4k", None, "", "nothing is compressed otherwise"),
            ("", None, "", "nothing is compressed otherwise"),
            ("gzip", Some(zstd), "", "gzip: unknown compression method"),
            ("lz4:5000", Some(zstd), "", "use a multiple of 4096"),
            ("lz4:", Some(zstd), "", "lz4:"),
            ("zstd:2M", Some(zstd), "", "up to 1048576"),
            ("zstd", None, "6.6", "zstd came with Linux 6.10"),
        ] {
            let error = way(text, compression, kernel).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }

    #[test]
    fn orders_have_names_that_are_no_files() {
        let named = |text: &str| named_order(text.as_bytes()).map_err(|failure| failure.to_string());
        for (text, expected) in
            [("shuffle", 0), ("shuffle:0", 0), ("shuffle:007", 7), ("shuffle:18446744073709551615", u64::MAX)]
        {
            assert!(matches!(named(text), Ok(Some(DataOrder::Shuffled { seed })) if seed == expected), "{text}");
        }
        for file in ["./shuffle", "shuffled", "-", "", "a/shuffle:1", "Shuffle"] {
            assert!(matches!(named(file), Ok(None)), "{file}");
        }
        for seed in ["", "x", "-1", "+1", "1 ", "18446744073709551616", "0x1"] {
            let error = named(&format!("shuffle:{seed}")).unwrap_err();
            let expected = format!("seed `{seed}`: use a number from 0 to 18446744073709551615");
            assert!(error.contains(&expected) && error.ends_with(&format!("./shuffle:{seed}")), "{error}");
        }
    }

    #[test]
    fn hints_end_with_their_way() {
        let options = &BuildOptions::default();
        let base = Base { options };
        assert!(base.hint(b"a=b=lz4").is_ok());
        assert!(
            base.hint(b"a,level=zstd,dictsize=4k,level=9:64k").is_ok(),
            "of signs behind options the first is left"
        );
        assert!(base.hint(b"a=zstd,level=9,dictsize=4k:64k").is_ok());
        assert_eq!(
            base.hint(b"a=lz4,dictsize=4k").unwrap_err().split_once(": lz4 has"),
            Some(("lz4,dictsize=4k", " no dictionary of 4096 bytes: its window is fixed"))
        );
        assert_eq!(base.hint(b"*.so").unwrap_err(), "*.so: write it as GLOB=WAY");
        assert_eq!(base.hint(b"[=lz4").unwrap_err(), "glob `[`: unclosed [");
        assert_eq!(base.hint(b"=lz4").unwrap_err(), "glob ``: empty pattern");
    }
}

//! `--compress-hints`: lines of a size, perhaps the number of a compressor, and a regular expression.

use super::compression::Compression;
use crate::dropin::Stop;
use crate::dropin::getopt::{Misuse, number};
use crate::exit::Failure;
use kiln_builder::{BuildOptions, PclusterLimits};
use kiln_codec::Spec;
use kiln_tree::storage::{Hint, HintRules};
use std::fs;
use std::path::Path;

/// Reads the hints of a file. Without compression there are none, whatever the file contains.
pub fn read(
    path: &Path,
    compressors: &[Compression],
    build: &BuildOptions,
    warnings: &mut Vec<String>,
) -> Result<HintRules<Option<Spec>>, Stop> {
    let text = fs::read(path).map_err(|source| Failure::File { path: path.to_owned(), action: "read", source })?;
    let mut hints = Vec::new();
    for (idx, line) in text.split(|&b| b == b'\n').enumerate() {
        let at = |what: &str| Misuse::Other(format!("{}, line {}: {what}", path.display(), idx + 1));
        let line = str::from_utf8(line).map_err(|_| at("no text"))?;
        if !line.trim().is_empty() && !line.starts_with('#') {
            hints.extend(
                build.compression.spec.map(|default| hint(line, compressors, default, build, warnings)).transpose()?,
            );
        }
    }
    // The first of several matching hints decides.
    hints.reverse();
    HintRules::new(hints).map_err(|error| Misuse::Other(error.to_string()).into())
}

fn hint(
    line: &str,
    compressors: &[Compression],
    default: Spec,
    build: &BuildOptions,
    warnings: &mut Vec<String>,
) -> Result<Hint<Option<Spec>>, Stop> {
    let misuse = |what: String| Misuse::Other(format!("compress hint `{line}`: {what}"));
    let tokens: Vec<&str> = line.split_whitespace().collect();
    let (len, idx, regex) = match tokens[..] {
        [len, regex] => (len, "0", regex),
        [len, idx, regex] => (len, idx, regex),
        [_] => return Err(misuse("cannot find a match pattern".into()).into()),
        _ => return Err(misuse("more than a size, a number and a match pattern".into()).into()),
    };
    let len = number(&len.into()).ok_or_else(|| misuse(format!("invalid physical clustersize {len}")))?;
    let known = number(&idx.into()).and_then(|idx| compressors.get(usize::try_from(idx).ok()?));
    let compressor = known.ok_or_else(|| misuse(format!("-z names no compressor {idx}")))?;
    let limits = PclusterLimits::new(compressor.method, build);
    let way = match (len, limits.fit(len)) {
        (0, _) => None,
        (_, Some(len)) => Some(compressor.spec(len)),
        (_, None) => {
            let len = limits.nearest(default.pcluster_len);
            warnings.push(format!("compress hint `{line}`: invalid physical clustersize, use default {len}"));
            Some(compressor.spec(len))
        }
    };
    Hint::regex(regex, way).map_err(|error| misuse(error.to_string()).into())
}

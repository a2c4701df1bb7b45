//! What users write for the way in which some files are compressed.

use kiln_builder::{BuildOptions, OptionProblem, PclusterLimits, Spec, check_method};
use std::fmt::Display;

/// Pclusters where neither the way nor anything else says how large they are.
const PCLUSTER_LEN: u32 = 64 << 10;

/// A text that is no way of compression, or one that the image cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WayError(String);

/// What `none`, `ALGORITHM[,LEVEL][,dictsize=SIZE]`, `:SIZE` or both stand for, where files are compressed as `options` have it otherwise: what
/// the text does not say comes from there. `None`: the files are stored. For [`Hint::glob`](kiln_tree::storage::Hint::glob).
///
/// ```
/// # use kiln::builder::Choices;
/// let options = Choices::default().build_options()?;
/// assert_eq!(kiln::hint_way("none", &options)?, None);
/// assert_eq!(kiln::hint_way("lzma,9:1M", &options)?.map(|spec| (spec.level, spec.pcluster_len)), Some((9, 1 << 20)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Methods, levels and sizes that there are not, or that the kernel lacks.
pub fn hint_way(text: &str, options: &BuildOptions) -> Result<Option<Spec>, WayError> {
    if text == "none" {
        return Ok(None);
    }
    let refuse = |reason: &dyn Display| WayError(format!("{text}: {reason}"));
    let (algorithm, len) = text.split_once(':').map_or((text, None), |(algorithm, len)| (algorithm, Some(len)));
    let asked = len.map(|len| kiln_codec::parse_size(len).map_err(|error| refuse(&error))).transpose()?;
    let default_len = options.compression.spec.map_or(PCLUSTER_LEN, |spec| spec.pcluster_len);
    let spec = match (algorithm, options.compression.spec) {
        ("", Some(spec)) => spec,
        ("", None) => return Err(refuse(&"nothing is compressed otherwise: name an algorithm")),
        _ => Spec::parse(algorithm, default_len).map_err(|error| refuse(&error))?,
    };
    let limits = PclusterLimits::new(spec.method, options);
    let refuse = |problem: OptionProblem| WayError(problem.message(text));
    let pcluster_len = asked.map_or(Ok(limits.nearest(default_len)), |len| limits.check(len)).map_err(refuse)?;
    check_method(spec.method, options.kernel).map_err(refuse)?;
    Ok(Some(Spec { pcluster_len, ..spec }))
}

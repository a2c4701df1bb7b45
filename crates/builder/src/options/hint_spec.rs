//! Syntax of the compression of single files.

use kiln_codec::Spec;
use std::fmt::Display;

use crate::options::BuildOptions;
use crate::options::preset::error::OptionProblem;
use crate::options::preset::limits::{PclusterLimits, check_method};

/// Length in bytes of pclusters if nothing states one.
const PCLUSTER_LEN: u32 = 64 << 10;

/// A text that is not a method of compression, or one that the image cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HintSpecError(String);

/// Parses the compression of single files: `none`, `ALGORITHM[,LEVEL][,dictsize=SIZE]`, `:SIZE` (the length of pclusters),
/// or both. The rest comes from `options`. Returns `None` for files that are stored uncompressed.
///
/// ```
/// # use kiln_builder::{Choices, hint_spec};
/// let options = Choices::default().build_options()?;
/// assert_eq!(hint_spec("none", &options)?, None);
/// assert_eq!(hint_spec("lzma,9:1M", &options)?.map(|spec| (spec.level, spec.pcluster_len)), Some((9, 1 << 20)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Unknown methods, invalid levels and sizes, and methods that the kernel lacks.
pub fn hint_spec(text: &str, options: &BuildOptions) -> Result<Option<Spec>, HintSpecError> {
    if text == "none" {
        return Ok(None);
    }
    let refuse = |reason: &dyn Display| HintSpecError(format!("{text}: {reason}"));
    let (algorithm, len) = text.split_once(':').map_or((text, None), |(algorithm, len)| (algorithm, Some(len)));
    let asked = len.map(|len| kiln_codec::parse_size(len).map_err(|error| refuse(&error))).transpose()?;
    let default_len = options.compression.spec.map_or(PCLUSTER_LEN, |spec| spec.pcluster_len);
    let spec = match (algorithm, options.compression.spec) {
        ("", Some(spec)) => spec,
        ("", None) => return Err(refuse(&"nothing is compressed otherwise: name an algorithm")),
        _ => Spec::parse(algorithm, default_len).map_err(|error| refuse(&error))?,
    };
    let limits = PclusterLimits::new(spec.method, options);
    let refuse = |problem: OptionProblem| HintSpecError(problem.message(text));
    let pcluster_len = asked.map_or(Ok(limits.nearest(default_len)), |len| limits.check(len)).map_err(refuse)?;
    check_method(spec.method, options.kernel).map_err(refuse)?;
    Ok(Some(Spec { pcluster_len, ..spec }))
}

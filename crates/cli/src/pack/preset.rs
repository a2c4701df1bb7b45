//! What the command line calls presets and the options that override them.

use crate::exit::Failure;
use kiln_builder::{Choices, MethodChoice, OptionError, OptionField, OptionProblem, Preset};
use kiln_codec::Spec;

/// Where a choice of options starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum PresetArg {
    /// No compression
    Plain,
    /// lz4, 64 KiB; small files packed
    Fast,
    /// zstd,3, 64 KiB; small files packed, equal parts stored once
    #[default]
    Balanced,
    /// lzma,6, 1 MiB; files packed whatever their size, equal parts stored once
    Archive,
    /// zstd,3, 64 KiB; no file packed, compressed ends beside inodes: for random reads of small files
    Dataset,
    /// as balanced, for trees that are to be restored: with digests of contents and --strict-xattrs; for a directory also stamps for the next
    /// time (--stamp), and what programs have written is on disk before it is looked at
    Backup,
}

impl From<PresetArg> for Preset {
    fn from(arg: PresetArg) -> Self {
        match arg {
            PresetArg::Plain => Preset::Plain,
            PresetArg::Fast => Preset::Fast,
            PresetArg::Balanced => Preset::Balanced,
            PresetArg::Archive => Preset::Archive,
            PresetArg::Dataset => Preset::Dataset,
            PresetArg::Backup => Preset::Backup,
        }
    }
}

/// How compressed files tell where their data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Extents {
    /// An index of whole blocks
    Index,
    /// Encoded extents: byte-granular, without padding (needs Linux 6.15)
    Encoded,
}

/// `METHOD[,LEVEL][,dictsize=SIZE]`, the value of `option`.
pub fn method(option: &str, text: &str) -> Result<MethodChoice, Failure> {
    // Every method has pclusters of this length.
    let spec = Spec::parse(text, 4096).map_err(|error| Failure::Usage(format!("{option}{text}: {error}")))?;
    Ok(MethodChoice { method: spec.method, level: Some(spec.level), window_len: spec.window_len })
}

/// The methods of a list: a number or an option belongs to the method before it.
pub fn methods(option: &str, list: &str) -> Result<Vec<MethodChoice>, Failure> {
    let mut texts: Vec<String> = Vec::new();
    for item in list.split(',') {
        match texts.last_mut() {
            Some(before) if item.starts_with(|c: char| c.is_ascii_digit()) || item.contains('=') => {
                *before = format!("{before},{item}");
            }
            _ => texts.push(item.to_owned()),
        }
    }
    texts.iter().map(|text| method(option, text)).collect()
}

/// An option of `choices` that cannot be had, as the command line calls it.
pub fn refusal(error: &OptionError, choices: &Choices) -> Failure {
    let name = match error.field {
        OptionField::Kernel => "--kernel",
        OptionField::BlockLen => "--block-size",
        OptionField::Compression => "-z",
        OptionField::PclusterLen => "-C",
        OptionField::Dedupe => "--dedupe parts",
        OptionField::Fragments => "--fragments",
        OptionField::PackedPclusterLen => "--packed-pcluster",
        OptionField::EncodedExtents => "--extents encoded",
        OptionField::TailPacking => "--tail-packing",
        OptionField::PackDirectories => "--compress-dirs",
        OptionField::Metadata => "--compress-metadata",
        OptionField::Tries => "--try",
        other => other.name(),
    };
    let advice = match error.problem {
        OptionProblem::NothingCompressed => ": name an algorithm with -z",
        OptionProblem::NothingPacked => ": see --fragments",
        OptionProblem::EncodedExtents => ": see --extents",
        _ => "",
    };
    let message = match (&error.problem, choices.block_len) {
        (OptionProblem::NeedsKernel { .. }, Some(len)) if error.field == OptionField::BlockLen => {
            error.problem.message(format_args!("{name} {len}"))
        }
        (problem, _) => problem.message(name),
    };
    Failure::Usage(message + advice)
}

#[cfg(test)]
mod tests;

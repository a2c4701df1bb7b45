//! Names of presets, and of the options that override them, on the command line.

use super::failure::source_date_epoch;
use crate::exit::Failure;
use crate::process::signals::Signals;
use crate::process::work::WorkArgs;
use clap::ValueEnum;
use kiln_builder::{Choices, MethodChoice, OptionError, OptionField, OptionProblem, Preset};
use kiln_codec::Spec;
use kiln_format::KernelVersion;
use kilnfs::Packer;
use std::sync::Arc;

/// Set of options to start from.
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
    /// zstd,3, 64 KiB; no file packed, compressed ends beside inodes
    Dataset,
    /// As balanced, with digests of contents, --strict-xattrs and stamps
    Backup,
}

impl PresetArg {
    /// Returns the presets that lay images out differently, with their names. `Backup` lays them out as `Balanced`
    /// does.
    pub fn layouts() -> impl Iterator<Item = (String, Self)> {
        let presets = Self::value_variants().iter().filter(|preset| **preset != Self::Backup);
        presets.filter_map(|preset| Some((preset.to_possible_value()?.get_name().to_owned(), *preset)))
    }
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

/// Record of the places of compressed data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Extents {
    /// An index of whole blocks
    Index,
    /// Encoded extents: byte-granular, without padding (needs Linux 6.15)
    Encoded,
}

/// Options of commands that build images and have few options of a build.
#[derive(clap::Args)]
pub struct BuildArgs {
    /// Start from this preset; other options override it
    #[arg(long, value_enum, default_value_t)]
    preset: PresetArg,

    /// Use only features of Linux X.Y, 5.4 or later
    #[arg(long, value_name = "X.Y")]
    kernel: Option<KernelVersion>,
}

impl BuildArgs {
    /// Returns true if none of them is given.
    pub fn are_default(&self) -> bool {
        self.preset == PresetArg::default() && self.kernel.is_none()
    }

    /// Checks that the options go together, before anything is made.
    ///
    /// # Errors
    /// A kernel that lacks what every image needs.
    pub fn check(&self) -> Result<(), Failure> {
        check(&self.choices())
    }

    /// Returns the choices that these options make.
    pub fn choices(&self) -> Choices {
        Choices { preset: self.preset.into(), kernel: self.kernel, ..Choices::default() }
    }
}

fn check(choices: &Choices) -> Result<(), Failure> {
    choices.build_options().map(drop).map_err(|error| refusal(&error, choices))
}

/// Returns a packer with few choices.
///
/// # Errors
/// Choices that exclude each other; `SOURCE_DATE_EPOCH` that is no number.
pub fn packer(choices: Choices, work: &WorkArgs, keep_going: bool, signals: &Signals) -> Result<Packer, Failure> {
    check(&choices)?;
    let mut packer = Packer::new().choices(choices).threads(work.threads()).stop(Arc::clone(signals.stop()));
    if let Some(secs) = source_date_epoch()? {
        packer = packer.source_date_epoch(secs);
    }
    Ok(if keep_going { packer.keep_going() } else { packer })
}

/// Parses `METHOD[,LEVEL][,dictsize=SIZE]`, the value of `option`.
pub fn method(option: &str, text: &str) -> Result<MethodChoice, Failure> {
    // Every method has pclusters of this length.
    let spec = Spec::parse(text, 4096).map_err(|error| Failure::Usage(format!("{option}{text}: {error}")))?;
    Ok(MethodChoice { method: spec.method, level: Some(spec.level), window_len: spec.window_len })
}

/// Parses a list of methods: a number or an option belongs to the method before it.
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

/// Returns the failure for an option of `choices` that cannot be had, as the command line calls it.
pub fn refusal(error: &OptionError, choices: &Choices) -> Failure {
    let name = match error.field {
        OptionField::Kernel => "--kernel",
        OptionField::BlockLen => "--block-size",
        OptionField::Compression => "--compress",
        OptionField::PclusterLen => "--cluster-size",
        OptionField::Dedupe => "--dedupe parts",
        OptionField::Fragments => "--fragments",
        OptionField::PackedPclusterLen => "--layout packed-cluster",
        OptionField::EncodedExtents => "--layout extents=encoded",
        OptionField::TailPacking => "--layout tail-packing",
        OptionField::PackDirectories => "--layout compress-dirs",
        OptionField::Metadata => "--layout metadata",
        OptionField::Tries => "--try",
        other => other.name(),
    };
    let advice = match error.problem {
        OptionProblem::NothingCompressed => ": name an algorithm with --compress",
        OptionProblem::NothingPacked => ": see --fragments",
        OptionProblem::EncodedExtents => ": see --layout extents",
        _ => "",
    };
    let message = match (&error.problem, choices.block_len) {
        (OptionProblem::NeedsKernel { .. }, Some(len)) if error.field == OptionField::BlockLen => {
            error.problem.message(format_args!("{name} {len}"))
        }
        (OptionProblem::PclusterLen { len, .. } | OptionProblem::BigPcluster { len, .. }, _)
            if name.starts_with("--layout") =>
        {
            error.problem.message(name).replacen(&format!("{name} {len}"), &format!("{name}={len}"), 1)
        }
        (problem, _) => problem.message(name),
    };
    Failure::Usage(message + advice)
}

#[cfg(test)]
mod tests;

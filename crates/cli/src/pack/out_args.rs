//! Options of commands that write an output, or read sources that cannot be read twice.

use crate::console::size;
use crate::pack::output::spool_dir;
use crate::process::signals::Signals;
use kiln_output::Existing;
use kiln_source::{SourceOptions, SpoolLimit};
use std::path::{Path, PathBuf};

/// Help of `--force` of all commands.
pub const FORCE_HELP: &str = "Replace existing output, or write to a block device";

/// Options of commands that read sources and write an output.
#[derive(clap::Args)]
pub struct OutArgs {
    #[command(flatten)]
    pub force: ForceArg,

    #[command(flatten)]
    pub spool: SpoolArgs,
}

/// The option `--force` of commands that write a file or a block device.
#[derive(Clone, Copy, clap::Args)]
pub struct ForceArg {
    #[arg(long, help = FORCE_HELP, help_heading = None)]
    pub force: bool,
}

/// Options of commands that read sources.
#[derive(clap::Args)]
pub struct SpoolArgs {
    #[command(flatten)]
    dir: SpoolDirArg,

    /// Fail if streams and temporary files of all sources take more than SIZE
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    spool_max: Option<u64>,
}

/// The option `--spool`.
#[derive(clap::Args)]
pub struct SpoolDirArg {
    /// Directory of temporary files; default: $TMPDIR, then /var/tmp
    #[arg(long, value_name = "DIR")]
    spool: Option<PathBuf>,
}

impl OutArgs {
    /// Returns the treatment of an output that exists.
    pub fn existing(&self) -> Existing {
        self.force.existing()
    }
}

impl ForceArg {
    /// Returns the treatment of an output that exists.
    pub fn existing(self) -> Existing {
        if self.force { Existing::Replace } else { Existing::Keep }
    }
}

impl SpoolArgs {
    /// Returns the directory that was asked for.
    pub fn asked(&self) -> Option<&Path> {
        self.dir.asked()
    }

    /// Returns the directory that was asked for, or that of the environment.
    pub fn dir(&self) -> PathBuf {
        self.dir.dir()
    }

    /// Returns options of sources that decompress and spool as was asked for, and end with `signals`.
    pub fn source_options(&self, signals: Option<&Signals>) -> SourceOptions {
        SourceOptions {
            spool_dir: self.asked().map(Path::to_owned),
            // One limit for all sources of this command together.
            spool_limit: self.spool_max.map_or_else(SpoolLimit::default, SpoolLimit::new),
            stop: signals.map(|signals| signals.stop().clone()),
            ..SourceOptions::default()
        }
    }
}

impl SpoolDirArg {
    /// Returns the directory that was asked for.
    pub fn asked(&self) -> Option<&Path> {
        self.spool.as_deref()
    }

    /// Returns the directory that was asked for, or that of the environment.
    pub fn dir(&self) -> PathBuf {
        spool_dir(self.asked())
    }
}

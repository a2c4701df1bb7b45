//! Options of commands that write an output, or read sources that cannot be read twice.

use crate::console::size;
use kiln_output::{Existing, Spool};
use kiln_source::SpoolLimit;
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
    force: bool,
}

/// The option `--force` of commands that write a file.
#[derive(Clone, Copy, clap::Args)]
pub struct ReplaceArg {
    #[arg(long, help = FORCE_HELP, help_heading = None)]
    pub force: bool,
}

/// Options of commands that read sources.
#[derive(clap::Args)]
pub struct SpoolArgs {
    #[command(flatten)]
    dir: SpoolDirArg,

    /// Fail if temporary files for all sources take more than SIZE
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

impl ReplaceArg {
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

    /// Returns the limit for all sources of this command together.
    pub fn limit(&self) -> SpoolLimit {
        self.spool_max.map_or_else(SpoolLimit::default, SpoolLimit::new)
    }
}

impl SpoolDirArg {
    /// Returns the directory that was asked for.
    pub fn asked(&self) -> Option<&Path> {
        self.spool.as_deref()
    }

    /// Returns the directory that was asked for, or that of the environment.
    pub fn dir(&self) -> PathBuf {
        self.spool.clone().unwrap_or_else(Spool::default_dir)
    }
}

//! The only definition of all flags: help, completions and man pages come from it.

mod help;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;

/// Pack a directory into an EROFS image; mount, read, extract and check such images.
#[derive(Parser)]
#[command(name = "kiln", version, max_term_width = 100, subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = "\
Exit codes: 0 done; 1 failed; 2 wrong usage; 3 done, but inputs were skipped (--keep-going);
128 + n ended by signal n. `kiln check` answers as fsck(8): 0, 4, 8, 16;
`kiln diff` as diff(1): 0 the same, 1 different, 2 trouble.
What --json prints is described in kiln-json(5), which `kiln generate man DIR` writes.

Examples:
  kiln pack rootfs/ rootfs.erofs
  kiln mount rootfs.erofs /mnt
  kiln ls -l rootfs.erofs /etc
  kiln extract rootfs.erofs out/ 'etc/**/*.conf'")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    Pack(Box<crate::pack::Args>),
    Mount(crate::mount::Args),
    Umount(crate::mount::umount::Args),
    Stats(crate::mount::stats::Args),
    Record(crate::mount::record::Args),
    Preload(crate::mount::preload::Args),
    Hotlist(crate::mount::hotlist::Args),
    Ls(crate::inspect::ls::Args),
    Tree(crate::inspect::tree::Args),
    Stat(crate::inspect::stat::Args),
    Cat(crate::inspect::cat::Args),
    Extract(crate::extract::Args),
    Export(crate::export::Args),
    Convert(crate::convert::Args),
    Delta(crate::delta::make::Args),
    Apply(crate::delta::apply::Args),
    Update(Box<crate::update::Args>),
    Generations(crate::update::generations::Args),
    Rollback(crate::update::rollback::Args),
    Repair(crate::update::repair::Args),
    Relayout(crate::relayout::Args),
    Compact(crate::relayout::compact::Args),
    Oci(crate::oci::Args),
    Info(crate::inspect::info::Args),
    Du(crate::inspect::du::Args),
    Explain(crate::inspect::explain::Args),
    Check(crate::inspect::check::Args),
    Diff(crate::inspect::diff::Args),
    InstallNames(crate::install_names::Args),
    /// Serve a mount in the background, for `kiln mount`
    #[command(hide = true, name = crate::mount::SERVE)]
    ServeMount,
    #[command(hide = true)]
    Generate(crate::generate::Args),
}

/// Returns the definition of the command, for help, completions and man pages.
pub fn definition() -> clap::Command {
    help::with_both(Cli::command())
}

/// Parses the arguments, which begin with the command's name.
pub fn parse(args: &[OsString]) -> Result<Cli, clap::Error> {
    let matches = definition().try_get_matches_from(args)?;
    Cli::from_arg_matches(&matches)
}

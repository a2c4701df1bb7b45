//! The only definition of all flags: help, completions and man pages come from it.

mod help;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::{OsStr, OsString};

/// Pack trees into EROFS images; mount, read, extract, update and check such images
#[derive(Parser)]
#[command(name = "kiln", version, max_term_width = 100, subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = "\
Topics of `kiln help TOPIC`:
  sources, filters, metadata, edits, compression, layout, order, reuse, mounting, root-hash, exit-codes

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
    #[command(alias = "unmount")]
    Umount(crate::mount::umount::Args),
    Run(Box<crate::run::Args>),
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
    Patch(crate::patch::Args),
    Update(Box<crate::update::Args>),
    Log(crate::update::log::Args),
    Rollback(crate::update::rollback::Args),
    Repair(crate::update::repair::Args),
    Relayout(crate::relayout::Args),
    Oci(crate::oci::Args),
    Composefs(Box<crate::composefs::Args>),
    Verity(crate::verity::Args),
    Digest(crate::digest::Args),
    Info(crate::inspect::info::Args),
    Du(crate::inspect::du::Args),
    Explain(crate::inspect::explain::Args),
    Check(crate::inspect::check::Args),
    Diff(crate::inspect::diff::Args),
    Doctor(crate::doctor::Args),
    InstallNames(crate::install_names::Args),
    /// Serve a mount in the background, for `kiln mount`
    #[command(hide = true, name = crate::mount::SERVE)]
    ServeMount {
        /// Image and directory, for people who read the list of processes
        #[arg(value_name = "FILE")]
        _shown: Vec<std::path::PathBuf>,
    },
    Generate(crate::generate::Args),
    Help(crate::help::Args),
}

/// Returns the definition of the command, for help, completions and man pages.
pub fn definition() -> clap::Command {
    help::with_one_help(Cli::command())
}

/// Adds the arguments of a subcommand.
type Define = fn(clap::Command) -> clap::Command;

/// Subcommands that scripts start again and again. The definitions of all take 1.5 MB of memory and a fifth of the time
/// of `kiln run`.
const STARTED_OFTEN: [(&str, Define); 6] = [
    ("run", crate::run::Args::augment_args),
    ("mount", crate::mount::Args::augment_args),
    ("umount", crate::mount::umount::Args::augment_args),
    ("ls", crate::inspect::ls::Args::augment_args),
    ("stat", crate::inspect::stat::Args::augment_args),
    ("cat", crate::inspect::cat::Args::augment_args),
];

/// Returns the definition of a command that has one subcommand only, if that is started often.
fn definition_with(subcommand: &OsStr) -> Option<clap::Command> {
    let (name, define) = STARTED_OFTEN.iter().find(|(name, _)| subcommand == *name)?;
    Some(help::with_one_help(clap::Command::new("kiln").subcommand(define(clap::Command::new(*name)))))
}

/// Parses arguments, the first of which is the command's name.
///
/// # Errors
/// Wrong usage; help and the version.
pub fn parse(args: &[OsString]) -> Result<Cli, clap::Error> {
    // Messages and help speak of the whole command.
    let alone = args.get(1).and_then(|name| definition_with(name));
    let matches = match alone.map(|definition| definition.try_get_matches_from(args)) {
        Some(Ok(matches)) => matches,
        Some(Err(_)) | None => definition().try_get_matches_from(args)?,
    };
    Cli::from_arg_matches(&matches)
}

#[cfg(test)]
mod tests;

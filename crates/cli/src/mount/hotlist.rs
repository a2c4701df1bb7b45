//! `kiln hotlist`: lists of the reads of programs.

mod diff;
mod merge;
mod show;

use crate::exit::{Exit, Failure};
use clap::Subcommand;

/// Merge, show and compare hot lists
///
/// A hot list has ranges of files in the order in which a program has read them. See `kiln help order`.
#[derive(clap::Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  kiln hotlist merge first.list second.list -o both.list
  kiln hotlist show both.list
  kiln hotlist diff first.list second.list"
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

impl Args {
    /// Returns whether exit codes are those of diff(1).
    pub fn is_diff(&self) -> bool {
        matches!(self.what, What::Diff(_))
    }
}

#[derive(Subcommand)]
enum What {
    Merge(merge::Args),
    Show(show::Args),
    Diff(diff::Args),
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    match &args.what {
        What::Merge(args) => merge::run(args),
        What::Show(args) => show::run(args),
        What::Diff(args) => diff::run(args),
    }
}

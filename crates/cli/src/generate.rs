//! `kiln generate`: what packagers install beside the command, made from its definition.

mod man;
mod reference;

use crate::exit::{Exit, Failure};
use clap::Subcommand;
use clap_complete::Shell;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

/// Generate man pages, reference pages and shell completions
#[derive(clap::Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  kiln generate man target/man
  kiln generate completions bash > /usr/share/bash-completion/completions/kiln"
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Write the man pages
    Man {
        /// Directory to write to, which is made if needed
        dir: PathBuf,
    },
    /// Write the reference pages, in Markdown
    Reference {
        /// Directory to write to, which is made if needed
        dir: PathBuf,
    },
    /// Print completions for a shell
    Completions {
        /// Shell to complete for
        shell: Shell,
    },
}

/// Write what is asked for, of the command that `definition` defines.
pub fn run(args: &Args, mut definition: clap::Command) -> Result<Exit, Failure> {
    match &args.what {
        What::Man { dir } => {
            let fail = |source| Failure::File { path: dir.clone(), action: "write man pages", source };
            fs::create_dir_all(dir).map_err(fail)?;
            man::write(dir, definition).map_err(fail)?;
        }
        What::Reference { dir } => {
            let fail = |source| Failure::File { path: dir.clone(), action: "write reference pages", source };
            fs::create_dir_all(dir).map_err(fail)?;
            reference::write(dir, definition).map_err(fail)?;
        }
        What::Completions { shell } => {
            // The generator panics where it cannot write: it writes to memory.
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut definition, "kiln", &mut script);
            io::stdout().write_all(&script)?;
        }
    }
    Ok(Exit::Done)
}

//! The command `kiln`: glue between the library crates and a person or a script. [`main`] runs it.
//!
//! Each subcommand is a file with its arguments and a function `run`: `pack`, `extract`, `mount`, and those in
//! `inspect`. Data goes to standard output, everything else to standard error. Called by another program's name it
//! acts as that program, see `dropin`. The library crates never read the environment and never print; that is done
//! here.
#![deny(unsafe_code)] // except where a module gives the reason

mod cli;
mod composefs;
mod console;
mod convert;
mod digest;
mod doctor;
mod dropin;
mod exit;
mod export;
mod extract;
mod generate;
mod headings;
mod help;
mod image;
mod inspect;
mod install_names;
mod mount;
mod objects;
mod oci;
mod pack;
mod patch;
mod process;
mod relayout;
mod root_hash;
mod run;
mod update;
mod verity;
mod view;

use cli::Command;
use console::report::{self, ErrorJson};
use exit::{Exit, Failure};
use inspect::{cat, check, diff, du, explain, info, ls, stat, tree};
use mount::{hotlist, preload, record, stats, umount};
use process::memory::{self, Advice};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

pub use process::memory::EndingAllocator;
pub use process::program::set_program;

/// Runs the command and returns the exit code. The first of the arguments is the name that the command was called
/// by: `kiln`, or one of those that `kiln install-names` installs.
///
/// It prints, and catches signals from then on: it is for a program that does nothing else. `kiln mount` without
/// `--foreground` starts the running program once more, see [`set_program`].
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    match args.first().and_then(|name| dropin::find(name)) {
        Some(program) => program.run(args.into_iter().skip(1).collect()),
        None => exit_code(&args).into(),
    }
}

/// Text for somebody who has typed the name alone.
const BRIEF: &str = "\
kiln packs trees of files into images that Linux mounts, and reads, checks and updates them.
Begin with: kiln pack DIRECTORY IMAGE; kiln mount IMAGE DIRECTORY; kiln doctor
All commands: kiln --help
";

/// Runs `kiln` alone, whatever name the first argument is. Returns the exit code as a number, for programs with
/// their own way to exit.
pub fn exit_code(args: &[OsString]) -> u8 {
    if args.len() < 2 {
        let _ = std::io::stderr().lock().write_all(BRIEF.as_bytes());
        return Failure::Usage(String::new()).code();
    }
    let cli = match cli::parse(args) {
        Ok(cli) => cli,
        Err(error) => return usage(&error, args),
    };
    memory::advise(advice(&cli.command));
    let code_of = match &cli.command {
        Command::Check(_) => Failure::fsck_code,
        Command::Diff(_) => Failure::diff_code,
        Command::Hotlist(args) if args.is_diff() => Failure::diff_code,
        _ => Failure::code,
    };
    match run(cli.command) {
        Ok(exit) => exit.code(),
        Err(failure) if failure.is_broken_pipe() => Exit::Done.code(),
        Err(failure) => {
            let code = code_of(&failure);
            if !failure.is_silent() {
                report::error(&failure);
            }
            if wants_json(args) {
                // The exit code has the information, too.
                let _ = report::print_error(ErrorJson::new(&failure, code));
            }
            code
        }
    }
}

/// Returns whether programs read standard output. Looks at the raw arguments, as they may not parse.
fn wants_json(args: &[OsString]) -> bool {
    args.iter().skip(1).take_while(|arg| *arg != "--").any(|arg| arg == "--json")
}

/// Returns advice that reduces memory.
fn advice(command: &Command) -> Advice {
    let help = match command {
        Command::Pack(_) => "fewer --threads, a lower --memory, a smaller -C or another --preset need less",
        Command::Mount(_) | Command::Run(_) | Command::ServeMount { .. } => {
            "a smaller --cache and fewer --threads need less"
        }
        Command::Check(_)
        | Command::Composefs(_)
        | Command::Convert(_)
        | Command::Diff(_)
        | Command::Export(_)
        | Command::Extract(_)
        | Command::Oci(_)
        | Command::Relayout(_)
        | Command::Repair(_)
        | Command::Update(_) => "fewer --threads need less",
        _ => "",
    };
    Advice { prefix: "kiln: ", help }
}

fn run(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Pack(args) => pack::run(&args),
        Command::Mount(args) => mount::run(&args),
        Command::ServeMount { .. } => mount::run_in_background(),
        Command::Umount(args) => umount::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Record(args) => record::run(&args),
        Command::Preload(args) => preload::run(&args),
        Command::Hotlist(args) => hotlist::run(&args),
        Command::Ls(args) => ls::run(&args),
        Command::Tree(args) => tree::run(&args),
        Command::Stat(args) => stat::run(&args),
        Command::Cat(args) => cat::run(&args),
        Command::Extract(args) => extract::run(&args),
        Command::Export(args) => export::run(args),
        Command::Convert(args) => convert::run(&args),
        Command::Patch(args) => patch::run(&args),
        Command::Update(args) => update::run(&args),
        Command::Log(args) => update::log::run(&args),
        Command::Rollback(args) => update::rollback::run(&args),
        Command::Repair(args) => update::repair::run(&args),
        Command::Relayout(args) => relayout::run(&args),
        Command::Oci(args) => oci::run(&args),
        Command::Composefs(args) => composefs::run(&args),
        Command::Verity(args) => verity::run(&args),
        Command::Digest(args) => digest::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Du(args) => du::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::InstallNames(args) => install_names::run(&args),
        Command::Generate(args) => generate::run(&args, cli::definition()),
        Command::Help(args) => help::run(&args, cli::definition()),
    }
}

/// Prints help or version, which go to standard output and are not errors; the rest is misuse, which `check` reports
/// like fsck(8).
fn usage(error: &clap::Error, args: &[OsString]) -> u8 {
    // If even this cannot be printed, only the exit code remains.
    let _ = error.print();
    let is_check = args.get(1).is_some_and(|command| command == "check");
    if !error.use_stderr() {
        return Exit::Done.code();
    }
    let message = error.to_string();
    let failure = Failure::Usage(message.trim_start_matches("error: ").trim_end().to_owned());
    let code = if is_check { failure.fsck_code() } else { failure.code() };
    if wants_json(args) {
        let _ = report::print_error(ErrorJson::new(&failure, code));
    }
    code
}

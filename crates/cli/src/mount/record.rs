//! `kiln record`

use crate::console::report::note;
use crate::console::size::Human;
use crate::exit::{Exit, Failure};
use crate::process::child::{Forwarding, Status};
use kiln_mount::{Granularity, Recorded, Recording};
use kiln_output::{AtomicFile, Existing};
use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Record what a command reads on a mount
///
/// Writes a hot list for `kiln pack --order`, `kiln relayout --order`, `kiln mount --preload` and `kiln preload`.
/// It has ranges of files on a FUSE mount of kiln, and whole files on a mount by the kernel, which needs root.
/// Cached pages of the mount are dropped first. Other programs that read on the mount are recorded, too. The exit
/// code is that of COMMAND. If it fails and nothing was read, no list is written.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln record -o python.list /mnt -- /mnt/usr/bin/python3 -c 'import json'
  kiln record -o boot.list /mnt -- chroot /mnt /sbin/my-service --once
  kiln pack --order python.list tree/ tree.erofs")]
pub struct Args {
    /// Directory where the image is mounted
    mountpoint: PathBuf,

    /// Command to run, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,

    /// List to write
    #[arg(short, long, value_name = "LIST")]
    output: PathBuf,

    /// Replace existing output, or write to a block device
    #[arg(long)]
    force: bool,

    /// Print nothing but errors and skipped inputs
    #[arg(short, long)]
    quiet: bool,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    if args.output == Path::new("-") {
        return Err(Failure::Usage("-o -: standard output is the command's: name a file".into()));
    }
    let [program, arguments @ ..] = &args.command[..] else {
        return Err(Failure::Usage("name a command behind --".into()));
    };
    // Errors of the output are reported before the command runs.
    let existing = if args.force { Existing::Replace } else { Existing::Keep };
    let file = AtomicFile::create(&args.output, existing)?;
    let signals = Forwarding::begin()?;
    let recording = Recording::start(&args.mountpoint, signals.stop()).map_err(Failure::Mount)?;
    if let Some(number) = signals.caught() {
        return Err(Failure::Signal(number));
    }
    let granularity = recording.granularity();
    let mut command = Command::new(program);
    let status = signals.run(command.args(arguments)).map_err(|source| Failure::of_program(program, source))?;
    let recorded = recording.finish().map_err(Failure::Mount)?;
    if recorded.list.entries().is_empty() && status != Status::Exited(0) {
        note(format_args!("{}: not written: the command has failed, and has read nothing", args.output.display()));
        return Ok(exit(status));
    }
    write(&file, &recorded).map_err(|source| Failure::File { path: args.output.clone(), action: "write", source })?;
    file.commit()?;
    tell(args, &recorded, granularity);
    Ok(exit(status))
}

fn exit(status: Status) -> Exit {
    Exit::Command(match status {
        Status::Exited(code) => code,
        Status::Killed(number) => 128_u8.saturating_add(number),
    })
}

fn write(file: &AtomicFile, recorded: &Recorded) -> std::io::Result<()> {
    let mut out = BufWriter::new(file.file());
    write!(out, "{}", recorded.list)?;
    out.flush()
}

fn tell(args: &Args, recorded: &Recorded, granularity: Granularity) {
    let list = args.output.display();
    if recorded.lost > 0 {
        note(format_args!("{list}: {} reads or more are not in it, as they came too fast", recorded.lost));
    }
    if recorded.unnamed > 0 {
        note(format_args!("{list}: {} files are not in it, as their names were not found", recorded.unnamed));
    }
    if args.quiet {
        return;
    }
    let entries = recorded.list.entries();
    let (files, bytes) = (recorded.list.files().len(), entries.iter().map(|entry| entry.len).sum());
    match granularity {
        Granularity::Files => note(format_args!("{list}: {files} whole files, {}", Human(bytes))),
        _ => note(format_args!("{list}: {} ranges of {files} files, {}", entries.len(), Human(bytes))),
    }
    if let Granularity::Pages { read_ahead: window @ 1.. } = granularity {
        let window = Human(window);
        note(format_args!(
            "ranges may be longer than what was read, by {window}: only a server of root ends the readahead"
        ));
    }
}

//! Drop-in names that scripts already call: run as `mkfs.erofs`, `fsck.erofs`, `dump.erofs` or `erofsfuse`, this
//! program takes the options of that program of erofs-utils, and prints the same texts; run as `mkcomposefs`,
//! `composefs-info` or `mount.composefs`, those of composefs. Run as `mount.kiln`, it is what mount(8) calls.
//!
//! Exit codes are 0 and 1 only, and never 0 after an error.

mod composefs_info;
mod dump;
mod fsck;
mod fuse;
mod getopt;
mod log;
mod mkcomposefs;
mod mkfs;
mod mount_composefs;
mod mount_erofs;
mod mount_kiln;
mod source;
mod stored;

use crate::exit::Failure;
use crate::process::memory::{self, Advice};
use getopt::Misuse;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

/// The release of erofs-utils whose options are supported. Scripts that ask for a version want to know it.
const OPTIONS_OF: &str = "1.9.4";

/// A program with a drop-in name.
pub struct Program {
    /// The name.
    pub name: &'static str,
    run: fn(Vec<OsString>) -> Result<(), Stop>,
    /// Purpose of the original.
    pub about: &'static str,
    usage: &'static str,
    /// The project of the original.
    pub project: Project,
}

/// A project with programs whose names kiln plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Project {
    ErofsUtils,
    Composefs,
    /// None: mount(8) looks for these names.
    Kiln,
}

impl Project {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::ErofsUtils => "erofs-utils",
            Self::Composefs => "composefs",
            Self::Kiln => "kiln",
        }
    }
}

/// All drop-in names. `kiln install-names` installs these.
pub const PROGRAMS: [Program; 10] = [
    Program {
        name: "mkfs.erofs",
        run: mkfs::run,
        about: "make an EROFS image",
        usage: mkfs::USAGE,
        project: Project::ErofsUtils,
    },
    Program {
        name: "fsck.erofs",
        run: fsck::run,
        about: "check an EROFS image, or extract it",
        usage: fsck::USAGE,
        project: Project::ErofsUtils,
    },
    Program {
        name: "dump.erofs",
        run: dump::run,
        about: "show what is in an EROFS image",
        usage: dump::USAGE,
        project: Project::ErofsUtils,
    },
    Program {
        name: "erofsfuse",
        run: fuse::run,
        about: "mount an EROFS image by FUSE",
        usage: fuse::USAGE,
        project: Project::ErofsUtils,
    },
    Program {
        name: "mount.erofs",
        run: mount_erofs::run,
        about: "mount an EROFS image, for mount(8) and fstab(5)",
        usage: mount_erofs::USAGE,
        project: Project::ErofsUtils,
    },
    Program {
        name: "mkcomposefs",
        run: mkcomposefs::run,
        about: "make a composefs image",
        usage: mkcomposefs::USAGE,
        project: Project::Composefs,
    },
    Program {
        name: "composefs-info",
        run: composefs_info::run,
        about: "show what is in composefs images",
        usage: composefs_info::USAGE,
        project: Project::Composefs,
    },
    Program {
        name: "mount.composefs",
        run: mount_composefs::run,
        about: "mount a composefs image with its objects",
        usage: mount_composefs::USAGE,
        project: Project::Composefs,
    },
    Program {
        name: "mount.kiln",
        run: mount_kiln::run,
        about: "mount an EROFS image, for mount(8) and fstab(5)",
        usage: mount_kiln::USAGE,
        project: Project::Kiln,
    },
    Program {
        name: "mount.fuse.kiln",
        run: mount_kiln::run_fuse,
        about: "mount an EROFS image by FUSE, for mount(8) and fstab(5)",
        usage: mount_kiln::USAGE,
        project: Project::Kiln,
    },
];

/// The reason why a program ends early.
pub enum Stop {
    /// Its usage was requested.
    Help,
    /// Its version was requested; these lines follow it.
    Version(&'static str),
    /// The command line has an error.
    Misuse(Misuse),
    /// It failed.
    Failed(Failure),
    /// It failed, and has printed the error.
    Told,
}

impl From<Misuse> for Stop {
    fn from(misuse: Misuse) -> Self {
        Stop::Misuse(misuse)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Stop::Failed(failure)
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Stop::Failed(error.into())
    }
}

/// Returns the program that `argv0` names, if it is one of these.
pub fn find(argv0: &OsStr) -> Option<&'static Program> {
    let name = Path::new(argv0).file_name()?;
    PROGRAMS.iter().find(|program| name == program.name)
}

impl Program {
    /// Returns synopsis and options, without the name.
    pub fn usage(&self) -> &'static str {
        self.usage
    }

    /// Runs the program with these arguments, which do not include its name.
    pub fn run(&self, args: Vec<OsString>) -> ExitCode {
        let help = if self.name == "mkfs.erofs" { "fewer --workers, a smaller -C or another -z need less" } else { "" };
        let prefix = match self.project {
            Project::ErofsUtils => "<E> erofs: ",
            Project::Composefs => "composefs: ",
            Project::Kiln => "kiln: ",
        };
        memory::advise(Advice { prefix, help });
        let stop = match (self.run)(args) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(stop) => stop,
        };
        match self.tell(stop) {
            Ok(()) => ExitCode::SUCCESS,
            Err(()) => ExitCode::FAILURE,
        }
    }

    fn tell(&self, stop: Stop) -> Result<(), ()> {
        let name = self.name;
        match stop {
            Stop::Help => print(&format!("Usage: {name} {}", self.usage)),
            Stop::Version(more) => {
                let ours = env!("CARGO_PKG_VERSION");
                print(&format!("{name} (kiln) {OPTIONS_OF}\n{more}kiln {ours}\n"))
            }
            Stop::Failed(failure) if failure.is_broken_pipe() => Ok(()),
            Stop::Failed(failure) => {
                match self.project {
                    _ if failure.is_silent() => {}
                    Project::ErofsUtils => log::error(format_args!("{failure}")),
                    Project::Composefs | Project::Kiln => log::line(format_args!("{name}: {failure}")),
                }
                Err(())
            }
            Stop::Misuse(misuse) => {
                match misuse {
                    Misuse::Other(_) if self.project == Project::ErofsUtils => log::error(format_args!("{misuse}")),
                    _ => log::line(format_args!("{name}: {misuse}")),
                }
                log::line(format_args!("Try '{name} --help' for more information."));
                Err(())
            }
            Stop::Told => Err(()),
        }
    }
}

/// Prints help or version. These are data, so a failed write is an error.
fn print(text: &str) -> Result<(), ()> {
    use std::io::Write;
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_component_counts() {
        for (argv0, name) in [
            ("fsck.erofs", Some("fsck.erofs")),
            ("./mkfs.erofs", Some("mkfs.erofs")),
            ("/usr/sbin/dump.erofs", Some("dump.erofs")),
            ("../erofsfuse", Some("erofsfuse")),
            ("kiln", None),
            ("fsck.erofs/kiln", None),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(find(OsStr::new(argv0)).map(|program| program.name), name, "{argv0}");
        }
    }
}

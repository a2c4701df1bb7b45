//! The program: the process that becomes the user's command, once the mounts are there.
#![allow(unsafe_code)]

use super::Args;
use super::view::View;
use crate::exit::{Exit, Failure};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Signal, chdir, pivot_root, set_parent_process_death_signal};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::ffi::OsString;
use std::io::{self, ErrorKind, PipeReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

const SHELL: &str = "/bin/sh";

/// The user's command.
pub struct Program {
    /// Name and arguments; a shell if there are none.
    command: Vec<OsString>,
    /// Directory that becomes the root.
    root: Option<PathBuf>,
    /// Directory in which it starts.
    dir: Option<PathBuf>,
}

impl Program {
    pub fn new(args: &Args, view: &View) -> Self {
        let root = view.is_root().then(|| view.dir().to_path_buf());
        // The directory in which kiln was called may be hidden by the image.
        let current = || std::env::current_dir().ok().filter(|dir| dir.starts_with(view.dir()) && root.is_none());
        Self { command: args.command.clone(), dir: args.chdir.clone().or_else(current), root }
    }

    /// Waits until the gate opens, completes what the command sees, and becomes the command. Without a PID namespace it
    /// ends with the keeper by itself.
    pub fn run(
        &self,
        mut gate: PipeReader,
        has_own_pids: bool,
        complete: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<Exit, Failure> {
        if !has_own_pids {
            set_parent_process_death_signal(Some(Signal::KILL))
                .map_err(io::Error::from)
                .map_err(Failure::of_run("end"))?;
        }
        if gate.read(&mut [0]).map_err(Failure::of_run("wait for the mount"))? == 0 {
            // The keeper has told why.
            return Err(Failure::Background(1));
        }
        complete()?;
        if let Some(root) = &self.root {
            change_root(root).map_err(Failure::of_run("make the image the root"))?;
        }
        if let Some(dir) = &self.dir {
            let path = dir.clone();
            chdir(dir).map_err(|errno| Failure::File { path, action: "change to it", source: errno.into() })?;
        }
        let (name, arguments) = match self.command.split_first() {
            Some((name, arguments)) => (name.clone(), arguments),
            None => (std::env::var_os("SHELL").unwrap_or_else(|| SHELL.into()), &[][..]),
        };
        let mut source = Command::new(&name).args(arguments).exec();
        if self.command.is_empty() && source.kind() == ErrorKind::NotFound {
            source = Command::new(SHELL).exec();
        }
        Err(Failure::of_program(&name, source))
    }
}

/// Makes a mount the root of this process, in a mount namespace of its own, so that the keeper's stays as it is.
fn change_root(root: &PathBuf) -> io::Result<()> {
    // SAFETY: the table of descriptors stays shared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    chdir(root)?;
    // The old root is mounted over the new one, and taken away from there.
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    Ok(chdir("/")?)
}

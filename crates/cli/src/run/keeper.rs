//! The keeper: the process that has the mounts, and whose end ends everything.

use super::program::Program;
use super::view::View;
use super::waiting::Waiting;
use crate::console::report;
use crate::exit::{Exit, Failure};
use crate::mount;
use crate::mount::options::MountOptions;
use crate::process::fork::{Side, fork};
use kiln_mount::Attributes;
use kiln_mount::fuse;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::mount::{MountFlags, mount as mount_at};
use rustix::process::{Pid, Signal, set_parent_process_death_signal};
use std::io::{self, PipeReader, PipeWriter, Write};
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::process;
use std::thread;

/// All that a keeper is to do.
pub struct Keeper {
    pub mount: mount::Args,
    pub view: View,
    pub program: Program,
    /// The user has a user namespace for this.
    pub is_user: bool,
    /// The keeper is the init process of a PID namespace.
    pub has_own_pids: bool,
}

impl Keeper {
    /// Starts the keeper, and waits for its end. This function returns in both processes.
    pub fn start(self) -> Result<Exit, Failure> {
        let (lifeline, held) = io::pipe().map_err(Failure::of_run("make a pipe"))?;
        let waiting = Waiting::begin();
        match fork().map_err(Failure::of_run("start a process"))? {
            Side::Parent(keeper) => {
                drop(lifeline);
                let code = waiting.until_end(keeper).map_err(Failure::of_run("wait for the command"))?;
                drop(held);
                Ok(Exit::Command(code))
            }
            Side::Child => {
                drop(held);
                self.keep(&lifeline, waiting)
            }
        }
    }

    /// Starts the program, mounts the image for it, and serves it until the program ends.
    fn keep(self, lifeline: &PipeReader, waiting: Waiting) -> Result<Exit, Failure> {
        set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(io::Error::from)
            .map_err(Failure::of_run("end with kiln"))?;
        if has_ended(lifeline) {
            return Err(Failure::Signal(9));
        }
        if self.has_own_pids {
            // A container may hide parts of /proc, and then permits no whole one: that of the container stays.
            let _ =
                mount_at("proc", "/proc", "proc", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None);
        }
        let prepared = self.view.prepare()?;
        // The program's process is made while there is one thread. It waits for the image, and completes the view: a
        // server that waits for its own answers could not be killed.
        let (gate, opener) = io::pipe().map_err(Failure::of_run("make a pipe"))?;
        let program = match fork().map_err(Failure::of_run("start a process"))? {
            Side::Child => {
                drop(opener);
                waiting.end();
                return self.program.run(gate, self.has_own_pids, || self.view.complete(&prepared, self.is_user));
            }
            Side::Parent(pid) => pid,
        };
        drop((gate, prepared));
        // If mounting fails, the gate stays shut until this process has told why, and has ended.
        let opener = ManuallyDrop::new(opener);
        self.serve(program, waiting, &opener)
    }

    /// Mounts the image, opens the gate for the program, and serves the image until the program ends.
    fn serve(self, program: Pid, waiting: Waiting, opener: &PipeWriter) -> Result<Exit, Failure> {
        let open = || (&*opener).write_all(b"x").map_err(Failure::of_run("start the command"));
        if mount::by_kernel(&self.mount, mount::via(&self.mount)?, Attributes::default())?.is_some() {
            open()?;
            return waiting.until_end(program).map(Exit::Command).map_err(Failure::of_run("wait for the command"));
        }
        kiln_mount::return_freed_memory();
        let options = mount::fuse_options(&self.mount, &MountOptions::default(), None)?;
        let sources = self.mount.image.sources_with_objects(options.cache_bytes)?;
        let (stop, _held) = io::pipe().map_err(Failure::of_run("make a pipe"))?;
        let mut waiting = Some(waiting);
        let mut on_ready = || {
            let Some(waiting) = waiting.take() else { return };
            // The end of the program is that of this process, without delay: the mounts end with it.
            let watch = move || process::exit(waiting.until_end(program).unwrap_or(1).into());
            let watched = || {
                thread::Builder::new().name("kiln-run".into()).spawn(watch).map_err(Failure::of_run("start a thread"))
            };
            if let Err(failure) = open().and_then(|()| watched()) {
                report::error(&failure);
                process::exit(failure.code().into());
            }
        };
        fuse::serve(sources, &self.mount.dir, &options, stop.as_fd(), &mut on_ready)
            .map_err(|error| mount::failure(&self.mount.image, error))?;
        // Somebody has unmounted the image. The program goes on without it.
        loop {
            thread::park();
        }
    }
}

/// Returns true if the process at the other end of the pipe has ended.
fn has_ended(lifeline: &PipeReader) -> bool {
    let mut fds = [PollFd::new(lifeline, PollFlags::empty())];
    poll(&mut fds, Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|count| count > 0)
}

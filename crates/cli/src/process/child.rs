//! A program that is run for the user. The user can signal it through this process, or both from the terminal.

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::signals::is_ignored;

/// The way in which the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It exited with this code.
    Exited(u8),
    /// It was killed by this signal.
    Killed(u8),
}

/// Signals that ask a process to end, caught from [`Forwarding::begin`] on. While a program runs, they are forwarded
/// to it.
pub struct Forwarding {
    phase: Arc<Mutex<Phase>>,
    stop: Arc<AtomicBool>,
    number: Arc<AtomicU8>,
}

/// The recipient of a signal.
#[derive(Clone, Copy)]
enum Phase {
    /// This process, which stops its work.
    Before,
    /// The program.
    Running(Pid),
    /// None: the first signal may have ended the program.
    After,
    /// This process, which ends.
    Ending,
}

impl Forwarding {
    /// Starts to catch signals. Ignored ones (`nohup` ignores SIGHUP) stay ignored.
    pub fn begin() -> io::Result<Self> {
        let caught = [SIGINT, SIGTERM, SIGHUP, SIGQUIT].into_iter().filter(|signal| !is_ignored(*signal));
        let mut signals = Signals::new(caught)?;
        let forwarding =
            Self { phase: Arc::new(Mutex::new(Phase::Before)), stop: Arc::default(), number: Arc::default() };
        let (phase, stop, number) =
            (Arc::clone(&forwarding.phase), Arc::clone(&forwarding.stop), Arc::clone(&forwarding.number));
        thread::Builder::new().name("kiln-signals".into()).spawn(move || {
            for signal in signals.forever() {
                let mut phase = phase.lock().unwrap_or_else(PoisonError::into_inner);
                match *phase {
                    Phase::Before if stop.load(Ordering::Relaxed) => drop(emulate_default_handler(signal)),
                    Phase::Before => {
                        number.store(u8::try_from(signal).unwrap_or(0), Ordering::Relaxed);
                        stop.store(true, Ordering::Relaxed);
                    }
                    // The terminal has sent it to the program as well.
                    Phase::Running(_) if matches!(signal, SIGINT | SIGQUIT) && is_in_foreground() => {}
                    Phase::Running(program) => {
                        if let Some(signal) = Signal::from_named_raw(signal) {
                            // The program may end at this moment.
                            let _ = kill_process(program, signal);
                        }
                    }
                    Phase::After => *phase = Phase::Ending,
                    Phase::Ending => drop(emulate_default_handler(signal)),
                }
            }
        })?;
        Ok(forwarding)
    }

    /// Returns the flag that is set once a signal has come before a program runs.
    pub fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    /// Returns the signal that came before a program runs.
    pub fn caught(&self) -> Option<u8> {
        Some(self.number.load(Ordering::Relaxed)).filter(|_| self.stop.load(Ordering::Relaxed))
    }

    /// Runs a program to its end, with the streams and the terminal of this process.
    pub fn run(&self, command: &mut Command) -> io::Result<Status> {
        // Signals wait for the lock, and then go to the program.
        let mut phase = self.phase();
        let mut child = command.spawn()?;
        let pid = Pid::from_child(&child);
        *phase = Phase::Running(pid);
        drop(phase);
        // The process id cannot be reused before the program is waited for.
        while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
        {
        }
        *self.phase() = Phase::After;
        let status = child.wait()?;
        Ok(match (status.code(), status.signal()) {
            (_, Some(number)) => Status::Killed(u8::try_from(number).unwrap_or(0)),
            (code, None) => Status::Exited(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        })
    }

    fn phase(&self) -> std::sync::MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether this process is in the foreground of its terminal, which then sends Ctrl-C to each process of its
/// group.
fn is_in_foreground() -> bool {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, in parentheses, may contain anything. Behind it are state, parent, group, session,
    // terminal, and the terminal's foreground group.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    fields.get(2).is_some_and(|group| fields.get(5) == Some(group))
}

//! Waiting for a process, with signals that are passed on to it.
#![allow(unsafe_code)]

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// Signals that are passed on to the program. SIGTSTP and its like stop each process by itself.
const PASSED_ON: [i32; 8] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    libc::SIGALRM,
];

/// Signals that wait until [`Waiting::until_end`] takes them, in this process and in threads that it starts later.
pub struct Waiting {
    before: libc::sigset_t,
    set: libc::sigset_t,
}

impl Waiting {
    /// Starts to hold back signals.
    pub fn begin() -> Self {
        let set = set_of(PASSED_ON.into_iter().chain([libc::SIGCHLD]));
        let mut before = set_of([]);
        // SAFETY: both sets are initialised. It fails only for an unknown first argument.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before) };
        Self { before, set }
    }

    /// Gives a new process the signals that its parent had.
    pub fn end(&self) {
        // SAFETY: as above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }

    /// Waits until `child` has ended, and passes signals on to it until then. Other children are reaped. Returns the
    /// exit code: 128 and its number for a signal.
    pub fn until_end(&self, child: Pid) -> io::Result<u8> {
        loop {
            while let Some((pid, status)) = waitpid(None, WaitOptions::NOHANG)? {
                if pid == child {
                    return Ok(code(status));
                }
            }
            let mut info = MaybeUninit::<libc::siginfo_t>::uninit();
            // SAFETY: the set is initialised, and `info` has room for a value.
            let number = unsafe { libc::sigwaitinfo(&self.set, info.as_mut_ptr()) };
            if number <= 0 || number == libc::SIGCHLD {
                continue;
            }
            // SAFETY: the call has returned a signal, and so filled it in.
            let info = unsafe { info.assume_init() };
            // A terminal sends its signals to all processes of the group, and so to the program, too.
            if info.si_code != libc::SI_KERNEL
                && let Some(signal) = Signal::from_named_raw(number)
            {
                // The program may end at this moment.
                let _ = kill_process(child, signal);
            }
        }
    }
}

fn set_of(signals: impl IntoIterator<Item = i32>) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call initialises the set; the numbers are signals, or else they are ignored.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

fn code(status: WaitStatus) -> u8 {
    let number = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => 1,
    };
    u8::try_from(number).unwrap_or(u8::MAX)
}

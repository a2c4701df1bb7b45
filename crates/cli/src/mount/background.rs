//! A FUSE server in the background: this program once more, in a session of its own.
//!
//! The first process returns only when the mount answers, or when it is certain that it never will. The two talk by two
//! pipes. The standard input of the second process has the request. Its standard output has the answer: a line means
//! ready, its end without one means failure. Errors go to the standard error that both share, until the mount is ready.

use crate::exit::Failure;
use crate::process::program;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read, Write};
use std::path::PathBuf;
use std::process::Stdio;

const LINE: &[u8] = b"ready\n";

/// Starts this program with `arguments`, sends `request` to it, and returns once it reports that it is ready.
///
/// # Errors
/// Errors of the system, and those of the background process, which it has told.
pub fn start(arguments: &[&OsStr], request: &[u8]) -> Result<(), Failure> {
    let mut command = program::command().map_err(fail("find this program"))?;
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(fail("start the background process"))?;
    match child.stdin.take().map_or(Ok(()), |mut pipe| pipe.write_all(request)) {
        // A process that ends before it has read all tells why.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            return Err(fail("write to the background process")(error));
        }
        _ => {}
    }
    let mut line = Vec::new();
    if let Some(pipe) = child.stdout.take() {
        pipe.take(LINE.len() as u64).read_to_end(&mut line).map_err(fail("read from the background process"))?;
    }
    if line == LINE {
        return Ok(());
    }
    let status = child.wait().map_err(fail("wait for the background process"))?;
    Err(Failure::Background(
        status.code().and_then(|code| u8::try_from(code).ok()).filter(|&code| code != 0).unwrap_or(1),
    ))
}

/// The background process's side of the pipe.
pub struct Ready(());

impl Ready {
    /// Leaves the session of the terminal, so that its end does not end this process.
    pub fn detach() -> Result<Self, Failure> {
        rustix::process::setsid().map_err(io::Error::from).map_err(fail("start a session"))?;
        Ok(Self(()))
    }

    /// Reports readiness, and releases everything that the first process has lent: its streams and its working
    /// directory.
    pub fn report(self) {
        // No failure here is a reason to end the mount, which works.
        let _ = std::env::set_current_dir("/");
        let mut stdout = io::stdout().lock();
        let _ = stdout.write_all(LINE).and_then(|()| stdout.flush());
        if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdin(&null);
            let _ = rustix::stdio::dup2_stdout(&null);
            let _ = rustix::stdio::dup2_stderr(&null);
        }
    }
}

fn fail(action: &'static str) -> impl Fn(io::Error) -> Failure {
    move |source| Failure::File { path: PathBuf::from("kiln"), action, source }
}

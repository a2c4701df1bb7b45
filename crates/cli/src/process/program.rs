//! The command line that starts this command again, in the background.

use std::ffi::OsString;
use std::io;
use std::process::Command;
use std::sync::OnceLock;

static PROGRAM: OnceLock<Vec<OsString>> = OnceLock::new();

/// Sets a program and its first arguments that start the command, if these are not the running executable and the
/// command's own arguments: for example those of an interpreter. Only the first call has an effect; an empty list is
/// ignored.
pub fn set_program(program: Vec<OsString>) {
    if !program.is_empty() {
        let _ = PROGRAM.set(program);
    }
}

/// Returns whether another program runs this command.
pub fn is_embedded() -> bool {
    PROGRAM.get().is_some()
}

/// Returns the command, to which arguments can be added.
///
/// # Errors
/// An unknown path of the running executable.
pub fn command() -> io::Result<Command> {
    use std::os::unix::process::CommandExt;
    if let Some([program, arguments @ ..]) = PROGRAM.get().map(Vec::as_slice) {
        let mut command = Command::new(program);
        command.args(arguments);
        return Ok(command);
    }
    let mut command = Command::new(std::env::current_exe()?);
    // This process may have been called by a name with another meaning.
    command.arg0("kiln");
    Ok(command)
}

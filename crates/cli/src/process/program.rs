//! How this command is started once more, in the background.

use std::ffi::OsString;
use std::io;
use std::process::Command;
use std::sync::OnceLock;

static PROGRAM: OnceLock<Vec<OsString>> = OnceLock::new();

/// Say how the command is started, where that is not the running executable with the command's arguments: a program and its
/// first arguments, for example those of an interpreter. The first call counts; an empty list is ignored.
pub fn set_program(program: Vec<OsString>) {
    if !program.is_empty() {
        let _ = PROGRAM.set(program);
    }
}

/// Whether another program runs this command.
pub fn is_embedded() -> bool {
    PROGRAM.get().is_some()
}

/// The command, to be given arguments.
///
/// # Errors
/// That the running executable is not known.
pub fn command() -> io::Result<Command> {
    use std::os::unix::process::CommandExt;
    if let Some([program, arguments @ ..]) = PROGRAM.get().map(Vec::as_slice) {
        let mut command = Command::new(program);
        command.args(arguments);
        return Ok(command);
    }
    let mut command = Command::new(std::env::current_exe()?);
    // The name that this process was called by may be one that means something else.
    command.arg0("kiln");
    Ok(command)
}

//! `fusermount3`, the setuid program that mounts and unmounts FUSE filesystems for users.

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg, socketpair,
};
use std::ffi::{OsStr, OsString};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Names of the program: in libfuse 3, and before.
pub const NAMES: [&str; 2] = ["fusermount3", "fusermount"];
/// Variable of the program's protocol: the number of a socket to which it sends the descriptor of
/// `/dev/fuse`.
const COMM_FD: &str = "_FUSE_COMMFD";

/// Mounts at `dir` with `options`, and returns the descriptor of the connection.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] if there is no such program; else the message of the program.
pub(crate) fn mount(dir: &Path, options: &OsStr) -> io::Result<OwnedFd> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let arguments = [OsStr::new("-o"), options, OsStr::new("--"), dir.as_os_str()];
    // The socket becomes the program's standard input: the one descriptor that survives exec
    // without unsafe code.
    let child = spawn(&arguments, theirs)?;
    let received = receive_fd(ours.as_fd());
    drop(ours);
    let output = child.wait_with_output()?;
    match received {
        Ok(Some(fd)) => Ok(fd),
        Ok(None) => Err(io::Error::other(said(&output.stderr))),
        Err(error) => Err(error.into()),
    }
}

/// Unmounts `dir`.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] if there is no such program; else the message of the program.
pub(crate) fn unmount(dir: &Path, lazily: bool) -> io::Result<()> {
    let mode = if lazily { "-uz" } else { "-u" };
    let (nothing, closed) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    drop(nothing);
    let output = spawn(&[OsStr::new(mode), OsStr::new("--"), dir.as_os_str()], closed)?.wait_with_output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(said(&output.stderr))),
    }
}

/// Starts the program under the first of its names that exists. Our copy of `stdin` is closed on
/// return, so that its other end sees when the program has ended.
fn spawn(arguments: &[&OsStr], stdin: OwnedFd) -> io::Result<Child> {
    let mut missing = io::Error::from(io::ErrorKind::NotFound);
    for name in NAMES {
        let mut command = Command::new(name);
        command.args(arguments).env(COMM_FD, "0").env("LC_ALL", "C");
        command.stdin(stdin.try_clone()?).stdout(Stdio::null()).stderr(Stdio::piped());
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing = error,
            result => return result,
        }
    }
    Err(missing)
}

/// Returns the descriptor that the other end sends, or `None` if it closes without sending one.
fn receive_fd(socket: std::os::fd::BorrowedFd<'_>) -> rustix::io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::io::retry_on_intr(|| {
        recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut messages = control.drain();
    Ok(messages.find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    }))
}

/// Returns the output of the program on one line.
fn said(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    match text.trim() {
        "" => "fusermount3 failed without a message".into(),
        text => text.replace('\n', "; "),
    }
}

/// Returns an `-o` option with a value that may contain the separator.
pub(crate) fn option(name: &str, value: &str) -> OsString {
    let escaped = value.replace('\\', "\\\\").replace(',', "\\,");
    format!("{name}={escaped}").into()
}

//! Outputs that take bytes front to back only, or from where they are on.

use super::inherited;
use crate::exit::Failure;
use crate::process::signals::Signals;
use kiln_output::{CopyError, Spool};
use kiln_source::dir::FileId;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// An open descriptor that takes bytes front to back.
pub struct Stream {
    /// Name of the stream, for messages.
    name: PathBuf,
    file: File,
}

impl Stream {
    /// Standard output.
    pub fn stdout() -> Result<Self, Failure> {
        let name = PathBuf::from("standard output");
        let fd = io::stdout().as_fd().try_clone_to_owned().map_err(failed(&name, "open"))?;
        Self::checked(name, fd.into())
    }

    /// The open descriptor `number`, which the user calls `name`.
    pub fn inherited(number: RawFd, name: &Path) -> Result<Self, Failure> {
        Self::checked(name.to_owned(), inherited::duplicate(number).map_err(failed(name, "open"))?)
    }

    /// A FIFO or a character device.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let flags = OFlags::NOCTTY.bits() as i32;
        let file = File::options().write(true).custom_flags(flags).open(path).map_err(failed(path, "open"))?;
        Self::checked(path.to_owned(), file)
    }

    /// A socket on which something listens.
    pub fn connect(path: &Path) -> Result<Self, Failure> {
        let socket = UnixStream::connect(path).map_err(failed(path, "connect"))?;
        Self::checked(path.to_owned(), OwnedFd::from(socket).into())
    }

    fn checked(name: PathBuf, file: File) -> Result<Self, Failure> {
        let flags = fcntl_getfl(&file).map_err(|errno| failed(&name, "look at")(errno.into()))?;
        if flags & OFlags::ACCMODE == OFlags::RDONLY {
            return Err(failed(&name, "write")(io::Error::other("it is open for reading only")));
        }
        if file.is_terminal() {
            let name = name.display();
            return Err(Failure::Usage(format!(
                "{name} is a terminal: send it to a file or a program, or name a file"
            )));
        }
        Ok(Self { name, file })
    }

    /// Returns its name, for messages.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// Returns true if documents on standard output would come between the bytes.
    pub fn is_stdout(&self) -> bool {
        self.is_same(io::stdout())
    }

    /// Returns true if notes on standard error would come between the bytes.
    pub fn is_stderr(&self) -> bool {
        self.is_same(io::stderr())
    }

    fn is_same(&self, other: impl AsFd) -> bool {
        FileId::of(&self.file).is_ok_and(|id| FileId::of(other).is_ok_and(|other| id == other))
    }

    /// The descriptor.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Copies all of `spool` to it, holes as zeros, until a signal asks to stop.
    pub fn send(&self, spool: &Spool, signals: &Signals) -> Result<(), Failure> {
        spool.copy_to(&mut &*self, signals.stop()).map_err(|error| match error {
            CopyError::Interrupted => Failure::Signal(signals.caught().unwrap_or_default()),
            CopyError::Read(source) => failed(&self.name, "read what is to be written")(source),
            CopyError::Write(source) => failed(&self.name, "write")(source),
        })?;
        self.sync()
    }

    /// Makes all that was written survive a crash, where it lies in a file or a device.
    pub fn sync(&self) -> Result<(), Failure> {
        match rustix::fs::fsync(&self.file) {
            // Only files and block devices can be asked to.
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::ROFS) => Ok(()),
            synced => synced.map_err(|errno| failed(&self.name, "write")(errno.into())),
        }
    }
}

impl Write for &Stream {
    /// A descriptor that is shared with other programs may have been made non-blocking by one of them.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match (&self.file).write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::new(&self.file, PollFlags::OUT)], None)?;
                }
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn failed(name: &Path, action: &'static str) -> impl Fn(io::Error) -> Failure {
    let path = name.to_owned();
    move |source| Failure::File { path: path.clone(), action, source }
}

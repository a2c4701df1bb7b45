//! Destinations of outputs, by name.

use super::stream::Stream;
use crate::exit::Failure;
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::fd::RawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The kernel follows so many symbolic links, too.
const LINKS_MAX_COUNT: u32 = 40;

/// Destination of an output, which a name leads to.
pub enum Destination {
    /// Something that takes bytes front to back: a pipe, a socket, a character device, an open descriptor.
    Stream(Stream),
    /// A block device.
    BlockDevice(PathBuf),
    /// A file, or nothing yet. The last component of its name is no symbolic link.
    File(PathBuf),
}

impl Destination {
    /// Finds the destination that `path` leads to; `-` is standard output. A FIFO is opened, which waits until something reads it.
    ///
    /// # Errors
    /// Terminals and loops of links are refused; errors of the system.
    pub fn find(path: &Path) -> Result<Self, Failure> {
        match path == Path::new("-") {
            true => Stream::stdout().map(Self::Stream),
            false => Self::of_path(path),
        }
    }

    /// Finds the destination that `path` leads to. Symbolic links are followed by hand, for the kernel follows `/dev/stdout` to the file behind
    /// the descriptor and so loses the place that the descriptor has in it.
    pub fn of_path(path: &Path) -> Result<Self, Failure> {
        let failed = |source| Failure::File { path: path.to_owned(), action: "look at", source };
        let mut at = path.to_owned();
        for _ in 0..LINKS_MAX_COUNT {
            if let Some(number) = own_descriptor(&at) {
                return Stream::inherited(number, path).map(Self::Stream);
            }
            match fs::symlink_metadata(&at) {
                Ok(found) if found.is_symlink() => at = follow(&at).map_err(failed)?,
                Ok(found) => return Self::of_type(path, at, &found),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::File(at)),
                Err(error) => return Err(failed(error)),
            }
        }
        Err(failed(rustix::io::Errno::LOOP.into()))
    }

    /// Returns the name of the output, which is called `path`, for messages.
    pub fn name(&self, path: &Path) -> PathBuf {
        self.stream().map_or(path, Stream::name).to_owned()
    }

    /// Returns true if notes on standard error would come between the bytes.
    pub fn is_stderr(&self) -> bool {
        self.stream().is_some_and(Stream::is_stderr)
    }

    /// Refuses a JSON document that would come between the bytes of `what`.
    ///
    /// # Errors
    /// Standard output.
    pub fn refuse_json(&self, what: &str) -> Result<(), Failure> {
        match self.stream().is_some_and(Stream::is_stdout) {
            true => Err(Failure::Usage(format!(
                "the {what} goes to standard output, so --json, which prints there, is not possible"
            ))),
            false => Ok(()),
        }
    }

    /// The stream, if it is one.
    pub fn stream(&self) -> Option<&Stream> {
        match self {
            Self::Stream(stream) => Some(stream),
            Self::BlockDevice(_) | Self::File(_) => None,
        }
    }

    fn of_type(path: &Path, at: PathBuf, found: &Metadata) -> Result<Self, Failure> {
        let file_type = found.file_type();
        match file_type {
            _ if file_type.is_block_device() => Ok(Self::BlockDevice(at)),
            _ if file_type.is_char_device() || file_type.is_fifo() => Stream::open(path).map(Self::Stream),
            _ if file_type.is_socket() => Stream::connect(path).map(Self::Stream),
            _ => Ok(Self::File(at)),
        }
    }
}

/// The number of the descriptor of this process that `path` is, as `/dev/fd/1` and `/proc/self/fd/1` are.
fn own_descriptor(path: &Path) -> Option<RawFd> {
    let number = path.file_name()?.to_str()?.parse().ok()?;
    let dir = path.parent()?.canonicalize().ok()?;
    let own = Path::new("/proc").join(std::process::id().to_string());
    let below = dir.strip_prefix(own).ok()?;
    (below == Path::new("fd") || below.starts_with("task") && below.ends_with("fd")).then_some(number)
}

/// Returns the target of the symbolic link `at`, if the kernel follows it: in directories such as `/tmp` it refuses
/// links of others.
fn follow(at: &Path) -> std::io::Result<PathBuf> {
    match fs::metadata(at) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(error),
        _ => {}
    }
    let target = fs::read_link(at)?;
    Ok(at.parent().unwrap_or(Path::new("")).join(target))
}

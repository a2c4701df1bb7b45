//! Members that a scan leaves out. The decision if damage ends a scan is made here for all sources.

use kiln_format::Escaped;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::{SourceError, Unreadable};
use crate::input::spool_error::is_of_spool;
use crate::source::ScanOptions;

/// List of unreadable members of a source, for scans that keep going.
pub(crate) struct LeftOut<'a> {
    /// Path of the source.
    root: &'a Path,
    keep_going: bool,
    list: Vec<Unreadable>,
}

impl<'a> LeftOut<'a> {
    /// Creates an empty list for the source at `root`.
    pub(crate) fn new(root: &'a Path, options: &ScanOptions<'_>) -> Self {
        Self { root, keep_going: options.keep_going, list: Vec::new() }
    }

    /// Records that `name` could not be read; an empty name stands for an unnamed part of the
    /// source.
    ///
    /// # Errors
    /// `error` with the name, if the scan does not keep going. Errors that are not damage of the
    /// source, such as a full disk or a memory limit, are always returned.
    pub(crate) fn add(&mut self, name: &[u8], error: SourceError) -> Result<(), SourceError> {
        let start = name.iter().position(|&byte| byte != b'/').unwrap_or(name.len());
        let name = Path::new(OsStr::from_bytes(&name[start..]));
        let source = match error {
            SourceError::Malformed { path, offset, reason } if !self.keep_going => {
                let reason = match name.as_os_str().is_empty() {
                    true => reason,
                    false => format!("{}: {reason}", Escaped::path(name)),
                };
                return Err(SourceError::Malformed { path, offset, reason });
            }
            error if !self.keep_going => return Err(error),
            SourceError::Malformed { offset, reason, .. } => {
                io::Error::new(io::ErrorKind::InvalidData, format!("at byte {offset}: {reason}"))
            }
            SourceError::Unreadable(error) if !is_of_spool(&error.source) => error.source,
            SourceError::Image { source, .. } => {
                io::Error::new(io::ErrorKind::InvalidData, source.without_path().to_string())
            }
            SourceError::Tree { source, .. } => io::Error::other(source.problem),
            error => return Err(error),
        };
        let path = if name.as_os_str().is_empty() { self.root.to_owned() } else { self.root.join(name) };
        self.list.push(Unreadable { path, source });
        Ok(())
    }

    /// Returns the value read at `name`, or `None` if it was left out.
    ///
    /// # Errors
    /// Those of [`LeftOut::add`].
    pub(crate) fn survive<T>(&mut self, name: &[u8], read: Result<T, SourceError>) -> Result<Option<T>, SourceError> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(error) => self.add(name, error).map(|()| None),
        }
    }

    /// Returns the list of everything left out.
    pub(crate) fn into_list(self) -> Vec<Unreadable> {
        self.list
    }
}

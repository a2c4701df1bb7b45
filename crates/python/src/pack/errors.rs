//! Errors of packing, as exceptions of Python.
//!
//! `OSError` (or its subclass by errno) if the environment is at fault, with the path in the tree,
//! of the source or of the image as `filename`; `ValueError` if options are; `KeyboardInterrupt` if
//! the caller stopped the work, which `interrupt::run` replaces by the exception that stopped it.

use kilnfs::Error;
use kilnfs::builder::{BuildError, OptionError, OptionField};
use kilnfs::output::OutputError;
use kilnfs::source::{SourceError, Unreadable};
use kilnfs::tree::policy::PolicyError;
use kilnfs::tree::{ContentError, TreeError, TreeProblem};
use pyo3::exceptions::{PyKeyboardInterrupt, PyMemoryError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use rustix::io::Errno;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::errors::{About, exception, text};

/// Returns the exception for an error of packing into `image`.
pub(super) fn to_py(py: Python<'_>, error: Error, image: Option<&Path>) -> PyErr {
    match error {
        Error::Options(error) => of_options(&error),
        Error::Source(error) => of_source(py, error),
        Error::Policy(error) => of_policy(py, error),
        Error::Xattr(error) => PyValueError::new_err(error.to_string()),
        Error::Build(error) => of_build(py, error, image),
        Error::Output(error) => of_output(py, error),
        Error::Read { image, source } => exception(py, &source, About::image(&bytes(&image))),
        other => PyRuntimeError::new_err(other.to_string()),
    }
}

/// Returns the exception for options that contradict each other, by their names in Python.
pub(super) fn of_options(error: &OptionError) -> PyErr {
    let name = match error.field {
        OptionField::Compression => "compress",
        OptionField::PclusterLen => "cluster_size",
        OptionField::Metadata => "compress_metadata",
        other => other.name(),
    };
    PyValueError::new_err(error.problem.message(name))
}

/// Returns the exception for a source that cannot be read.
pub(super) fn of_source(py: Python<'_>, error: SourceError) -> PyErr {
    let message = |error: &SourceError| error.to_string();
    match error {
        SourceError::Unreadable(Unreadable { path, source }) => of_io(py, &source, &bytes(&path)),
        SourceError::Image { path, source, .. } => exception(py, &source, About::image(&bytes(&path))),
        SourceError::Malformed { path, offset, reason } => {
            os_error(py, Errno::UCLEAN, format!("at byte {offset}: {reason}"), &bytes(&path))
        }
        SourceError::Tree { path, source } => of_tree(py, source, &bytes(&path)),
        SourceError::TooLarge { ref path, .. } => os_error(py, Errno::FBIG, message(&error), &bytes(path)),
        SourceError::Unknown { path, reason } => os_error(py, Errno::INVAL, reason, &bytes(&path)),
        SourceError::Unsupported { path, reason } => os_error(py, Errno::OPNOTSUPP, reason, &bytes(&path)),
        SourceError::IsOutput { path } => {
            os_error(py, Errno::INVAL, "the output cannot also be the source".into(), &bytes(&path))
        }
        SourceError::Line(_) | SourceError::Choice { .. } | SourceError::Options { .. } => {
            PyValueError::new_err(message(&error))
        }
        SourceError::Interrupted => interrupted(),
    }
}

/// Returns the exception for an error of a tree. `of` is the name of the tree, for errors without a
/// path.
fn of_tree(py: Python<'_>, error: TreeError, of: &[u8]) -> PyErr {
    let number = match &error.problem {
        TreeProblem::ParentNotADirectory(_) => Errno::NOTDIR,
        TreeProblem::NameTooLong(_) => Errno::NAMETOOLONG,
        TreeProblem::RootNotADirectory => Errno::ISDIR,
        TreeProblem::DanglingLink(_) | TreeProblem::NoSuchNode => Errno::NOENT,
        TreeProblem::LinkToDirectory(_) | TreeProblem::RootRemoved => Errno::PERM,
        TreeProblem::LinkLoop(_) => Errno::LOOP,
        TreeProblem::TooManyNodes | TreeProblem::NamesTooLong => Errno::FBIG,
        _ => Errno::INVAL,
    };
    let message = match error.problem {
        TreeProblem::NoSuchNode => "no file has this path".into(),
        problem => problem.to_string(),
    };
    os_error(py, number, message, if error.path.is_empty() { of } else { &error.path })
}

fn of_policy(py: Python<'_>, error: PolicyError) -> PyErr {
    match error {
        PolicyError::Tree(error) => of_tree(py, error, b"/"),
        other => PyValueError::new_err(other.to_string()),
    }
}

fn of_build(py: Python<'_>, error: BuildError, image: Option<&Path>) -> PyErr {
    let message = error.to_string();
    let image = image.map(bytes).unwrap_or_default();
    match error {
        BuildError::Read { path, source: ContentError::Io(source) } => of_io(py, &source, &path),
        BuildError::Read { path, source } => os_error(py, Errno::STALE, source.to_string(), &path),
        BuildError::Input { path, reason } => os_error(py, Errno::INVAL, reason.to_string(), &path),
        BuildError::Tree(error) => of_tree(py, error, b"/"),
        BuildError::Write { source, .. } => os_error(py, number(&source), message, &image),
        BuildError::TooLarge(_) => os_error(py, Errno::FBIG, message, &image),
        BuildError::Codec(_) => PyMemoryError::new_err(message),
        BuildError::Interrupted => interrupted(),
        BuildError::Internal(_) => PyRuntimeError::new_err(message),
        _ => PyValueError::new_err(message),
    }
}

fn of_output(py: Python<'_>, error: OutputError) -> PyErr {
    match error {
        OutputError::File { path, action, source } => {
            os_error(py, number(&source), format!("cannot {action}: {}", message_of(&source)), &bytes(&path))
        }
        OutputError::Exists { path } => {
            os_error(py, Errno::EXIST, "exists already: overwrite=True replaces it".into(), &bytes(&path))
        }
        OutputError::NotAName { path } => os_error(py, Errno::ISDIR, "not the name of a file".into(), &bytes(&path)),
        OutputError::NotRegular { path } => {
            os_error(py, Errno::INVAL, "only a regular file is replaced".into(), &bytes(&path))
        }
        other => PyRuntimeError::new_err(other.to_string()),
    }
}

/// Returns the exception for an error of the system about the file at `path`.
pub(super) fn of_io(py: Python<'_>, error: &io::Error, path: &[u8]) -> PyErr {
    os_error(py, number(error), message_of(error), path)
}

/// Returns the message of the system without the number that `io::Error` appends: Python prepends
/// one.
fn message_of(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(number) => text.strip_suffix(&format!(" (os error {number})")).map_or(text.clone(), str::to_owned),
        None => text,
    }
}

/// Returns the errno of an error, derived from its kind if the error has lost its number.
fn number(error: &io::Error) -> Errno {
    let of_kind = || match error.kind() {
        io::ErrorKind::NotFound => Errno::NOENT,
        io::ErrorKind::PermissionDenied => Errno::ACCESS,
        io::ErrorKind::NotADirectory => Errno::NOTDIR,
        io::ErrorKind::IsADirectory => Errno::ISDIR,
        io::ErrorKind::InvalidInput => Errno::INVAL,
        io::ErrorKind::InvalidData => Errno::UCLEAN,
        io::ErrorKind::StorageFull => Errno::NOSPC,
        io::ErrorKind::QuotaExceeded => Errno::DQUOT,
        io::ErrorKind::FileTooLarge => Errno::FBIG,
        _ => Errno::IO,
    };
    Errno::from_io_error(error).unwrap_or_else(of_kind)
}

/// Returns `OSError(errno, message, filename)`, of the subclass that Python has for the number.
fn os_error(py: Python<'_>, number: Errno, message: String, path: &[u8]) -> PyErr {
    match text(py, path) {
        Ok(path) => PyOSError::new_err((number.raw_os_error(), message, path.unbind())),
        Err(error) => error,
    }
}

fn interrupted() -> PyErr {
    PyKeyboardInterrupt::new_err(())
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

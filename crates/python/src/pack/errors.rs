//! What went wrong with packing, as Python's exceptions.
//!
//! `OSError` (or its subclass by errno) where the world is to blame, with the path in the tree, of the source or of the image as
//! `filename`; `ValueError` where options are; `KeyboardInterrupt` where the caller asked to stop, which `interrupt::run` replaces by what
//! made it ask.

use kiln::Error;
use kiln::builder::tree::{ContentError, TreeError, TreeProblem};
use kiln::builder::{BuildError, OptionError, OptionField, OutputError};
use kiln::source::filter::PolicyError;
use kiln::source::{SourceError, Unreadable};
use pyo3::exceptions::{PyKeyboardInterrupt, PyMemoryError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::errors::{About, exception, text};

/// Numbers of errors of Linux, by the names of errno(3).
mod errno {
    pub(super) const EPERM: i32 = 1;
    pub(super) const ENOENT: i32 = 2;
    pub(super) const EIO: i32 = 5;
    pub(super) const EACCES: i32 = 13;
    pub(super) const EEXIST: i32 = 17;
    pub(super) const ENOTDIR: i32 = 20;
    pub(super) const EISDIR: i32 = 21;
    pub(super) const EINVAL: i32 = 22;
    pub(super) const EFBIG: i32 = 27;
    pub(super) const ENOSPC: i32 = 28;
    pub(super) const ENAMETOOLONG: i32 = 36;
    pub(super) const ELOOP: i32 = 40;
    pub(super) const EOPNOTSUPP: i32 = 95;
    pub(super) const ESTALE: i32 = 116;
    pub(super) const EUCLEAN: i32 = 117;
    pub(super) const EDQUOT: i32 = 122;
}

/// The exception of an error of packing into `image`.
pub(super) fn to_py(py: Python<'_>, error: Error, image: Option<&Path>) -> PyErr {
    match error {
        Error::Options(error) => of_options(&error),
        Error::Source(error) => of_source(py, error),
        Error::Policy(error) => of_policy(py, error),
        Error::Build(error) => of_build(py, error, image),
        Error::Output(error) => of_output(py, error),
        Error::Read { image, source } => exception(py, &source, About { image: &bytes(&image), path: None }),
        other => PyRuntimeError::new_err(other.to_string()),
    }
}

/// Options that cannot be had together, by the names that they have here.
pub(super) fn of_options(error: &OptionError) -> PyErr {
    let name = match error.field {
        OptionField::Compression => "compress",
        OptionField::PclusterLen => "unit",
        other => other.name(),
    };
    PyValueError::new_err(error.problem.message(name))
}

/// A source that cannot be read.
pub(super) fn of_source(py: Python<'_>, error: SourceError) -> PyErr {
    let message = |error: &SourceError| error.to_string();
    match error {
        SourceError::Unreadable(Unreadable { path, source }) => of_io(py, &source, &bytes(&path)),
        SourceError::Image { path, source, .. } => exception(py, &source, About { image: &bytes(&path), path: None }),
        SourceError::Malformed { path, offset, reason } => {
            os_error(py, errno::EUCLEAN, format!("at byte {offset}: {reason}"), &bytes(&path))
        }
        SourceError::Tree { path, source } => of_tree(py, source, &bytes(&path)),
        SourceError::TooLarge { ref path, .. } => os_error(py, errno::EFBIG, message(&error), &bytes(path)),
        SourceError::Unknown { path, reason } => os_error(py, errno::EINVAL, reason, &bytes(&path)),
        SourceError::Unsupported { path, reason } => os_error(py, errno::EOPNOTSUPP, reason, &bytes(&path)),
        SourceError::IsOutput { path } => os_error(
            py,
            errno::EINVAL,
            "this is what is to be written, so it cannot be read as well".into(),
            &bytes(&path),
        ),
        SourceError::Line(_) | SourceError::Choice { .. } | SourceError::Options { .. } => {
            PyValueError::new_err(message(&error))
        }
        SourceError::Interrupted => interrupted(),
    }
}

/// What no tree can hold. `of` is the tree's name, for errors without a path.
fn of_tree(py: Python<'_>, error: TreeError, of: &[u8]) -> PyErr {
    let number = match &error.problem {
        TreeProblem::ParentNotADirectory(_) => errno::ENOTDIR,
        TreeProblem::NameTooLong(_) => errno::ENAMETOOLONG,
        TreeProblem::RootNotADirectory => errno::EISDIR,
        TreeProblem::DanglingLink(_) | TreeProblem::NoSuchNode => errno::ENOENT,
        TreeProblem::LinkToDirectory(_) | TreeProblem::RootRemoved => errno::EPERM,
        TreeProblem::LinkLoop(_) => errno::ELOOP,
        TreeProblem::TooManyNodes | TreeProblem::NamesTooLong => errno::EFBIG,
        _ => errno::EINVAL,
    };
    let message = match error.problem {
        TreeProblem::NoSuchNode => "nothing has this path".into(),
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
        BuildError::Read { path, source } => os_error(py, errno::ESTALE, source.to_string(), &path),
        BuildError::Input { path, reason } => os_error(py, errno::EINVAL, reason.to_string(), &path),
        BuildError::Tree(error) => of_tree(py, error, b"/"),
        BuildError::Write { source, .. } => os_error(py, number(&source), message, &image),
        BuildError::TooLarge(_) => os_error(py, errno::EFBIG, message, &image),
        BuildError::Codec(_) => PyMemoryError::new_err(message),
        BuildError::Interrupted => interrupted(),
        BuildError::Internal(_) => PyRuntimeError::new_err(message),
        _ => PyValueError::new_err(message),
    }
}

fn of_output(py: Python<'_>, error: OutputError) -> PyErr {
    match error {
        OutputError::File { path, action, source } => {
            os_error(py, number(&source), format!("cannot {action}: {}", said(&source)), &bytes(&path))
        }
        OutputError::Exists { path } => {
            os_error(py, errno::EEXIST, "exists already: overwrite=True replaces it".into(), &bytes(&path))
        }
        OutputError::NotAName { path } => os_error(py, errno::EISDIR, "not the name of a file".into(), &bytes(&path)),
        OutputError::NotRegular { path } => {
            os_error(py, errno::EINVAL, "only a regular file is replaced".into(), &bytes(&path))
        }
        other => PyRuntimeError::new_err(other.to_string()),
    }
}

/// An error of the system about the file at `path`.
pub(super) fn of_io(py: Python<'_>, error: &io::Error, path: &[u8]) -> PyErr {
    os_error(py, number(error), said(error), path)
}

/// What the system said, without the number that `io::Error` writes behind it: Python writes one in front.
fn said(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(number) => text.strip_suffix(&format!(" (os error {number})")).map_or(text.clone(), str::to_owned),
        None => text,
    }
}

/// The errno of an error, which those that were passed on have no more.
fn number(error: &io::Error) -> i32 {
    let of_kind = || match error.kind() {
        io::ErrorKind::NotFound => errno::ENOENT,
        io::ErrorKind::PermissionDenied => errno::EACCES,
        io::ErrorKind::NotADirectory => errno::ENOTDIR,
        io::ErrorKind::IsADirectory => errno::EISDIR,
        io::ErrorKind::InvalidInput => errno::EINVAL,
        io::ErrorKind::InvalidData => errno::EUCLEAN,
        io::ErrorKind::StorageFull => errno::ENOSPC,
        io::ErrorKind::QuotaExceeded => errno::EDQUOT,
        io::ErrorKind::FileTooLarge => errno::EFBIG,
        _ => errno::EIO,
    };
    error.raw_os_error().unwrap_or_else(of_kind)
}

/// `OSError(errno, message, filename)`, which Python makes the subclass of the number.
fn os_error(py: Python<'_>, number: i32, message: String, path: &[u8]) -> PyErr {
    match text(py, path) {
        Ok(path) => PyOSError::new_err((number, message, path.unbind())),
        Err(error) => error,
    }
}

fn interrupted() -> PyErr {
    PyKeyboardInterrupt::new_err(())
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

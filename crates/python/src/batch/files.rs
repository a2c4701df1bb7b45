//! Files of a call: rows of an index, inode numbers, or paths.

use crate::arguments::buffer::integers;
use crate::arguments::{FileRef, PathRef, image_uuid};
use crate::errors::Subject;
use crate::handle::Image;
use crate::index::Index;
use kiln_parallel::Threads;
use kiln_read::{FileRange, FollowLast, Image as ReadImage, Inode, Nid, ReadError};
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use std::sync::atomic::{AtomicBool, Ordering};

/// Files of a call, in the order of its arguments.
pub(crate) enum Files {
    Nids(Vec<u64>),
    /// Rows of an index (`None`: all), and their inode numbers. `is_nameless` is true once a name
    /// could not be read.
    Rows {
        index: Py<Index>,
        rows: Option<Vec<u64>>,
        nids: Vec<u64>,
        is_nameless: AtomicBool,
    },
    Paths(Vec<FileRef>),
}

impl Files {
    /// Makes the files of an [`Index`] or of an iterable of paths; with `rows` only these, in this
    /// order.
    ///
    /// # Errors
    /// Another object, a row that does not exist, or an index or a path that belongs to another
    /// image than `image`.
    pub(crate) fn of_index_or_paths(
        image: &Bound<'_, Image>,
        files: &Bound<'_, PyAny>,
        rows: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Files> {
        let py = image.py();
        let rows = rows.map(|rows| integers(rows, "rows")).transpose()?;
        if let Ok(index) = files.cast::<Index>() {
            let columns = &index.get().columns;
            image.get().refuse_another(py, "the index", columns.uuid)?;
            let nids = select(columns.nids.get(), rows.as_deref(), u64::clone)?;
            let index = index.clone().unbind();
            return Ok(Files::Rows { index, rows, nids, is_nameless: AtomicBool::new(false) });
        }
        if let Some(uuid) = image_uuid(files)? {
            image.get().refuse_another(py, "the index", uuid)?;
        }
        if files.is_instance_of::<PyString>() || files.is_instance_of::<PyBytes>() {
            return Err(PyTypeError::new_err("a list of paths, not one path"));
        }
        let paths = select(&items(files)?, rows.as_deref(), Bound::clone)?;
        let path = |path: Bound<'_, PyAny>| -> PyResult<FileRef> {
            let PathRef(file) = path.extract()?;
            image.get().refuse_foreign(py, &file)?;
            Ok(file)
        };
        Ok(Files::Paths(paths.into_iter().map(path).collect::<PyResult<_>>()?))
    }

    /// Makes the files of a call: those of `files`, as [`Files::of_index_or_paths`], or of `nids`,
    /// inode numbers.
    ///
    /// # Errors
    /// As [`Files::of_index_or_paths`], and `TypeError` if both or neither are given.
    pub(crate) fn new(
        image: &Bound<'_, Image>,
        files: Option<&Bound<'_, PyAny>>,
        nids: Option<&Bound<'_, PyAny>>,
        rows: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Files> {
        match (files, nids) {
            (Some(files), None) => Files::of_index_or_paths(image, files, rows),
            (None, Some(nids)) => {
                let rows = rows.map(|rows| integers(rows, "rows")).transpose()?;
                Ok(Files::Nids(select(&integers(nids, "nids")?, rows.as_deref(), u64::clone)?))
            }
            (Some(_), Some(_)) => Err(PyTypeError::new_err("an index or paths, or nids=, not both")),
            (None, None) => Err(PyTypeError::new_err("an index or paths are missing, or nids=")),
        }
    }

    /// Returns the number of files.
    pub(crate) fn len(&self) -> usize {
        match self {
            Files::Nids(nids) | Files::Rows { nids, .. } => nids.len(),
            Files::Paths(paths) => paths.len(),
        }
    }

    /// Returns the files at `positions`.
    pub(crate) fn subset(&self, py: Python<'_>, positions: &[u64]) -> Files {
        let of = |numbers: &[u64]| positions.iter().map(|&nth| numbers[nth as usize]).collect();
        match self {
            Files::Nids(nids) => Files::Nids(of(nids)),
            Files::Rows { index, rows, nids, is_nameless } => {
                let is_nameless = AtomicBool::new(is_nameless.load(Ordering::Relaxed));
                let rows = Some(rows.as_deref().map_or_else(|| positions.to_vec(), of));
                Files::Rows { index: index.clone_ref(py), rows, nids: of(nids), is_nameless }
            }
            Files::Paths(paths) => Files::Paths(positions.iter().map(|&nth| paths[nth as usize].clone()).collect()),
        }
    }

    /// Reads the inode of file `nth`. Symbolic links are followed.
    pub(crate) fn inode(&self, image: &ReadImage, nth: usize) -> Result<Inode, ReadError> {
        match self {
            Files::Nids(nids) | Files::Rows { nids, .. } => image.inode(Nid(nids[nth])),
            Files::Paths(paths) => paths[nth].inode(image, FollowLast::Follow),
        }
    }

    /// Reads the inodes of all files. Symbolic links are followed. Paths are looked up by one
    /// thread.
    pub(crate) fn inodes(&self, image: &ReadImage, threads: Threads) -> Vec<Result<Inode, ReadError>> {
        match self {
            Files::Nids(nids) | Files::Rows { nids, .. } => {
                image.inodes(&nids.iter().copied().map(Nid).collect::<Vec<_>>(), threads)
            }
            Files::Paths(paths) => paths.iter().map(|path| path.inode(image, FollowLast::Follow)).collect(),
        }
    }

    /// Returns the subject of an error of file `nth`. The path of a row is looked up in `image`. If
    /// that fails once, rows are named by inode number, so that a lost source is not waited for
    /// again for each file.
    pub(crate) fn subject(&self, image: &Bound<'_, Image>, nth: usize) -> Subject {
        match self {
            Files::Nids(nids) => Subject::Nid(nids[nth]),
            Files::Rows { index, rows, nids, is_nameless } => {
                let row = rows.as_ref().map_or(nth, |rows| rows[nth] as usize);
                if !is_nameless.load(Ordering::Relaxed) {
                    match index.get().path_in(image, row) {
                        Ok(path) => return Subject::Path(path),
                        Err(_) => is_nameless.store(true, Ordering::Relaxed),
                    }
                }
                Subject::Nid(nids[nth])
            }
            Files::Paths(paths) => paths[nth].subject(),
        }
    }

    /// Announces the files to the source of `image`, and returns the number of bytes that were
    /// announced.
    ///
    /// # Errors
    /// `OSError` that names the first file whose metadata cannot be read.
    pub(crate) fn prefetch(&self, image: &Bound<'_, Image>) -> PyResult<u64> {
        let (py, handle) = (image.py(), image.get());
        let reader = handle.get()?;
        py.detach(|| self.announce(&reader))
            .map_err(|(nth, error)| handle.exception(py, &error, &self.subject(image, nth)))
    }

    /// Announces the files to the source of the image. An error has the position of its file.
    fn announce(&self, image: &ReadImage) -> Result<u64, (usize, ReadError)> {
        let inodes = self.inodes(image, Threads::ONE).into_iter().enumerate();
        let range = |(nth, inode): (usize, Result<Inode, ReadError>)| {
            inode.map(|inode| FileRange { inode, range: 0..inode.size() }).map_err(|error| (nth, error))
        };
        image.prefetch(&inodes.map(range).collect::<Result<Vec<_>, _>>()?)
    }
}

/// Returns the items of an iterable: a list, a column of a table, an iterator.
fn items<'py>(files: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    // Items of pyarrow's arrays are not text, but lists of them are.
    let iterable = match files.getattr_opt("to_pylist")? {
        Some(to_pylist) => to_pylist.call0()?,
        None => files.clone(),
    };
    let Ok(items) = iterable.try_iter() else {
        let class = iterable.get_type().name()?;
        return Err(PyTypeError::new_err(format!("an index or paths, not {class}")));
    };
    items.collect()
}

/// Returns all of `files`, or those in `rows`.
fn select<T>(files: &[T], rows: Option<&[u64]>, copy: impl Fn(&T) -> T) -> PyResult<Vec<T>> {
    let Some(rows) = rows else { return Ok(files.iter().map(copy).collect()) };
    let beyond = |row| PyIndexError::new_err(format!("row {row} is beyond the last of {} files", files.len()));
    let row = |row: u64| usize::try_from(row).ok().and_then(|row| files.get(row)).map(&copy).ok_or_else(|| beyond(row));
    rows.iter().copied().map(row).collect()
}

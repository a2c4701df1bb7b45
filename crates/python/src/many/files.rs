//! Which files a call is about: rows of an index, numbers of inodes, or paths.

use crate::arguments::buffer::integers;
use crate::arguments::{Named, What, image_uuid};
use crate::errors::Subject;
use crate::image::Image;
use crate::index::Index;
use kiln_parallel::Threads;
use kiln_read::{FileRange, FollowLast, Image as ReadImage, Inode, Nid, ReadError};
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use std::sync::atomic::{AtomicBool, Ordering};

/// Files, in the order in which they are asked for.
pub(crate) enum Files {
    Nids(Vec<u64>),
    /// Rows of an index (`None`: all), and the numbers of their inodes; whether their names cannot be read.
    Rows {
        index: Py<Index>,
        rows: Option<Vec<u64>>,
        nids: Vec<u64>,
        is_nameless: AtomicBool,
    },
    Paths(Vec<What>),
}

impl Files {
    /// Files of an [`Index`], or of paths that are iterated over; of these only `rows`, in their order.
    ///
    /// # Errors
    /// Something else, a row that there is not, an index or a path of another image than `image`.
    pub(crate) fn of(
        image: &Bound<'_, Image>,
        what: &Bound<'_, PyAny>,
        picked: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Files> {
        let py = image.py();
        let picked = picked.map(|rows| integers(rows, "rows")).transpose()?;
        if let Ok(index) = what.cast::<Index>() {
            let columns = &index.get().columns;
            image.get().refuse_another(py, "the index", columns.uuid)?;
            let nids = pick(columns.nids.get(), picked.as_deref(), u64::clone)?;
            let index = index.clone().unbind();
            return Ok(Files::Rows { index, rows: picked, nids, is_nameless: AtomicBool::new(false) });
        }
        if let Some(uuid) = image_uuid(what)? {
            image.get().refuse_another(py, "the index", uuid)?;
        }
        if what.is_instance_of::<PyString>() || what.is_instance_of::<PyBytes>() {
            return Err(PyTypeError::new_err("a list of paths, not one path"));
        }
        let paths = pick(&names(what)?, picked.as_deref(), Bound::clone)?;
        let path = |path: Bound<'_, PyAny>| -> PyResult<What> {
            let Named(path) = path.extract()?;
            image.get().refuse_foreign(py, &path)?;
            Ok(path)
        };
        Ok(Files::Paths(paths.into_iter().map(path).collect::<PyResult<_>>()?))
    }

    /// The files of a call: `what` as for [`Files::of`], or `nids`, numbers of inodes.
    pub(crate) fn asked(
        image: &Bound<'_, Image>,
        what: Option<&Bound<'_, PyAny>>,
        nids: Option<&Bound<'_, PyAny>>,
        picked: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Files> {
        match (what, nids) {
            (Some(what), None) => Files::of(image, what, picked),
            (None, Some(nids)) => {
                let picked = picked.map(|rows| integers(rows, "rows")).transpose()?;
                Ok(Files::Nids(pick(&integers(nids, "nids")?, picked.as_deref(), u64::clone)?))
            }
            (Some(_), Some(_)) => Err(PyTypeError::new_err("an index or paths, or nids=, not both")),
            (None, None) => Err(PyTypeError::new_err("an index or paths are missing, or nids=")),
        }
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        match self {
            Files::Nids(nids) | Files::Rows { nids, .. } => nids.len(),
            Files::Paths(paths) => paths.len(),
        }
    }

    /// Some of them.
    pub(crate) fn picked(&self, py: Python<'_>, places: &[u64]) -> Files {
        let of = |numbers: &[u64]| places.iter().map(|&place| numbers[place as usize]).collect();
        match self {
            Files::Nids(nids) => Files::Nids(of(nids)),
            Files::Rows { index, rows, nids, is_nameless } => {
                let is_nameless = AtomicBool::new(is_nameless.load(Ordering::Relaxed));
                let rows = Some(rows.as_deref().map_or_else(|| places.to_vec(), of));
                Files::Rows { index: index.clone_ref(py), rows, nids: of(nids), is_nameless }
            }
            Files::Paths(paths) => Files::Paths(places.iter().map(|&place| paths[place as usize].clone()).collect()),
        }
    }

    /// The inode of one; symbolic links are followed.
    pub(crate) fn inode(&self, image: &ReadImage, nth: usize) -> Result<Inode, ReadError> {
        match self {
            Files::Nids(nids) | Files::Rows { nids, .. } => image.inode(Nid(nids[nth])),
            Files::Paths(paths) => paths[nth].inode(image, FollowLast::Follow),
        }
    }

    /// The inodes of all; symbolic links are followed. Paths are looked up by one thread.
    pub(crate) fn inodes(&self, image: &ReadImage, threads: Threads) -> Vec<Result<Inode, ReadError>> {
        match self {
            Files::Nids(nids) | Files::Rows { nids, .. } => {
                image.inodes(&nids.iter().copied().map(Nid).collect::<Vec<_>>(), threads)
            }
            Files::Paths(paths) => paths.iter().map(|path| path.inode(image, FollowLast::Follow)).collect(),
        }
    }

    /// Returns the subject that an error about file `nth` names. The path of a row is looked up in `image`; if that
    /// fails once, rows are named by inode number: a source that is gone is not waited for again for each.
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

    /// Announces these files to the image's source. Returns the number of bytes that were announced, or the first error and
    /// the number of its file.
    pub(crate) fn prefetch(&self, image: &ReadImage) -> Result<u64, (usize, ReadError)> {
        let inodes = self.inodes(image, Threads::ONE).into_iter().enumerate();
        let range = |(nth, inode): (usize, Result<Inode, ReadError>)| {
            inode.map(|inode| FileRange { inode, range: 0..inode.size() }).map_err(|error| (nth, error))
        };
        image.prefetch(&inodes.map(range).collect::<Result<Vec<_>, _>>()?)
    }
}

/// The items of what holds names: a list, a column of a table, an iterator.
fn names<'py>(what: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    // Items of pyarrow's arrays are no text, but have it.
    let what = match what.getattr_opt("to_pylist")? {
        Some(to_pylist) => to_pylist.call0()?,
        None => what.clone(),
    };
    let Ok(items) = what.try_iter() else {
        let class = what.get_type().name()?;
        return Err(PyTypeError::new_err(format!("an index or paths, not {class}")));
    };
    items.collect()
}

/// All of `files`, or those in the picked rows.
fn pick<T>(files: &[T], picked: Option<&[u64]>, copy: impl Fn(&T) -> T) -> PyResult<Vec<T>> {
    let Some(picked) = picked else { return Ok(files.iter().map(copy).collect()) };
    let beyond = |row| PyIndexError::new_err(format!("row {row} is beyond the last of {} files", files.len()));
    let row = |row: u64| usize::try_from(row).ok().and_then(|row| files.get(row)).map(&copy).ok_or_else(|| beyond(row));
    picked.iter().copied().map(row).collect()
}

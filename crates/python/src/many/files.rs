//! Which files a call is about: rows of an index, numbers of inodes, or paths.

use crate::arguments::buffer::integers;
use crate::arguments::{Named, What};
use crate::index::Index;
use kiln_parallel::Threads;
use kiln_read::{FollowLast, Image, Inode, Nid, ReadError};
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

/// Files, in the order in which they are asked for.
pub(crate) enum Files {
    Nids(Vec<u64>),
    Paths(Vec<What>),
}

impl Files {
    /// Files of an [`Index`], or of paths that are iterated over; of these only `rows`, in their order.
    ///
    /// # Errors
    /// Something else, a row that there is not.
    pub(crate) fn of(what: &Bound<'_, PyAny>, picked: Option<&Bound<'_, PyAny>>) -> PyResult<Files> {
        let picked = picked.map(|rows| integers(rows, "rows")).transpose()?;
        if let Ok(index) = what.cast::<Index>() {
            return Ok(Files::Nids(pick(index.get().columns.nids.get(), picked, u64::clone)?));
        }
        if what.is_instance_of::<PyString>() || what.is_instance_of::<PyBytes>() {
            return Err(PyTypeError::new_err("a list of paths, not one path"));
        }
        let paths = names(what)?;
        let paths = pick(&paths, picked, Bound::clone)?;
        Ok(Files::Paths(paths.iter().map(|path| path.extract().map(|Named(path)| path)).collect::<PyResult<_>>()?))
    }

    /// The files of a call: `what` as for [`Files::of`], or `nids`, numbers of inodes.
    pub(crate) fn asked(
        what: Option<&Bound<'_, PyAny>>,
        nids: Option<&Bound<'_, PyAny>>,
        picked: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Files> {
        match (what, nids) {
            (Some(what), None) => Files::of(what, picked),
            (None, Some(nids)) => {
                let picked = picked.map(|rows| integers(rows, "rows")).transpose()?;
                Ok(Files::Nids(pick(&integers(nids, "nids")?, picked, u64::clone)?))
            }
            (Some(_), Some(_)) => Err(PyTypeError::new_err("an index or paths, or nids=, not both")),
            (None, None) => Err(PyTypeError::new_err("an index or paths are missing, or nids=")),
        }
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        match self {
            Files::Nids(nids) => nids.len(),
            Files::Paths(paths) => paths.len(),
        }
    }

    /// Some of them.
    pub(crate) fn picked(&self, places: &[u64]) -> Files {
        match self {
            Files::Nids(nids) => Files::Nids(places.iter().map(|&place| nids[place as usize]).collect()),
            Files::Paths(paths) => Files::Paths(places.iter().map(|&place| paths[place as usize].clone()).collect()),
        }
    }

    /// The inode of one; symbolic links are followed.
    pub(crate) fn inode(&self, image: &Image, nth: usize) -> Result<Inode, ReadError> {
        match self {
            Files::Nids(nids) => image.inode(Nid(nids[nth])),
            Files::Paths(paths) => paths[nth].inode(image, FollowLast::Follow),
        }
    }

    /// The inodes of all; symbolic links are followed. Paths are looked up by one thread.
    pub(crate) fn inodes(&self, image: &Image, threads: Threads) -> Vec<Result<Inode, ReadError>> {
        match self {
            Files::Nids(nids) => image.inodes(&nids.iter().copied().map(Nid).collect::<Vec<_>>(), threads),
            Files::Paths(paths) => paths.iter().map(|path| path.inode(image, FollowLast::Follow)).collect(),
        }
    }

    /// What to call one in an error.
    pub(crate) fn path(&self, nth: usize) -> Option<Vec<u8>> {
        match self {
            Files::Nids(_) => None,
            Files::Paths(paths) => paths[nth].path().map(<[u8]>::to_vec),
        }
    }

    /// Tell the image's source that these will be read soon. The bytes that it was told of, or the first error and whose it is.
    pub(crate) fn prefetch(&self, image: &Image) -> Result<u64, (usize, ReadError)> {
        let inodes = self.inodes(image, Threads::at_least_one(1)).into_iter().enumerate();
        let inodes: Vec<Inode> =
            inodes.map(|(nth, inode)| inode.map_err(|error| (nth, error))).collect::<Result<_, _>>()?;
        image.prefetch_many(inodes)
    }

    /// Whether the contents of these are in memory in all likelihood, as far as the one in the middle tells.
    pub(crate) fn are_resident(&self, image: &Image) -> bool {
        if self.len() == 0 {
            return true;
        }
        let resident = self.inode(image, self.len() / 2).and_then(|inode| image.is_resident(&inode));
        !matches!(resident, Ok(Some(false)))
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
fn pick<T>(files: &[T], picked: Option<Vec<u64>>, copy: impl Fn(&T) -> T) -> PyResult<Vec<T>> {
    let Some(picked) = picked else { return Ok(files.iter().map(copy).collect()) };
    let beyond = |row| PyIndexError::new_err(format!("row {row} is beyond the last of {} files", files.len()));
    let row = |row: u64| usize::try_from(row).ok().and_then(|row| files.get(row)).map(&copy).ok_or_else(|| beyond(row));
    picked.into_iter().map(row).collect()
}

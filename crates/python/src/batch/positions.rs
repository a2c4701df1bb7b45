//! Places at which files are stored.

use super::files::Files;
use crate::handle::Image;
use crate::memory;
use kiln_read::{FilePosition, ReadError};
use pyo3::prelude::*;
use std::collections::HashMap;

/// Number in `clusters` of a file that shares no pcluster with others.
const ALONE: u64 = u64::MAX;

/// Places at which files are stored: columns with one row for each file.
#[pyclass(frozen, module = "kilnfs._native")]
pub(crate) struct Positions {
    pub(crate) places: Vec<FilePosition>,
}

impl Positions {
    /// Looks up the places of `files`.
    pub(crate) fn of(image: &Bound<'_, Image>, files: &Files) -> PyResult<Positions> {
        let (py, handle) = (image.py(), image.get());
        let reader = handle.get()?;
        let places = py.detach(|| -> Result<Vec<_>, (usize, ReadError)> {
            let place = |nth| {
                let inode = files.inode(&reader, nth)?;
                reader.position(&inode)
            };
            (0..files.len()).map(|nth| place(nth).map_err(|error| (nth, error))).collect()
        });
        let places = places.map_err(|(nth, error)| handle.exception(py, &error, &files.subject(image, nth)))?;
        Ok(Positions { places })
    }

    /// Returns the rows in stored order; those at one place in the order of their rows.
    pub(crate) fn order(&self) -> Vec<u64> {
        let mut order: Vec<u64> = (0..self.places.len() as u64).collect();
        order.sort_by_key(|&row| (self.places[row as usize], row));
        order
    }

    /// Returns for each file the number of the pcluster that it shares with others, numbered by
    /// first appearance.
    pub(crate) fn clusters(&self) -> Vec<u64> {
        let mut numbers = HashMap::new();
        let number = |place: &FilePosition| match place.shared_cluster {
            Some(cluster) => {
                let next = numbers.len() as u64;
                *numbers.entry(cluster).or_insert(next)
            }
            None => ALONE,
        };
        self.places.iter().map(number).collect()
    }

    fn column<'py, T>(
        &self,
        py: Python<'py>,
        format: &str,
        of: impl Fn(&FilePosition) -> T,
    ) -> PyResult<Bound<'py, PyAny>>
    where
        T: zerocopy::IntoBytes + zerocopy::Immutable + Send + 'static,
    {
        memory::column_view(py, memory::column(self.places.iter().map(of).collect()), format)
    }
}

#[pymethods]
impl Positions {
    fn __len__(&self) -> usize {
        self.places.len()
    }

    /// Device numbers: 0 is the image itself.
    #[getter]
    fn devices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, "H", |place| place.device)
    }

    /// Addresses of the first stored bytes, in bytes.
    #[getter]
    fn addresses<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, "Q", |place| place.address)
    }

    /// Numbers of stored bytes that hold the contents; pclusters count whole.
    #[getter]
    fn stored<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, "Q", |place| place.stored_len)
    }

    /// Numbers of the pclusters that are shared with other files; 2**64 - 1 for files that share
    /// none.
    #[getter]
    #[pyo3(name = "clusters")]
    fn py_clusters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        memory::column_view(py, memory::column(self.clusters()), "Q")
    }
}

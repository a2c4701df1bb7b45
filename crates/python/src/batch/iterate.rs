//! Iteration over files in stored order, in bounded memory.

use super::files::Files;
use super::positions::Positions;
use super::read::{ReadPlan, block_for};
use super::{Batch, BatchData};
use crate::handle::Image;
use kiln_parallel::Threads;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::VecDeque;
use std::sync::Mutex;

/// Iterator over pairs of a file's position in the arguments and its bytes.
#[pyclass(frozen, module = "kilnfs._native")]
pub(crate) struct IterMany {
    image: Py<Image>,
    threads: Threads,
    window_bytes: u64,
    state: Mutex<State>,
}

struct State {
    files: Files,
    /// Positions of the files that are still to be read, in stored order.
    order: VecDeque<u64>,
    /// Positions of the files of the current window that are still to be yielded.
    window: VecDeque<u64>,
    /// Contents of the current window.
    batch: Option<Py<Batch>>,
    /// Position in `batch` of the next file.
    next: usize,
}

impl IterMany {
    pub(crate) fn new(image: &Bound<'_, Image>, files: Files, threads: Threads, window_bytes: u64) -> PyResult<Self> {
        if window_bytes == 0 {
            return Err(PyValueError::new_err("window_bytes=0: use 1 or more"));
        }
        let order = Positions::of(image, &files)?.order().into();
        let state = State { files, order, window: VecDeque::new(), batch: None, next: 0 };
        Ok(IterMany { image: image.clone().unbind(), threads, window_bytes, state: Mutex::new(state) })
    }

    /// Reads the files of the next window: as many as fit, at least one.
    fn read_window(&self, py: Python<'_>, state: &mut State) -> PyResult<()> {
        let image = self.image.get();
        let reader = image.get()?;
        let State { files, order, .. } = state;
        let mut positions = Vec::new();
        let mut len = 0_u64;
        py.detach(|| {
            while let Some(&nth) = order.front() {
                // A file that cannot be looked up becomes an error when it is read.
                let size = files.inode(&reader, nth as usize).map_or(0, |inode| inode.size());
                len = len.saturating_add(size);
                if len > self.window_bytes && !positions.is_empty() {
                    break;
                }
                positions.push(nth);
                order.pop_front();
            }
        });
        let window = files.subset(py, &positions);
        let mut plan = py.detach(|| ReadPlan::of(&reader, &window, None, self.threads));
        let mut block = block_for(&image.pool, plan.len())?;
        let data = block.bytes_mut(plan.len() as usize);
        py.detach(|| plan.read(image, &reader, data, self.threads));
        let errors = PyDict::new(py);
        for (nth, error) in &plan.errors {
            errors.set_item(nth, image.exception(py, error, &window.subject(self.image.bind(py), *nth)))?;
        }
        let batch = Batch::new(py, BatchData::Pooled(block), plan.offsets, errors)?;
        (state.window, state.batch, state.next) = (positions.into(), Some(Py::new(py, batch)?), 0);
        Ok(())
    }
}

#[pymethods]
impl IterMany {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<(u64, Bound<'py, PyAny>)>> {
        // An iterator belongs to one thread. Another one must not wait here, because this one may
        // wait for the interpreter.
        let Ok(mut state) = self.state.try_lock() else {
            return Err(PyValueError::new_err("the iterator is used by another thread"));
        };
        if state.window.is_empty() {
            state.batch = None;
            if state.order.is_empty() {
                return Ok(None);
            }
            self.read_window(py, &mut state)?;
        }
        let (Some(position), Some(batch)) = (state.window.pop_front(), &state.batch) else { return Ok(None) };
        let nth = state.next;
        let part = batch.get().part(py, nth);
        state.next += 1;
        Ok(Some((position, part?)))
    }
}

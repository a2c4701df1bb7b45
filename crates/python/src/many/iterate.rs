//! Files one after the other, in stored order, in bounded memory.

use crate::image::Image;
use crate::many::batch::{Batch, BatchData};
use crate::many::files::Files;
use crate::many::positions::Positions;
use crate::many::read::{ReadPlan, block_for};
use kiln_parallel::Threads;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::VecDeque;
use std::sync::Mutex;

/// An iterator over (place of the file among those asked for, its bytes).
#[pyclass(frozen, module = "kilnfs._native")]
pub(crate) struct IterMany {
    image: Py<Image>,
    threads: Threads,
    window_bytes: u64,
    state: Mutex<State>,
}

struct State {
    files: Files,
    /// Files that are to be read, in stored order.
    order: VecDeque<u64>,
    /// The window that is given out: places of its files, and its bytes.
    window: VecDeque<u64>,
    batch: Option<Py<Batch>>,
    /// The next file of the window.
    next: usize,
}

impl IterMany {
    pub(crate) fn new(image: &Bound<'_, Image>, files: Files, threads: Threads, window_bytes: u64) -> PyResult<Self> {
        if window_bytes == 0 {
            return Err(PyValueError::new_err("window_bytes=0: at least 1"));
        }
        let order = Positions::of(image, &files)?.order().into();
        let state = State { files, order, window: VecDeque::new(), batch: None, next: 0 };
        Ok(IterMany { image: image.clone().unbind(), threads, window_bytes, state: Mutex::new(state) })
    }

    /// Read as many files as fit into a window, at least one. Their places, and their bytes.
    fn read_window(&self, py: Python<'_>, state: &mut State) -> PyResult<()> {
        let image = self.image.get();
        let opened = image.get()?;
        let State { files, order, .. } = state;
        let mut places = Vec::new();
        let mut len = 0_u64;
        py.detach(|| {
            while let Some(&place) = order.front() {
                // A file that cannot be looked up is given as an error when it is read.
                let size = files.inode(&opened, place as usize).map_or(0, |inode| inode.size());
                len = len.saturating_add(size);
                if len > self.window_bytes && !places.is_empty() {
                    break;
                }
                places.push(place);
                order.pop_front();
            }
        });
        let window = files.picked(py, &places);
        let mut plan = py.detach(|| ReadPlan::of(&opened, &window, None, self.threads));
        let mut block = block_for(&image.pool, plan.len())?;
        let data = block.bytes_mut(plan.len() as usize);
        py.detach(|| plan.read(image, &opened, data, self.threads));
        let errors = PyDict::new(py);
        for (nth, error) in &plan.errors {
            errors.set_item(nth, image.exception(py, error, &window.subject(self.image.bind(py), *nth)))?;
        }
        let batch = Batch::new(py, BatchData::Pooled(block), plan.offsets, errors)?;
        (state.window, state.batch, state.next) = (places.into(), Some(Py::new(py, batch)?), 0);
        Ok(())
    }
}

#[pymethods]
impl IterMany {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<(u64, Bound<'py, PyAny>)>> {
        // An iterator belongs to one thread; another one must not wait here, for this one may wait for the interpreter.
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
        let (Some(place), Some(batch)) = (state.window.pop_front(), &state.batch) else { return Ok(None) };
        let nth = state.next;
        let part = batch.get().part(py, nth);
        state.next += 1;
        Ok(Some((place, part?)))
    }
}

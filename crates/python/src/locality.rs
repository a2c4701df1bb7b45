//! Block-window shuffle of the files of an index, see `kiln_shuffle`.

use crate::arguments::buffer::integers;
use crate::batch::files::Files;
use crate::batch::positions::Positions;
use crate::index::Index;
use crate::memory;
use kiln_parallel::locks::lock;
use kiln_read::FilePosition;
use kiln_shuffle::defaults::{SHUFFLED_DISPERSION, StoredOrder, WindowChoice, window_blocks};
use kiln_shuffle::report::{self, ClassLabels};
use kiln_shuffle::{Blocks, Epoch, Invalid, LastBatch, Order, OrderChoices, Share, StoredSample};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Mutex;

/// Number of classes assumed without labels: runs of the index of equal length.
const RUNS: u64 = 100;
/// Number of windows that the cache assumed in a report holds: one that is read, and one that is
/// announced.
const WINDOWS_HELD: f64 = 2.0;

/// Order of the rows of an index: the batches of each epoch.
#[pyclass(frozen, module = "kilnfs._native")]
pub(crate) struct LocalityOrder {
    order: Order,
    window: WindowChoice,
    /// True if neighbours in stored order are as different as any two files.
    is_stored_shuffled: bool,
    /// Labels of the index, or of its runs.
    labels: Vec<u32>,
    /// Epoch that was used last.
    cursor: Mutex<Option<Epoch>>,
}

/// Returns the exception for an invalid option, with its name in Python.
fn invalid(error: Invalid) -> PyErr {
    match error.field {
        "batch_global" => {
            PyValueError::new_err(format!("batch_size is {}, but must be {}", error.value, error.expected))
        }
        _ => PyValueError::new_err(error.to_string()),
    }
}

/// Returns the rows in stored order, for [`Blocks::cut`].
fn stored(places: &[FilePosition], order: &[u64]) -> Vec<StoredSample> {
    let place = |&row: &u64| {
        let FilePosition { device, address, stored_len, .. } = places[row as usize];
        StoredSample { sample: row as u32, device, address, stored_len }
    };
    order.iter().map(place).collect()
}

impl LocalityOrder {
    /// Runs `work` on the epoch at `step`. The window that was read last is kept.
    fn at<T>(&self, epoch: u64, step: u64, work: impl FnOnce(&mut Epoch) -> T) -> T {
        let mut cursor = lock(&self.cursor);
        if cursor.as_ref().is_none_or(|cursor| cursor.epoch() != epoch) {
            *cursor = None;
        }
        let cursor = cursor.get_or_insert_with(|| self.order.epoch(epoch));
        cursor.seek(step);
        work(cursor)
    }

    fn share(&self, rank: u32, world_size: u32) -> PyResult<Share> {
        self.order.share(rank, world_size).map_err(invalid)
    }
}

#[pymethods]
impl LocalityOrder {
    #[new]
    #[pyo3(signature = (
        index, batch_size, *, seed=0, lanes=1, block_bytes, window_blocks=None, window_bytes=None, shuffle=true, last_batch="drop"
    ))]
    fn new(
        index: &Bound<'_, Index>,
        batch_size: u32,
        seed: u64,
        lanes: u32,
        block_bytes: u64,
        window_blocks: Option<u32>,
        window_bytes: Option<u64>,
        shuffle: bool,
        last_batch: &str,
    ) -> PyResult<Self> {
        let py = index.py();
        let last = match last_batch {
            "drop" => LastBatch::Drop,
            "short" => LastBatch::Short,
            "fill" => LastBatch::Fill,
            other => return Err(PyValueError::new_err(format!("last_batch={other:?}: use 'drop', 'short' or 'fill'"))),
        };
        let image = index.get().image(py)?;
        let positions =
            Positions::of(image.bind(py), &Files::of_index_or_paths(image.bind(py), index.as_any(), None)?)?;
        let columns = &index.get().columns;
        py.detach(|| {
            let count = columns.len() as u64;
            let run = |row: u64| (row * RUNS / count.max(1)) as u32;
            let labels: Vec<u32> = match &columns.labels {
                Some(labels) => labels.get().to_vec(),
                None => (0..count).map(run).collect(),
            };
            let blocks = Blocks::cut(stored(&positions.places, &positions.order()), block_bytes).map_err(invalid)?;
            drop(positions);
            let dispersion = report::dispersion(
                blocks.samples(),
                ClassLabels::new(&labels, blocks.samples()).map_err(invalid)?,
                batch_size as usize,
            );
            let is_stored_shuffled = dispersion <= SHUFFLED_DISPERSION;
            let known = if is_stored_shuffled { StoredOrder::Shuffled } else { StoredOrder::Unknown };
            let window = match window_blocks {
                Some(blocks) => WindowChoice { blocks, wanted: blocks },
                None => choose_window(known, (batch_size, lanes), block_bytes, window_bytes),
            };
            let choices =
                OrderChoices { seed, batch_global: batch_size, lanes, window_blocks: window.blocks, shuffle, last };
            let order = Order::new(blocks, choices).map_err(invalid)?;
            Ok(LocalityOrder { order, window, is_stored_shuffled, labels, cursor: Mutex::new(None) })
        })
    }

    /// Number of batches of an epoch.
    #[getter]
    fn steps(&self) -> u64 {
        self.order.steps()
    }

    /// Number of rows of the index.
    #[getter]
    fn samples(&self) -> u32 {
        self.order.blocks().sample_count()
    }

    /// Number of blocks of stored data.
    #[getter]
    fn blocks(&self) -> usize {
        self.order.blocks().block_count()
    }

    /// Number of blocks whose samples are mixed.
    #[getter(window_blocks)]
    fn py_window_blocks(&self) -> u32 {
        self.window.blocks
    }

    /// True if `window_bytes` has made windows smaller than they should be.
    #[getter]
    fn window_capped(&self) -> bool {
        self.window.blocks < self.window.wanted
    }

    /// True if the files are stored in random order.
    #[getter]
    fn stored_shuffled(&self) -> bool {
        self.is_stored_shuffled
    }

    /// Returns the rows of the index that a rank has in a batch.
    #[pyo3(signature = (epoch, step, rank=0, world_size=1))]
    fn batch<'py>(
        &self,
        py: Python<'py>,
        epoch: u64,
        step: u64,
        rank: u32,
        world_size: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        let share = self.share(rank, world_size)?;
        let batch = self.at(epoch, step, |cursor| cursor.batch(&share));
        let steps = self.order.steps();
        let batch = batch.filter(|_| step < steps).ok_or_else(|| {
            PyValueError::new_err(format!(
                "step is {step}, but must be below {steps}, the number of batches of an epoch"
            ))
        })?;
        memory::column_view(py, memory::column(batch), "I")
    }

    /// Returns all batches of an epoch, of all ranks.
    fn order<'py>(&self, py: Python<'py>, epoch: u64) -> PyResult<Bound<'py, PyAny>> {
        let order = py.detach(|| self.order.order(epoch));
        memory::column_view(py, memory::column(order), "I")
    }

    /// Returns the rows of the next window to announce with this batch. Those of all batches of a
    /// window are the whole next window.
    #[pyo3(signature = (epoch, step, rank=0, world_size=1))]
    fn upcoming<'py>(
        &self,
        py: Python<'py>,
        epoch: u64,
        step: u64,
        rank: u32,
        world_size: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        let share = self.share(rank, world_size)?;
        let rows = self.at(epoch, step, |cursor| cursor.upcoming(&share));
        memory::column_view(py, memory::column(rows), "I")
    }

    /// Returns the rows that a rank still reads of the window of this batch, to announce when
    /// reading begins.
    #[pyo3(signature = (epoch, step, rank=0, world_size=1))]
    fn underway<'py>(
        &self,
        py: Python<'py>,
        epoch: u64,
        step: u64,
        rank: u32,
        world_size: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        let share = self.share(rank, world_size)?;
        let rows = self.at(epoch, step, |cursor| cursor.underway(&share));
        memory::column_view(py, memory::column(rows), "I")
    }

    /// Returns figures about the mixing of an epoch and its reads.
    #[pyo3(signature = (epoch, labels=None))]
    fn report<'py>(
        &self,
        py: Python<'py>,
        epoch: u64,
        labels: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let given = labels.map(|labels| integers(labels, "labels")).transpose()?;
        let given =
            given.map(|labels| labels.into_iter().map(|label| u32::try_from(label).unwrap_or(u32::MAX)).collect());
        let labels: Vec<u32> = given.unwrap_or_else(|| self.labels.clone());
        let (order, blocks) = (&self.order, self.order.blocks());
        let labels = ClassLabels::new(&labels, blocks.samples()).map_err(invalid)?;
        let (mixing, likeness, pairs, fetched) = py.detach(|| {
            let visited = order.order(epoch);
            let mixing = report::mixing(&visited, labels, order.choices().batch_global as usize);
            let likeness = report::likeness(blocks, labels);
            (mixing, likeness, report::pairs(order, epoch), report::fetched(order, epoch, WINDOWS_HELD))
        });
        let figures = PyDict::new(py);
        figures.set_item("dispersion", mixing.dispersion)?;
        figures.set_item("expected_dispersion", report::expected_dispersion(order, likeness))?;
        figures.set_item("classes_per_batch", mixing.classes)?;
        figures.set_item("classes_if_uniform", mixing.uniform_classes)?;
        figures.set_item("likeness_in_blocks", likeness)?;
        figures.set_item("pairs_of_a_block", pairs.share)?;
        figures.set_item("pairs_if_uniform", pairs.uniform)?;
        figures.set_item("bytes_fetched_per_stored", fetched)?;
        figures.set_item("blocks", blocks.block_count())?;
        figures.set_item("window_blocks", self.window.blocks)?;
        Ok(figures)
    }
}

fn choose_window(known: StoredOrder, batch: (u32, u32), block_bytes: u64, window_bytes: Option<u64>) -> WindowChoice {
    window_blocks(known, batch, block_bytes, window_bytes.unwrap_or(u64::MAX))
}

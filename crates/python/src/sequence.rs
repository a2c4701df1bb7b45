//! Classes that are sequences, `collections.abc.Sequence`: a loader, a `match` statement or `random.sample` may ask for one.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyRange, PyTuple};

use crate::index::Index;
use crate::many::batch::Batch;

/// Tell Python of them.
pub(crate) fn register(py: Python<'_>) -> PyResult<()> {
    let sequence = sequence(py)?;
    for class in [py.get_type::<Batch>(), py.get_type::<Index>()] {
        sequence.call_method1("register", (class,))?;
    }
    Ok(())
}

fn sequence(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("collections.abc")?.getattr("Sequence")
}

/// An iterator over all items.
pub(crate) fn iterate<'py>(items: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let len = isize::try_from(items.len()?)?;
    over(items, PyRange::new(items.py(), 0, len)?)
}

/// An iterator over all items, the last one first.
pub(crate) fn reverse<'py>(items: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let len = isize::try_from(items.len()?)?;
    over(items, PyRange::new_with_step(items.py(), len - 1, -1, -1)?)
}

fn over<'py>(items: &Bound<'py, PyAny>, places: Bound<'py, PyRange>) -> PyResult<Bound<'py, PyAny>> {
    items.py().import("builtins")?.getattr("map")?.call1((items.getattr("__getitem__")?, places))
}

/// What `Sequence` makes of `items[i]` under this name: one item is compared after the other.
pub(crate) fn by_comparison<'py>(
    items: &Bound<'py, PyAny>,
    name: &str,
    arguments: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let all = PyList::new(items.py(), [items])?;
    for argument in arguments {
        all.append(argument)?;
    }
    sequence(items.py())?.getattr(name)?.call1(all.to_tuple())
}

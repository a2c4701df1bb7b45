//! Methods of classes that are a `collections.abc.Sequence`, which loaders, `match` statements and
//! `random.sample` require.

use pyo3::PyTypeInfo;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyRange, PyTuple};

/// Registers a class as a sequence.
pub(crate) fn register<T: PyTypeInfo>(py: Python<'_>) -> PyResult<()> {
    sequence(py)?.call_method1("register", (py.get_type::<T>(),))?;
    Ok(())
}

fn sequence(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("collections.abc")?.getattr("Sequence")
}

/// Returns an iterator over all items.
pub(crate) fn iterate<'py>(items: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let len = isize::try_from(items.len()?)?;
    over(items, PyRange::new(items.py(), 0, len)?)
}

/// Returns an iterator over all items, the last one first.
pub(crate) fn reverse<'py>(items: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let len = isize::try_from(items.len()?)?;
    over(items, PyRange::new_with_step(items.py(), len - 1, -1, -1)?)
}

fn over<'py>(items: &Bound<'py, PyAny>, positions: Bound<'py, PyRange>) -> PyResult<Bound<'py, PyAny>> {
    items.py().import("builtins")?.getattr("map")?.call1((items.getattr("__getitem__")?, positions))
}

/// Calls the method of `Sequence` with this name, which compares one item after the other.
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

//! Cost of reading a file, and its extents.

use kiln_read::{Extent, ExtentKind};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// Returns the cost of a cold read of a part of a file as a dictionary.
pub(crate) fn cost<'py>(py: Python<'py>, explained: &kiln_read::Cost) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("extents", explained.pieces)?;
    fields.set_item("wanted", explained.wanted)?;
    fields.set_item("fetched", explained.fetched)?;
    fields.set_item("decoded", explained.decoded)?;
    fields.set_item("metadata", explained.metadata)?;
    fields.set_item("fetch_amplification", explained.fetch_amplification())?;
    fields.set_item("decode_amplification", explained.decode_amplification())?;
    Ok(fields)
}

/// Returns the extents of a file as dictionaries.
pub(crate) fn extents<'py>(py: Python<'py>, extents: &[Extent]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for extent in extents {
        let fields = PyDict::new(py);
        fields.set_item("start", extent.la)?;
        fields.set_item("length", extent.llen)?;
        let (kind, device, address, stored) = match extent.kind {
            ExtentKind::Hole => ("hole", None, None, 0),
            ExtentKind::Raw { device, pa } => ("plain", Some(device), Some(pa), extent.llen),
            ExtentKind::Meta { pa, .. } => ("inline", Some(0), Some(pa), extent.llen),
            ExtentKind::Plain { device, pa, plen, .. } => ("uncompressed", Some(device), Some(pa), plen.into()),
            ExtentKind::Encoded { device, pa, plen, .. } => ("compressed", Some(device), Some(pa), plen.into()),
            ExtentKind::Fragment { off } => ("fragment", None, Some(off), extent.llen),
            ExtentKind::Object => ("object", None, None, extent.llen),
            _ => ("unknown", None, None, 0),
        };
        fields.set_item("kind", kind)?;
        fields.set_item("device", device)?;
        fields.set_item("address", address)?;
        fields.set_item("stored", stored)?;
        let algorithm = match extent.kind {
            ExtentKind::Encoded { algorithm, .. } => Some(algorithm.name()),
            _ => None,
        };
        fields.set_item("algorithm", algorithm)?;
        list.append(fields)?;
    }
    Ok(list)
}

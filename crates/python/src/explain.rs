//! What reading a file costs, and where its bytes are.

use kiln_read::{Extent, ExtentKind};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// What a cold read of a part of a file costs.
pub(crate) fn cost<'py>(py: Python<'py>, explained: &kiln_read::Cost) -> PyResult<Bound<'py, PyDict>> {
    let facts = PyDict::new(py);
    facts.set_item("extents", explained.pieces)?;
    facts.set_item("wanted", explained.wanted)?;
    facts.set_item("fetched", explained.fetched)?;
    facts.set_item("decoded", explained.decoded)?;
    facts.set_item("metadata", explained.metadata)?;
    facts.set_item("fetch_amplification", explained.fetch_amplification())?;
    facts.set_item("decode_amplification", explained.decode_amplification())?;
    Ok(facts)
}

/// The extents of a file, as dictionaries.
pub(crate) fn extents<'py>(py: Python<'py>, extents: &[Extent]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for extent in extents {
        let facts = PyDict::new(py);
        facts.set_item("start", extent.la)?;
        facts.set_item("length", extent.llen)?;
        let (kind, device, address, stored) = match extent.kind {
            ExtentKind::Hole => ("hole", None, None, 0),
            ExtentKind::Raw { device, pa } => ("plain", Some(device), Some(pa), extent.llen),
            ExtentKind::Meta { pa, .. } => ("inline", Some(0), Some(pa), extent.llen),
            ExtentKind::Plain { device, pa, plen, .. } => ("uncompressed", Some(device), Some(pa), plen.into()),
            ExtentKind::Encoded { device, pa, plen, .. } => ("compressed", Some(device), Some(pa), plen.into()),
            ExtentKind::Fragment { off } => ("fragment", None, Some(off), extent.llen),
            _ => ("unknown", None, None, 0),
        };
        facts.set_item("kind", kind)?;
        facts.set_item("device", device)?;
        facts.set_item("address", address)?;
        facts.set_item("stored", stored)?;
        let algorithm = match extent.kind {
            ExtentKind::Encoded { algorithm, .. } => Some(algorithm.name()),
            _ => None,
        };
        facts.set_item("algorithm", algorithm)?;
        list.append(facts)?;
    }
    Ok(list)
}

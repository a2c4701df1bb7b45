//! Opening of images: in files, in memory, and behind objects of Python.

use crate::arguments::{Name, path};
use crate::errors::{self, About};
use crate::handle::{Image, Opened};
use crate::index::behind::Origin;
use crate::source::PythonSource;
use kiln_read::{ImageOptions, ImageSources, Latency, MemorySource, ObjectVerification, Objects, ReadAt, ReadPolicy};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options of an image that is opened.
pub(super) struct OpenOptions {
    /// Offset in bytes of the image in its source.
    pub offset: u64,
    /// Paths of the extra devices.
    pub devices: Vec<Name>,
    /// Paths of directories with the objects of a composefs image.
    pub objects: Vec<Name>,
    pub cache_bytes: u64,
    pub verify_checksum: bool,
    pub mmap: bool,
    pub verify: bool,
}

/// Opens the image in `source`, which errors call `name`.
pub(super) fn open(py: Python<'_>, source: &Bound<'_, PyAny>, name: Name, options: OpenOptions) -> PyResult<Image> {
    let OpenOptions { offset, devices, objects, cache_bytes, verify_checksum, mmap, verify } = options;
    let Name(name) = name;
    // To announce what is in the page cache costs more than to read it, so files are told only
    // while fetches are slow: see `Latency`.
    let is_path = source.is_instance_of::<PyBytes>();
    let policy = ReadPolicy::default();
    let policy = if is_path { policy.with_latency(Latency::new()) } else { policy };
    let options = ImageOptions::default().with_cache_bytes(cache_bytes).with_policy(policy);
    let options = if verify_checksum { options } else { options.with_any_checksum() };
    let (sources, origin) = sources(source, devices, mmap)?;
    let sources = sources.with_offset(offset).with_objects(objects_of(py, objects)?);
    let reader = py.detach(|| sources.open(&options)).map_err(|error| {
        // The error is about the image itself, not about a path in it.
        errors::exception(py, &error.without_path(), About { path: Some(&name), ..About::image(&name) })
    })?;
    Ok(Image::new(reader, Opened { name, verify, origin, offset }))
}

/// Opens the directories with the objects of a composefs image, if there are some.
fn objects_of(py: Python<'_>, dirs: Vec<Name>) -> PyResult<Option<Objects>> {
    if dirs.is_empty() {
        return Ok(None);
    }
    let dirs: Vec<PathBuf> = dirs.into_iter().map(Name::into_path).collect();
    Objects::open(&dirs, ObjectVerification::Once).map(Some).map_err(|error| {
        let dir = error.path().unwrap_or_default().to_vec();
        errors::exception(py, &error.without_path(), About::image(&dir))
    })
}

/// Returns the sources of an image: a path (`bytes`), a buffer, or an object with the methods of a
/// source.
fn sources(source: &Bound<'_, PyAny>, devices: Vec<Name>, mmap: bool) -> PyResult<(ImageSources, Origin)> {
    if let Ok(name) = source.cast::<PyBytes>() {
        let devices: Vec<_> = devices.into_iter().map(Name::into_path).collect();
        let image = path(name.as_bytes().to_vec());
        let sources = if mmap { mapped(&image, &devices)? } else { ImageSources::from_paths(&image, &devices) };
        return Ok((sources, Origin::File(image)));
    }
    if !devices.is_empty() || mmap {
        return Err(PyValueError::new_err("devices and mmap are for images in files"));
    }
    if let Ok(buffer) = PyBuffer::<u8>::get(source) {
        let memory = MemorySource::new(buffer.to_vec(source.py())?);
        return Ok((ImageSources::new(Arc::new(memory)), Origin::Memory));
    }
    let source: Arc<dyn ReadAt> = Arc::new(PythonSource::new(source)?);
    Ok((ImageSources::new(source.clone()), Origin::Object(source)))
}

/// Maps the files of an image into memory. The caller of `kilnfs.open(mmap=True)` promises that
/// they do not change.
#[allow(unsafe_code)]
fn mapped(image: &Path, devices: &[PathBuf]) -> PyResult<ImageSources> {
    let map = |path: &Path| -> PyResult<Arc<dyn ReadAt>> {
        // SAFETY: `kilnfs.open(mmap=True)` says that the file must not change while it is open.
        match unsafe { kiln_read::MappedSource::open(path) } {
            Ok(source) => Ok(Arc::new(source)),
            Err(error) => {
                Python::attach(|py| Err(errors::exception(py, &error, About::image(path.as_os_str().as_bytes()))))
            }
        }
    };
    let devices = devices.iter().map(|device| map(device)).collect::<PyResult<Vec<_>>>()?;
    Ok(ImageSources::new(map(image)?).with_devices(devices))
}

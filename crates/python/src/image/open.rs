//! Opening of images: in files, in memory, and behind objects of Python.

use crate::arguments::{Name, path};
use crate::errors::{self, About};
use crate::handle::{Image, Opened};
use crate::index::behind::Origin;
use crate::source::PythonSource;
use kiln_read::{
    FileSource, ImageOptions, ImageSources, Latency, MappedSource, MemorySource, ObjectVerification, Objects,
    OffsetSource, ReadAt, ReadError, ReadPolicy, SourceLayer,
};
use kilnfs::verity::{Digest, RootHashes, TreeFile};
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
    /// Root hashes of the image and of its devices: none if nothing is verified.
    pub root_hashes: RootHashes,
}

/// Returns root hashes with their trees: paths (`bytes`), buffers, or objects with the methods of a source.
pub(super) fn root_hashes(hashes: &[Bound<'_, PyBytes>], trees: &[Bound<'_, PyAny>]) -> PyResult<RootHashes> {
    let wrong = || PyValueError::new_err("a root hash has 32 or 64 bytes");
    let hash = |bytes: &Bound<'_, PyBytes>| Digest::from_bytes(bytes.as_bytes()).ok_or_else(wrong);
    let hashes = hashes.iter().map(hash).collect::<PyResult<Vec<_>>>()?;
    if hashes.is_empty() && !trees.is_empty() {
        return Err(PyValueError::new_err("hash_tree is for images with a root_hash"));
    }
    let tree = |tree: &Bound<'_, PyAny>| match tree.cast::<PyBytes>() {
        Ok(name) => Ok(TreeFile::Path(path(name.as_bytes().to_vec()))),
        Err(_) => Ok(TreeFile::Source(in_python(tree)?.0)),
    };
    Ok(RootHashes::new(hashes).with_trees(trees.iter().map(tree).collect::<PyResult<_>>()?))
}

/// Opens the image in `source`, which errors call `name`.
pub(super) fn open(py: Python<'_>, source: &Bound<'_, PyAny>, name: Name, options: OpenOptions) -> PyResult<Image> {
    let Name(name) = name;
    let OpenOptions { offset, devices, objects, cache_bytes, verify_checksum, mmap, verify, root_hashes } = options;
    // To announce what is in the page cache costs more than to read it, so files are told only
    // while fetches are slow: see `Latency`.
    let is_path = source.is_instance_of::<PyBytes>();
    let policy = ReadPolicy::default();
    let policy = if is_path { policy.with_latency(Latency::new()) } else { policy };
    let options = ImageOptions::default().with_cache_bytes(cache_bytes).with_policy(policy);
    let options = if verify_checksum { options } else { options.with_any_checksum() };
    // The error is about the image itself, not about a path in it.
    let failed = |error: ReadError| {
        errors::exception(py, &error.without_path(), About { path: Some(&name), ..About::image(&name) })
    };
    let (sources, origin, offset) = match root_hashes.is_empty() {
        true => {
            let (sources, origin) = sources(source, devices, mmap)?;
            (sources.with_offset(offset), origin, offset)
        }
        false => {
            let verified = verified(source, devices, mmap, offset, &root_hashes)?;
            // An index behind the image is read through the same layer. It begins with the image.
            let (image, devices) = py.detach(verified).map_err(failed)?;
            (ImageSources::new(image.clone()).with_devices(devices), Origin::Object(image), 0)
        }
    };
    let sources = sources.with_objects(objects_of(py, objects)?);
    let reader = py.detach(|| sources.open(&options)).map_err(failed)?;
    Ok(Image::new(reader, Opened { name, verify, origin, offset }))
}

type Verified = (Arc<dyn ReadAt>, Vec<Arc<dyn ReadAt>>);

/// Returns a function that opens the sources of an image verified: the image, from its first byte on, and its devices.
fn verified(
    source: &Bound<'_, PyAny>,
    devices: Vec<Name>,
    mmap: bool,
    offset: u64,
    root_hashes: &RootHashes,
) -> PyResult<impl FnOnce() -> Result<Verified, ReadError> + use<>> {
    let refuse = |error: kilnfs::verity::VerityError| PyValueError::new_err(error.to_string());
    let (image, paths, layer): (Arc<dyn ReadAt>, Vec<PathBuf>, SourceLayer) = match source.cast::<PyBytes>() {
        Ok(name) => {
            let devices: Vec<_> = devices.into_iter().map(Name::into_path).collect();
            let image = path(name.as_bytes().to_vec());
            let layer = root_hashes.layer(&image, &devices).map_err(refuse)?;
            (file(&image, mmap)?, devices, layer)
        }
        Err(_) => {
            refuse_for_objects(&devices, mmap)?;
            (in_python(source)?.0, Vec::new(), root_hashes.layer_of_source().map_err(refuse)?)
        }
    };
    let devices = paths.iter().map(|path| file(path, mmap)).collect::<PyResult<Vec<_>>>()?;
    Ok(move || {
        let over = |device: u16, source| layer.over(device, source).map_err(ReadError::of_source);
        let image = OffsetSource::new(image, offset).map_err(ReadError::of_source)?;
        let devices = (1..).zip(devices).map(|(number, device)| over(number, device));
        let devices = devices.collect::<Result<_, _>>()?;
        Ok((over(0, Arc::new(image))?, devices))
    })
}

/// Opens a file, or maps it, for which the caller of `kilnfs.open(mmap=True)` promises that it does not change.
fn file(path: &Path, mmap: bool) -> PyResult<Arc<dyn ReadAt>> {
    if mmap {
        return map(path);
    }
    match FileSource::open(path) {
        Ok(source) => Ok(Arc::new(source)),
        Err(error) => {
            Python::attach(|py| Err(errors::exception(py, &error, About::image(path.as_os_str().as_bytes()))))
        }
    }
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
    refuse_for_objects(&devices, mmap)?;
    let (source, is_memory) = in_python(source)?;
    let origin = if is_memory { Origin::Memory } else { Origin::Object(source.clone()) };
    Ok((ImageSources::new(source), origin))
}

fn refuse_for_objects(devices: &[Name], mmap: bool) -> PyResult<()> {
    match !devices.is_empty() || mmap {
        true => Err(PyValueError::new_err("devices and mmap are for images in files")),
        false => Ok(()),
    }
}

/// Returns the bytes of a buffer, or of an object with the methods of a source; true for memory.
fn in_python(source: &Bound<'_, PyAny>) -> PyResult<(Arc<dyn ReadAt>, bool)> {
    if let Ok(buffer) = PyBuffer::<u8>::get(source) {
        return Ok((Arc::new(MemorySource::new(buffer.to_vec(source.py())?)), true));
    }
    Ok((Arc::new(PythonSource::new(source)?), false))
}

/// Maps a file into memory. The caller of `kilnfs.open(mmap=True)` promises that it does not change.
#[allow(unsafe_code)]
fn map(path: &Path) -> PyResult<Arc<dyn ReadAt>> {
    // SAFETY: `kilnfs.open(mmap=True)` says that the file must not change while it is open.
    match unsafe { MappedSource::open(path) } {
        Ok(source) => Ok(Arc::new(source)),
        Err(error) => {
            Python::attach(|py| Err(errors::exception(py, &error, About::image(path.as_os_str().as_bytes()))))
        }
    }
}

/// Maps the files of an image into memory.
fn mapped(image: &Path, devices: &[PathBuf]) -> PyResult<ImageSources> {
    let devices = devices.iter().map(|device| map(device)).collect::<PyResult<Vec<_>>>()?;
    Ok(ImageSources::new(map(image)?).with_devices(devices))
}

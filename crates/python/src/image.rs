//! An open image.

use crate::arguments::buffer::WritableBuffer;
use crate::arguments::{Name, What, threads};
use crate::errors::{self, About, Subject};
use crate::explain;
use crate::index::Index;
use crate::index::labels::LabelDepth;
use crate::index::scan::{IndexFilter, scan};
use crate::many::batch::Batch;
use crate::many::files::Files;
use crate::many::iterate::IterMany;
use crate::many::positions::Positions;
use crate::many::read::{OnError, ReadMany};
use crate::memory::{self, Pool};
use crate::names;
use crate::source::PythonSource;
use crate::whole;
use bytes::Bytes;
use kiln_read::{
    FollowLast, Image as ReadImage, ImageOptions, ImageSources, Inode, Latency, MemorySource, ReadAt, ReadError,
    ReadPolicy,
};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

/// An open image, the base of `kilnfs.Image`.
#[pyclass(frozen, subclass, weakref, module = "kilnfs._native")]
pub(crate) struct Image {
    /// What the image is called in errors.
    name: Vec<u8>,
    /// None once it is closed.
    open: RwLock<Option<ReadImage>>,
    pub(crate) pool: Arc<Pool>,
    /// Whether it is in a file of this system, which has a page cache.
    is_path: bool,
}

impl Image {
    /// The image, if it is not closed. A clone, so that no lock is held while it is read.
    pub(crate) fn get(&self) -> PyResult<ReadImage> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(errors::closed)
    }

    /// The exception for an error of this image.
    pub(crate) fn exception(&self, py: Python<'_>, error: &ReadError, subject: &Subject) -> PyErr {
        let (path, nid) = match subject {
            Subject::Image => (None, None),
            Subject::Path(path) => (Some(path.as_slice()), None),
            Subject::Nid(nid) => (None, Some(*nid)),
        };
        errors::exception(py, error, About { image: &self.name, path, nid })
    }

    /// Refuses `what`, which belongs to the image with this UUID, if this is another one.
    pub(crate) fn refuse_another(&self, py: Python<'_>, what: &str, uuid: [u8; 16]) -> PyResult<()> {
        let found = self.get()?.superblock().uuid;
        if uuid == found { Ok(()) } else { Err(errors::of_another(py, what, uuid, found, &self.name)) }
    }

    /// Refuses a path of another image.
    pub(crate) fn refuse_foreign(&self, py: Python<'_>, what: &What) -> PyResult<()> {
        match what {
            What::PathOf(path, uuid) => {
                self.refuse_another(py, &format!("the path {:?}", String::from_utf8_lossy(path)), *uuid)
            }
            What::Path(_) | What::Nid(_) => Ok(()),
        }
    }

    /// What `work` on the image gives, while other threads of Python run. Errors are about `what`.
    fn work<T: Send>(
        &self,
        py: Python<'_>,
        what: Option<&What>,
        work: impl FnOnce(&ReadImage) -> Result<T, ReadError> + Send,
    ) -> PyResult<T> {
        what.map_or(Ok(()), |what| self.refuse_foreign(py, what))?;
        let image = self.get()?;
        let subject = || what.map_or(Subject::Image, What::subject);
        py.detach(|| work(&image)).map_err(|error| self.exception(py, &error, &subject()))
    }

    /// The inode of `what`.
    fn inode(&self, py: Python<'_>, what: &What, last: FollowLast) -> PyResult<Inode> {
        self.work(py, Some(what), |image| what.inode(image, last))
    }
}

fn follow_last(follow: bool) -> FollowLast {
    if follow { FollowLast::Follow } else { FollowLast::Keep }
}

/// How to open a file, or what else an image is in.
fn sources(source: &Bound<'_, PyAny>, devices: Vec<Name>, mmap: bool) -> PyResult<ImageSources> {
    let path = |name: Vec<u8>| PathBuf::from(OsString::from_vec(name));
    if let Ok(name) = source.cast::<PyBytes>() {
        let devices: Vec<_> = devices.into_iter().map(|Name(name)| path(name)).collect();
        let image = path(name.as_bytes().to_vec());
        return if mmap { mapped(&image, &devices) } else { Ok(ImageSources::from_paths(&image, &devices)) };
    }
    if !devices.is_empty() || mmap {
        return Err(PyValueError::new_err("devices and mmap are for images in files"));
    }
    let source: Arc<dyn ReadAt> = match PyBuffer::<u8>::get(source) {
        Ok(buffer) => Arc::new(MemorySource::new(buffer.to_vec(source.py())?)),
        Err(_) => Arc::new(PythonSource::new(source)?),
    };
    Ok(ImageSources::new(source))
}

/// Files mapped into memory, as the caller asked for who promises that nobody changes them.
#[allow(unsafe_code)]
fn mapped(image: &std::path::Path, devices: &[PathBuf]) -> PyResult<ImageSources> {
    let map = |path: &std::path::Path| -> PyResult<Arc<dyn ReadAt>> {
        // SAFETY: `kilnfs.open(mmap=True)` says that the file must not change while it is open.
        match unsafe { kiln_read::MappedSource::open(path) } {
            Ok(source) => Ok(Arc::new(source)),
            Err(error) => Python::attach(|py| {
                Err(errors::exception(py, &error, About { image: path.as_os_str().as_bytes(), path: None, nid: None }))
            }),
        }
    };
    let devices = devices.iter().map(|device| map(device)).collect::<PyResult<Vec<_>>>()?;
    Ok(ImageSources::new(map(image)?).with_devices(devices))
}

#[pymethods]
impl Image {
    #[new]
    #[pyo3(signature = (source, name, *, offset=0, devices=vec![], cache_bytes=6 << 20, verify_checksum=true, mmap=false))]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        name: Name,
        offset: u64,
        devices: Vec<Name>,
        cache_bytes: u64,
        verify_checksum: bool,
        mmap: bool,
    ) -> PyResult<Self> {
        let Name(name) = name;
        // What is in the page cache costs more to announce than to read, so files are told only while fetches are slow: see `Latency`.
        let is_path = source.is_instance_of::<PyBytes>();
        let policy = ReadPolicy::default();
        let policy = if is_path { policy.with_latency(Latency::new()) } else { policy };
        let options = ImageOptions::default().with_cache_bytes(cache_bytes).with_policy(policy);
        let options = if verify_checksum { options } else { options.with_any_checksum() };
        let sources = sources(source, devices, mmap)?.with_offset(offset);
        let opened = py.detach(|| sources.open(&options)).map_err(|error| open_error(py, &error, &name))?;
        Ok(Image { name, open: RwLock::new(Some(opened)), pool: Arc::default(), is_path })
    }

    #[getter(name)]
    fn py_name<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        errors::text(py, &self.name)
    }

    #[getter]
    fn closed(&self) -> bool {
        self.get().is_err()
    }

    fn close(&self) {
        let image = self.open.write().unwrap_or_else(PoisonError::into_inner).take();
        drop(image);
    }

    #[getter]
    fn uuid<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.get()?.superblock().uuid))
    }

    #[getter]
    fn source_length(&self) -> PyResult<u64> {
        Ok(self.get()?.source_len())
    }

    fn _superblock<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        names::superblock(py, &self.get()?)
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        names::stats(py, &self.get()?)
    }

    fn _lookup(&self, py: Python<'_>, what: What, follow: bool) -> PyResult<u64> {
        Ok(self.inode(py, &what, follow_last(follow))?.nid.0)
    }

    fn _stat<'py>(
        &self,
        py: Python<'py>,
        what: What,
        follow: bool,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyDict>)> {
        let inode = self.inode(py, &what, follow_last(follow))?;
        names::stat(py, &self.get()?, &inode)
    }

    fn _listdir<'py>(&self, py: Python<'py>, what: What) -> PyResult<Bound<'py, PyList>> {
        let entries = self.work(py, Some(&what), |image| {
            let dir = what.inode(image, FollowLast::Follow)?;
            names::list(image, &dir)
        })?;
        PyList::new(py, entries.iter().map(|(name, nid, kind)| (PyBytes::new(py, name), nid, kind)))
    }

    fn _readlink<'py>(&self, py: Python<'py>, what: What) -> PyResult<Bound<'py, PyBytes>> {
        let target = self.work(py, Some(&what), |image| image.read_link(&what.inode(image, FollowLast::Keep)?))?;
        Ok(PyBytes::new(py, &target))
    }

    fn _listxattr<'py>(&self, py: Python<'py>, what: What, follow: bool) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let xattrs = self.work(py, Some(&what), |image| image.list_xattrs(&what.inode(image, follow_last(follow))?))?;
        Ok(xattrs.iter().map(|xattr| PyBytes::new(py, &xattr.name)).collect())
    }

    fn _getxattr<'py>(&self, py: Python<'py>, what: What, name: Name, follow: bool) -> PyResult<Bound<'py, PyBytes>> {
        let value =
            self.work(py, Some(&what), |image| image.get_xattr(&what.inode(image, follow_last(follow))?, &name.0))?;
        match value {
            Some(value) => Ok(PyBytes::new(py, &value)),
            None => {
                let errno = rustix::io::Errno::NODATA.raw_os_error();
                let path = errors::text(py, what.path().unwrap_or(&self.name))?.unbind();
                Err(PyOSError::new_err((
                    errno,
                    "No such extended attribute",
                    path,
                    py.None(),
                    self.py_name(py)?.unbind(),
                )))
            }
        }
    }

    #[pyo3(signature = (what, start=0, stop=None))]
    fn read<'py>(&self, py: Python<'py>, what: What, start: u64, stop: Option<u64>) -> PyResult<Bound<'py, PyBytes>> {
        self.refuse_foreign(py, &what)?;
        let image = self.get()?;
        let fail = |error: ReadError| self.exception(py, &error, &what.subject());
        let inode = py.detach(|| what.inode(&image, FollowLast::Follow)).map_err(fail)?;
        let range = start..stop.unwrap_or(u64::MAX).min(inode.size()).max(start);
        let len = range.end - range.start;
        if len > image.at_once_max() {
            // How long the file is, is a claim as yet: memory grows with what is read.
            let bytes = py.detach(|| image.read_bytes(&inode, range)).map_err(fail)?;
            return Ok(PyBytes::new(py, &bytes));
        }
        let mut read = Ok(0);
        let bytes = PyBytes::new_with(py, len as usize, |buf| {
            read = py.detach(|| image.read_at(&inode, buf, start));
            Ok(())
        })?;
        match read {
            Ok(_) => Ok(bytes),
            Err(error) => Err(fail(error)),
        }
    }

    #[pyo3(signature = (what, buffer, *, start=0))]
    fn read_into(&self, py: Python<'_>, what: What, buffer: &Bound<'_, PyAny>, start: u64) -> PyResult<usize> {
        let mut buffer = WritableBuffer::of(buffer)?;
        let buf = buffer.bytes_mut();
        self.work(py, Some(&what), |image| image.read_at(&what.inode(image, FollowLast::Follow)?, buf, start))
    }

    #[pyo3(signature = (what, start=0, stop=None))]
    fn view<'py>(&self, py: Python<'py>, what: What, start: u64, stop: Option<u64>) -> PyResult<Bound<'py, PyAny>> {
        let bytes: Bytes = self.work(py, Some(&what), |image| {
            let inode = what.inode(image, FollowLast::Follow)?;
            image.read_bytes(&inode, start..stop.unwrap_or(inode.size()))
        })?;
        memory::fixed_view(py, bytes)
    }

    #[pyo3(signature = (what, *, rows=None))]
    fn views<'py>(
        slf: &Bound<'py, Self>,
        what: &Bound<'py, PyAny>,
        rows: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let (py, image) = (slf.py(), slf.get());
        let opened = image.get()?;
        let files = Files::of(slf, what, rows)?;
        let read = || -> Result<Vec<Bytes>, (usize, ReadError)> {
            let each = |nth| {
                let inode = files.inode(&opened, nth)?;
                opened.read_bytes(&inode, 0..inode.size())
            };
            (0..files.len()).map(|nth| each(nth).map_err(|error| (nth, error))).collect()
        };
        let parts = py.detach(read).map_err(|(nth, error)| image.exception(py, &error, &files.subject(slf, nth)))?;
        parts.into_iter().map(|bytes| memory::fixed_view(py, bytes)).collect()
    }

    #[pyo3(signature = (what, *, rows=None, ranges=None, out=None, threads=None, on_error="raise"))]
    fn read_many<'py>(
        slf: &Bound<'py, Self>,
        what: &Bound<'py, PyAny>,
        rows: Option<&Bound<'py, PyAny>>,
        ranges: Option<Vec<(u64, u64)>>,
        out: Option<&Bound<'py, PyAny>>,
        threads: Option<usize>,
        on_error: &str,
    ) -> PyResult<Batch> {
        let on_error = match on_error {
            "raise" => OnError::Raise,
            "return" => OnError::Return,
            other => return Err(PyValueError::new_err(format!("on_error={other:?}: 'raise' or 'return'"))),
        };
        let threads = self::threads(threads)?;
        ReadMany { files: Files::of(slf, what, rows)?, ranges, threads, on_error }.run(slf, out)
    }

    #[pyo3(signature = (what, *, rows=None, threads=None, window_bytes=64 << 20))]
    fn iter_many<'py>(
        slf: &Bound<'py, Self>,
        what: &Bound<'py, PyAny>,
        rows: Option<&Bound<'py, PyAny>>,
        threads: Option<usize>,
        window_bytes: u64,
    ) -> PyResult<IterMany> {
        IterMany::new(slf, Files::of(slf, what, rows)?, self::threads(threads)?, window_bytes)
    }

    #[pyo3(signature = (what, *, rows=None))]
    fn positions<'py>(
        slf: &Bound<'py, Self>,
        what: &Bound<'py, PyAny>,
        rows: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Positions> {
        Positions::of(slf, &Files::of(slf, what, rows)?)
    }

    #[pyo3(signature = (what, *, rows=None))]
    fn physical_order<'py>(
        slf: &Bound<'py, Self>,
        what: &Bound<'py, PyAny>,
        rows: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let order = Positions::of(slf, &Files::of(slf, what, rows)?)?.order();
        memory::column_view(slf.py(), memory::column(order), "Q")
    }

    #[pyo3(signature = (what, *, rows=None))]
    fn prefetch<'py>(
        slf: &Bound<'py, Self>,
        what: &Bound<'py, PyAny>,
        rows: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<u64> {
        let (py, image) = (slf.py(), slf.get());
        let opened = image.get()?;
        let files = Files::of(slf, what, rows)?;
        if image.is_path && !opened.is_cold() && py.detach(|| files.are_resident(&opened)) {
            return Ok(0);
        }
        py.detach(|| files.prefetch(&opened))
            .map_err(|(nth, error)| image.exception(py, &error, &files.subject(slf, nth)))
    }

    #[pyo3(signature = (root, *, extensions=vec![], glob=None, depth=None, threads=None))]
    fn _index<'py>(
        slf: &Bound<'py, Self>,
        root: What,
        extensions: Vec<Name>,
        glob: Option<Name>,
        depth: Option<usize>,
        threads: Option<usize>,
    ) -> PyResult<Index> {
        let threads = self::threads(threads)?;
        let filter =
            IndexFilter::new(extensions.into_iter().map(|Name(ending)| ending).collect(), glob.map(|Name(glob)| glob))?;
        let columns = slf.get().work(slf.py(), Some(&root), |image| {
            let dir = root.inode(image, FollowLast::Follow)?;
            scan(image, &root, &dir, &filter, depth.map(LabelDepth), threads)
        })?;
        Ok(Index::bound(columns, slf))
    }

    #[pyo3(signature = (members, target, *, policy, threads=None, progress=None))]
    fn _extract<'py>(
        &self,
        py: Python<'py>,
        members: Vec<Name>,
        target: Name,
        policy: &str,
        threads: Option<usize>,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let members = members.into_iter().map(|Name(member)| member).collect();
        whole::extract_members(py, self, members, target.0, policy, self::threads(threads)?, progress)
    }

    #[pyo3(signature = (*, threads=None, progress=None))]
    fn _check<'py>(
        &self,
        py: Python<'py>,
        threads: Option<usize>,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        whole::check(py, self, self::threads(threads)?, progress)
    }

    fn _extents<'py>(&self, py: Python<'py>, what: What) -> PyResult<Bound<'py, PyList>> {
        let extents = self.work(py, Some(&what), |image| {
            image.extents(&what.inode(image, FollowLast::Follow)?).collect::<Result<Vec<_>, _>>()
        })?;
        explain::extents(py, &extents)
    }

    #[pyo3(signature = (what, start=0, stop=None))]
    fn _explain<'py>(
        &self,
        py: Python<'py>,
        what: What,
        start: u64,
        stop: Option<u64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let cost = self.work(py, Some(&what), |image| {
            let inode = what.inode(image, FollowLast::Follow)?;
            image.explain(&inode, start..stop.unwrap_or(inode.size()))?.total()
        })?;
        explain::cost(py, &cost)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let name = errors::text(slf.py(), &slf.get().name)?.repr()?;
        let class = slf.get_type().name()?;
        Ok(format!("<{class} {name}{}>", if slf.get().closed() { ", closed" } else { "" }))
    }
}

/// The exception for an image that cannot be opened: it is about the image itself.
fn open_error(py: Python<'_>, error: &ReadError, name: &[u8]) -> PyErr {
    errors::exception(py, &error.clone().without_path(), About { image: name, path: Some(name), nid: None })
}

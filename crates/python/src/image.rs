//! An open image.

use crate::arguments::buffer::WritableBuffer;
use crate::arguments::{Name, Named, Number, What, number_or, one_file, ranges, threads};
use crate::errors::{self, About, Subject};
use crate::explain;
use crate::index::behind::{self, Origin};
use crate::index::labels::LabelDepth;
use crate::index::scan::{IndexFilter, scan};
use crate::index::{Index, io_error};
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
use kiln::sink::dir::Existing;
use kiln_read::{
    FollowLast, Image as ReadImage, ImageOptions, ImageSources, Inode, Latency, MemorySource, ReadAt, ReadError,
    ReadPolicy,
};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

/// An open image, the base of `kilnfs.Image`, which `kilnfs.open` makes.
#[pyclass(frozen, subclass, weakref, module = "kilnfs._native")]
pub(crate) struct Image {
    /// What the image is called in errors.
    name: Vec<u8>,
    /// None once it is closed.
    open: RwLock<Option<ReadImage>>,
    pub(crate) pool: Arc<Pool>,
    /// True if contents that are read whole are compared with their digests.
    pub(crate) verify: bool,
    /// Place where an index behind the image is looked for, and the first byte of the image there.
    origin: Origin,
    offset: u64,
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

    /// Compare `bytes`, which were read from the start of a file on, with its digest, if they are all of it and that
    /// was asked for.
    pub(crate) fn verified(&self, image: &ReadImage, inode: &Inode, start: u64, bytes: &[u8]) -> Result<(), ReadError> {
        match self.verify && start == 0 && bytes.len() as u64 == inode.size() {
            true => image.digest_verifier(inode)?.map_or(Ok(()), |mut verifier| {
                verifier.update(bytes);
                verifier.finish()
            }),
            false => Ok(()),
        }
    }
}

fn follow_last(follow: bool) -> FollowLast {
    if follow { FollowLast::Follow } else { FollowLast::Keep }
}

/// How to open a file, or what else an image is in.
fn sources(source: &Bound<'_, PyAny>, devices: Vec<Name>, mmap: bool) -> PyResult<(ImageSources, Origin)> {
    let path = |name: Vec<u8>| PathBuf::from(OsString::from_vec(name));
    if let Ok(name) = source.cast::<PyBytes>() {
        let devices: Vec<_> = devices.into_iter().map(|Name(name)| path(name)).collect();
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
    #[pyo3(signature = (
        source, name, *, offset=None, devices=vec![], cache_bytes=None, verify_checksum=true, mmap=false, verify=false
    ), text_signature = "(source, name, *, offset=0, devices=..., cache_bytes=6291456, verify_checksum=True, \
        mmap=False, verify=False)")]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        name: Name,
        offset: Option<Number>,
        devices: Vec<Name>,
        cache_bytes: Option<Number>,
        verify_checksum: bool,
        mmap: bool,
        verify: bool,
    ) -> PyResult<Self> {
        let Name(name) = name;
        let (offset, cache_bytes) = (number_or(offset, "offset", 0)?, number_or(cache_bytes, "cache_bytes", 6 << 20)?);
        // What is in the page cache costs more to announce than to read, so files are told only while fetches are slow: see `Latency`.
        let is_path = source.is_instance_of::<PyBytes>();
        let policy = ReadPolicy::default();
        let policy = if is_path { policy.with_latency(Latency::new()) } else { policy };
        let options = ImageOptions::default().with_cache_bytes(cache_bytes).with_policy(policy);
        let options = if verify_checksum { options } else { options.with_any_checksum() };
        let (sources, origin) = sources(source, devices, mmap)?;
        let sources = sources.with_offset(offset);
        let opened = py.detach(|| sources.open(&options)).map_err(|error| open_error(py, &error, &name))?;
        Ok(Image { name, open: RwLock::new(Some(opened)), pool: Arc::default(), verify, origin, offset })
    }

    /// Path or URL of the image, without a password; "<memory>" for one in memory.
    ///
    /// >>> image.name
    /// 'train.erofs'
    #[getter(name)]
    fn py_name<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        errors::text(py, &self.name)
    }

    /// Tells if the image was closed.
    ///
    /// >>> image.closed
    /// False
    #[getter]
    fn closed(&self) -> bool {
        self.get().is_err()
    }

    /// Closes the image: methods raise ValueError from now on. Memory that was given out stays valid, and calls of
    /// other threads that are under way end as usual.
    ///
    /// >>> other = kilnfs.open("train.erofs")
    /// >>> other.close()
    /// >>> other.read("about.txt")
    /// Traceback (most recent call last):
    ///     ...
    /// ValueError: the image is closed
    fn close(&self) {
        let image = self.open.write().unwrap_or_else(PoisonError::into_inner).take();
        drop(image);
    }

    /// UUID in the superblock, 16 bytes. kiln makes it of all that is in the image: equal images have equal ones.
    ///
    /// >>> len(image.uuid)
    /// 16
    #[getter]
    fn uuid<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.get()?.superblock().uuid))
    }

    /// Length in bytes of the image, without extra devices; of what it was opened from, which may be longer.
    ///
    /// >>> image.source_length % image.info.block_size
    /// 0
    #[getter]
    fn source_length(&self) -> PyResult<u64> {
        Ok(self.get()?.source_len())
    }

    fn _superblock<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        names::superblock(py, &self.get()?)
    }

    /// Counters since the image was opened in this process: `reads` and `served_bytes` (what was asked for), `fetches`
    /// and `fetched_bytes` (what was read from the file, requests for a URL), `decodes` and `decoded_bytes` (pclusters
    /// that were decompressed, and what they gave), `cache_hits`. Costs nothing.
    ///
    /// >>> before = image.stats()["served_bytes"]
    /// >>> image.read("cat/1.txt")
    /// b'meow\n'
    /// >>> image.stats()["served_bytes"] - before
    /// 5
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

    /// The contents of a file from byte `start` to byte `stop`, by default all of it, as `bytes`: fewer where the file
    /// ends before.
    ///
    /// `what` is a path (`str`, `bytes`, `kilnfs.Path`), absolute or from the root, or `nid=` the number of an inode.
    /// Symbolic links are followed.
    ///
    /// Costs a lookup of each name of the path, none with `nid=`; one read of the image, or none where pclusters are in
    /// the cache; one copy. Compressed files are decompressed by whole pclusters. Many files are cheaper by
    /// `read_many`.
    ///
    /// Raises OSError: FileNotFoundError, NotADirectoryError, IsADirectoryError, `kilnfs.CorruptImageError`; ValueError
    /// where the image is closed or a number does not fit.
    ///
    /// >>> image.read("cat/1.txt"), image.read("cat/1.txt", 1, 3)
    /// (b'meow\n', b'eo')
    /// >>> image.read(nid=image.stat("cat/1.txt").st_ino)
    /// b'meow\n'
    #[pyo3(
        signature = (what=None, start=None, stop=None, *, nid=None),
        text_signature = "($self, what=None, start=0, stop=None, *, nid=None)"
    )]
    fn read<'py>(
        &self,
        py: Python<'py>,
        what: Option<Named>,
        start: Option<Number>,
        stop: Option<Number>,
        nid: Option<Number>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (what, start, stop) =
            (one_file(what, nid)?, number_or(start, "start", 0)?, number_or(stop, "stop", u64::MAX)?);
        self.refuse_foreign(py, &what)?;
        let image = self.get()?;
        let fail = |error: ReadError| self.exception(py, &error, &what.subject());
        let inode = py.detach(|| what.inode(&image, FollowLast::Follow)).map_err(fail)?;
        let range = start..stop.min(inode.size()).max(start);
        let len = range.end - range.start;
        if len > image.at_once_max() {
            // How long the file is, is a claim as yet: memory grows with what is read.
            let read = || {
                let bytes = image.read_bytes(&inode, range)?;
                self.verified(&image, &inode, start, &bytes).map(|()| bytes)
            };
            return Ok(PyBytes::new(py, &py.detach(read).map_err(fail)?));
        }
        let mut read = Ok(());
        let bytes = PyBytes::new_with(py, len as usize, |buf| {
            read = py.detach(|| {
                image.read_at(&inode, buf, start)?;
                self.verified(&image, &inode, start, buf)
            });
            Ok(())
        })?;
        match read {
            Ok(()) => Ok(bytes),
            Err(error) => Err(fail(error)),
        }
    }

    /// Reads a file from byte `start` on into `buffer`, and returns how many bytes there were: fewer than its length
    /// only at the end of the file. `buffer` is writable and contiguous, of any element: a `bytearray`, an array, a
    /// NumPy array or a tensor's.
    ///
    /// Costs as `read`, without memory of its own: what is stored as it is and what is decompressed goes straight into
    /// the buffer.
    ///
    /// Raises OSError as `read`; TypeError for a buffer that is read-only.
    ///
    /// >>> buffer = bytearray(3)
    /// >>> image.read_into("cat/1.txt", buffer), buffer
    /// (3, bytearray(b'meo'))
    #[pyo3(
        signature = (what=None, buffer=None, *, start=None, nid=None),
        text_signature = "($self, what=None, buffer=None, *, start=0, nid=None)"
    )]
    fn read_into(
        &self,
        py: Python<'_>,
        what: Option<Named>,
        buffer: Option<&Bound<'_, PyAny>>,
        start: Option<Number>,
        nid: Option<Number>,
    ) -> PyResult<usize> {
        let (what, start) = (one_file(what, nid)?, number_or(start, "start", 0)?);
        let buffer = buffer.ok_or_else(|| PyTypeError::new_err("read_into: a buffer is missing"))?;
        let mut buffer = WritableBuffer::of(buffer)?;
        let buf = buffer.bytes_mut();
        self.work(py, Some(&what), |image| {
            let inode = what.inode(image, FollowLast::Follow)?;
            let len = image.read_at(&inode, buf, start)?;
            self.verified(image, &inode, start, &buf[..len]).map(|()| len)
        })
    }

    /// The contents of a file from byte `start` to byte `stop` as a read-only `memoryview` of bytes, which stays valid
    /// when the image is closed.
    ///
    /// Zero-copy where the range is one run that is stored as it is, and the image is mapped (`mmap=True`) or in
    /// memory. Otherwise it copies: compressed files, files with holes, several extents, or an end that lies beside the
    /// inode (`kilnfs.pack(inline=False)` makes no such ends), and all files of an image that is not mapped.
    ///
    /// Raises OSError as `read`.
    ///
    /// >>> bytes(image.view("cat/1.txt", 1))
    /// b'eow\n'
    #[pyo3(
        signature = (what=None, start=None, stop=None, *, nid=None),
        text_signature = "($self, what=None, start=0, stop=None, *, nid=None)"
    )]
    fn view<'py>(
        &self,
        py: Python<'py>,
        what: Option<Named>,
        start: Option<Number>,
        stop: Option<Number>,
        nid: Option<Number>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (what, start, stop) =
            (one_file(what, nid)?, number_or(start, "start", 0)?, number_or(stop, "stop", u64::MAX)?);
        let bytes: Bytes = self.work(py, Some(&what), |image| {
            let inode = what.inode(image, FollowLast::Follow)?;
            let bytes = image.read_bytes(&inode, start..stop.min(inode.size()).max(start))?;
            self.verified(image, &inode, start, &bytes).map(|()| bytes)
        })?;
        memory::fixed_view(py, bytes)
    }

    /// The contents of many files as a list of read-only views, in the order of the question; see `read_many` for
    /// `what`, `rows` and `nids`.
    ///
    /// Zero-copy as `view` is: for mapped images whose files are one run each. A file of 16 KiB then costs 0.4 µs; one
    /// that copies, as its end lies beside its inode, 3 µs. Reads one file after the other on the calling thread: of
    /// compressed images, and of images that are not mapped, `read_many` is faster.
    ///
    /// Raises OSError that names the file.
    ///
    /// >>> with kilnfs.open("train.erofs", mmap=True) as mapped:
    /// ...     [bytes(view) for view in mapped.views(["cat/1.txt", "dog/1.txt"])]
    /// [b'meow\n', b'woof\n']
    #[pyo3(signature = (what=None, *, rows=None, nids=None))]
    fn views<'py>(
        slf: &Bound<'py, Self>,
        what: Option<&Bound<'py, PyAny>>,
        rows: Option<&Bound<'py, PyAny>>,
        nids: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let (py, image) = (slf.py(), slf.get());
        let opened = image.get()?;
        let files = Files::asked(slf, what, nids, rows)?;
        let read = || -> Result<Vec<Bytes>, (usize, ReadError)> {
            let each = |nth| {
                let inode = files.inode(&opened, nth)?;
                let bytes = opened.read_bytes(&inode, 0..inode.size())?;
                image.verified(&opened, &inode, 0, &bytes).map(|()| bytes)
            };
            (0..files.len()).map(|nth| each(nth).map_err(|error| (nth, error))).collect()
        };
        let parts = py.detach(read).map_err(|(nth, error)| image.exception(py, &error, &files.subject(slf, nth)))?;
        parts.into_iter().map(|bytes| memory::fixed_view(py, bytes)).collect()
    }

    /// The contents of many files in one buffer, as a `kilnfs.Batch` in the order of the question.
    ///
    /// * `what`: a `kilnfs.Index`, or paths from whatever can be iterated over: a list, a generator, a column of a
    ///   table. `nids` are numbers of inodes instead. `rows`: only these, in this order, which may repeat: whole
    ///   numbers in a list or a buffer of 32 or 64 bits.
    /// * `ranges`: a pair (first byte, the one behind the last or None) for each file.
    /// * `out`: a writable buffer that gets the contents, at least as long as they are; by default one of the image's
    ///   pool.
    /// * `threads`: at most so many read and decompress, by default as many as there are processors, up to 4.
    /// * `on_error="return"`: errors of single files are in `Batch.errors`, and raised where such a file is asked for;
    ///   "raise" raises the first.
    ///
    /// Costs a lookup of each path, none with an index; the files are read in stored order, neighbours by one request;
    /// what is stored as it is and what is decompressed goes straight into the buffer: no copy. Memory is the sum of
    /// the lengths.
    ///
    /// Raises OSError that names the file; MemoryError where contents are longer than memory; IndexError for a row that
    /// there is not.
    ///
    /// >>> index = image.index()
    /// >>> batch = image.read_many(index, rows=[3, 1])
    /// >>> [bytes(part) for part in batch], list(batch.offsets)
    /// ([b'woof\n', b'meow\n'], [0, 5, 10])
    /// >>> image.read_many(["cat/1.txt"], ranges=[(1, None)]).tobytes(0)
    /// b'eow\n'
    #[pyo3(signature = (what=None, *, rows=None, nids=None, ranges=None, out=None, threads=None, on_error="raise"))]
    fn read_many<'py>(
        slf: &Bound<'py, Self>,
        what: Option<&Bound<'py, PyAny>>,
        rows: Option<&Bound<'py, PyAny>>,
        nids: Option<&Bound<'py, PyAny>>,
        ranges: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        threads: Option<Number>,
        on_error: &str,
    ) -> PyResult<Batch> {
        let on_error = match on_error {
            "raise" => OnError::Raise,
            "return" => OnError::Return,
            other => return Err(PyValueError::new_err(format!("on_error={other:?}: 'raise' or 'return'"))),
        };
        let threads = self::threads(threads)?;
        let ranges = ranges.map(self::ranges).transpose()?;
        ReadMany { files: Files::asked(slf, what, nids, rows)?, ranges, threads, on_error }.run(slf, out)
    }

    /// Iterates over files in stored order, with bounded memory: pairs of the place of a file among those asked for and
    /// its contents, a writable view. `what`, `rows`, `nids` and `threads` are as for `read_many`.
    ///
    /// Costs as `read_many`, for so many files at a time as have `window_bytes` bytes together, at least one. Views
    /// stay valid; their memory is that of their window. All places are looked up before the first file comes.
    ///
    /// Raises OSError that names the file, and may be asked for the next one then.
    ///
    /// >>> {place: bytes(contents) for place, contents in image.iter_many(["dog/1.txt", "cat/1.txt"])}[1]
    /// b'meow\n'
    #[pyo3(
        signature = (what=None, *, rows=None, nids=None, threads=None, window_bytes=None),
        text_signature = "($self, what=None, *, rows=None, nids=None, threads=None, window_bytes=67108864)"
    )]
    fn iter_many<'py>(
        slf: &Bound<'py, Self>,
        what: Option<&Bound<'py, PyAny>>,
        rows: Option<&Bound<'py, PyAny>>,
        nids: Option<&Bound<'py, PyAny>>,
        threads: Option<Number>,
        window_bytes: Option<Number>,
    ) -> PyResult<IterMany> {
        let window_bytes = number_or(window_bytes, "window_bytes", 64 << 20)?;
        IterMany::new(slf, Files::asked(slf, what, nids, rows)?, self::threads(threads)?, window_bytes)
    }

    /// Returns where files are stored, as `kilnfs._native.Positions`: a row for each file, in the order of the
    /// question. `what`, `rows` and `nids` are as for `read_many`.
    ///
    /// Costs a look at the metadata of each file, and reads no contents.
    ///
    /// Raises OSError that names the file.
    ///
    /// >>> places = image.positions(image.index())
    /// >>> len(places), list(places.devices)
    /// (4, [0, 0, 0, 0])
    #[pyo3(signature = (what=None, *, rows=None, nids=None))]
    fn positions<'py>(
        slf: &Bound<'py, Self>,
        what: Option<&Bound<'py, PyAny>>,
        rows: Option<&Bound<'py, PyAny>>,
        nids: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Positions> {
        Positions::of(slf, &Files::asked(slf, what, nids, rows)?)
    }

    /// The places of files among those asked for, in the order in which their contents are stored: a read-only view of
    /// unsigned numbers of 64 bits ('Q'). `what`, `rows` and `nids` are as for `read_many`, and costs and errors as for
    /// `positions`.
    ///
    /// >>> sorted(image.physical_order(image.index()))
    /// [0, 1, 2, 3]
    #[pyo3(signature = (what=None, *, rows=None, nids=None))]
    fn physical_order<'py>(
        slf: &Bound<'py, Self>,
        what: Option<&Bound<'py, PyAny>>,
        rows: Option<&Bound<'py, PyAny>>,
        nids: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let order = Positions::of(slf, &Files::asked(slf, what, nids, rows)?)?.order();
        memory::column_view(slf.py(), memory::column(order), "Q")
    }

    /// Says that these files will be read soon, and returns how many bytes the storage was told of: 0 where they are in
    /// memory. `what`, `rows` and `nids` are as for `read_many`.
    ///
    /// Costs a look at the metadata of each file. Does not wait for contents: the system reads them ahead, and of a URL
    /// they are fetched by the next call that reads.
    ///
    /// Raises OSError that names the file.
    ///
    /// >>> image.prefetch(["cat/1.txt"]) >= 0
    /// True
    #[pyo3(signature = (what=None, *, rows=None, nids=None))]
    fn prefetch<'py>(
        slf: &Bound<'py, Self>,
        what: Option<&Bound<'py, PyAny>>,
        rows: Option<&Bound<'py, PyAny>>,
        nids: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<u64> {
        let (py, image) = (slf.py(), slf.get());
        let opened = image.get()?;
        let files = Files::asked(slf, what, nids, rows)?;
        py.detach(|| files.prefetch(&opened))
            .map_err(|(nth, error)| image.exception(py, &error, &files.subject(slf, nth)))
    }

    #[pyo3(signature = (root, *, extensions=vec![], glob=None, depth=None, threads=None))]
    fn _index<'py>(
        slf: &Bound<'py, Self>,
        root: What,
        extensions: Vec<Name>,
        glob: Option<Name>,
        depth: Option<Number>,
        threads: Option<Number>,
    ) -> PyResult<Index> {
        let threads = self::threads(threads)?;
        let depth = depth.map(|depth| depth.named("group")).transpose()?;
        let depth = depth.map(|depth| usize::try_from(depth).unwrap_or(usize::MAX));
        let filter =
            IndexFilter::new(extensions.into_iter().map(|Name(ending)| ending).collect(), glob.map(|Name(glob)| glob))?;
        let depth = depth.map(LabelDepth);
        let asked = behind::question(&root, &filter, depth);
        let Image { origin, offset, .. } = slf.get();
        let columns = slf.get().work(slf.py(), Some(&root), |image| {
            if let Some(columns) = behind::find(image, origin, *offset, &asked) {
                return Ok(columns);
            }
            let dir = root.inode(image, FollowLast::Follow)?;
            scan(image, &root, &dir, &filter, depth, threads)
        })?;
        Ok(Index::bound(columns, slf))
    }

    /// Write the index that `_index` gives for these arguments behind the image, in the file at `path`; its length in
    /// bytes.
    #[pyo3(signature = (path, root, *, extensions=vec![], glob=None, depth=None, threads=None))]
    fn _store_index<'py>(
        slf: &Bound<'py, Self>,
        path: Name,
        root: What,
        extensions: Vec<Name>,
        glob: Option<Name>,
        depth: Option<usize>,
        threads: Option<Number>,
    ) -> PyResult<u64> {
        let threads = self::threads(threads)?;
        let filter =
            IndexFilter::new(extensions.into_iter().map(|Name(ending)| ending).collect(), glob.map(|Name(glob)| glob))?;
        let depth = depth.map(LabelDepth);
        let asked = behind::question(&root, &filter, depth);
        let columns = slf.get().work(slf.py(), Some(&root), |image| {
            let dir = root.inode(image, FollowLast::Follow)?;
            scan(image, &root, &dir, &filter, depth, threads)
        })?;
        let (image, Name(path)) = (slf.get().get()?, path);
        let file = PathBuf::from(OsString::from_vec(path.clone()));
        let stored = slf.py().detach(|| behind::store(&image, &file, &asked, &columns));
        stored.map_err(|error| io_error(slf.py(), &error, &path))
    }

    #[pyo3(signature = (members, target, *, policy, overwrite=false, threads=None, progress=None))]
    fn _extract<'py>(
        &self,
        py: Python<'py>,
        members: Vec<Name>,
        target: Name,
        policy: &str,
        overwrite: bool,
        threads: Option<Number>,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let members = members.into_iter().map(|Name(member)| member).collect();
        let existing = if overwrite { Existing::Replace } else { Existing::Keep };
        whole::extract_members(py, self, members, target.0, policy, existing, self::threads(threads)?, progress)
    }

    #[pyo3(signature = (*, threads=None, progress=None))]
    fn _check<'py>(
        &self,
        py: Python<'py>,
        threads: Option<Number>,
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

    #[pyo3(signature = (what, start=None, stop=None))]
    fn _explain<'py>(
        &self,
        py: Python<'py>,
        what: What,
        start: Option<Number>,
        stop: Option<Number>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (start, stop) = (number_or(start, "start", 0)?, stop.map(|stop| stop.named("stop")).transpose()?);
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

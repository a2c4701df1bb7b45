//! Methods of an open image, as Python calls them.

mod check;
mod contents;
mod explain;
mod extract;
mod metadata;
mod open;

use crate::arguments::buffer::WritableBuffer;
use crate::arguments::{FileRef, Name, Number, PathRef, number_or, one_file, ranges, threads};
use crate::batch::Batch;
use crate::batch::files::Files;
use crate::batch::iterate::IterMany;
use crate::batch::positions::Positions;
use crate::batch::read::{OnError, ReadMany};
use crate::errors;
use crate::handle::Image;
use crate::index::query::IndexQuery;
use crate::index::{Index, behind};
use crate::memory;
use kiln_read::FollowLast;
use kilnfs::sink::dir::Existing;
use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

fn follow_last(follow: bool) -> FollowLast {
    if follow { FollowLast::Follow } else { FollowLast::Keep }
}

#[pymethods]
impl Image {
    #[new]
    #[pyo3(signature = (
        source, name, *, offset=None, devices=vec![], objects=vec![], cache_bytes=None, verify_checksum=true, mmap=false,
        verify=false, root_hash=vec![], hash_tree=vec![]
    ), text_signature = "(source, name, *, offset=0, devices=..., objects=..., cache_bytes=6291456, \
        verify_checksum=True, mmap=False, verify=False, root_hash=..., hash_tree=...)")]
    fn py_new(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        name: Name,
        offset: Option<Number>,
        devices: Vec<Name>,
        objects: Vec<Name>,
        cache_bytes: Option<Number>,
        verify_checksum: bool,
        mmap: bool,
        verify: bool,
        root_hash: Vec<Bound<'_, PyBytes>>,
        hash_tree: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let (offset, cache_bytes) = (number_or(offset, "offset", 0)?, number_or(cache_bytes, "cache_bytes", 6 << 20)?);
        let root_hashes = open::root_hashes(&root_hash, &hash_tree)?;
        let options =
            open::OpenOptions { offset, devices, objects, cache_bytes, verify_checksum, mmap, verify, root_hashes };
        open::open(py, source, name, options)
    }

    /// Path or URL of the image, without a password; `"<memory>"` for one in memory.
    ///
    /// >>> image.name
    /// 'train.erofs'
    #[getter(name)]
    fn py_name<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        errors::text(py, &self.name)
    }

    /// True if the image was closed.
    ///
    /// >>> image.closed
    /// False
    #[getter]
    fn closed(&self) -> bool {
        self.get().is_err()
    }

    /// Closes the image. Its methods raise ValueError from now on. Memory that was returned stays
    /// valid, and calls in other threads finish as usual.
    ///
    /// >>> other = kilnfs.open("train.erofs")
    /// >>> other.close()
    /// >>> other.read("about.txt")
    /// Traceback (most recent call last):
    ///     ...
    /// ValueError: the image is closed
    #[pyo3(name = "close")]
    fn py_close(&self) {
        self.close();
    }

    /// UUID in the superblock, 16 bytes. kiln derives it from the contents of the image, so equal
    /// images have equal UUIDs.
    ///
    /// >>> len(image.uuid)
    /// 16
    #[getter]
    fn uuid<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.get()?.superblock().uuid))
    }

    /// Length in bytes of the file, object or memory that holds the image, without extra devices.
    /// It may be longer than the image itself.
    ///
    /// >>> image.source_length % image.info.block_size
    /// 0
    #[getter]
    fn source_length(&self) -> PyResult<u64> {
        Ok(self.get()?.source_len())
    }

    fn _superblock<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        metadata::superblock(py, &self.get()?)
    }

    /// Returns counters since the image was opened in this process: `reads` and `served_bytes`
    /// (reads by the caller), `fetches` and `fetched_bytes` (reads from the file, or requests to
    /// the URL), `decodes` and `decoded_bytes` (decompressed pclusters, and the bytes that they
    /// gave), and `cache_hits`. Costs nothing.
    ///
    /// >>> before = image.stats()["served_bytes"]
    /// >>> image.read("cat/1.txt")
    /// b'meow\n'
    /// >>> image.stats()["served_bytes"] - before
    /// 5
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        metadata::stats(py, &self.get()?)
    }

    fn _lookup(&self, py: Python<'_>, file: FileRef, follow: bool) -> PyResult<u64> {
        Ok(self.inode(py, &file, follow_last(follow))?.nid.0)
    }

    fn _stat<'py>(
        &self,
        py: Python<'py>,
        file: FileRef,
        follow: bool,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyDict>)> {
        let inode = self.inode(py, &file, follow_last(follow))?;
        metadata::stat(py, &self.get()?, &inode)
    }

    fn _listdir<'py>(&self, py: Python<'py>, file: FileRef) -> PyResult<Bound<'py, PyList>> {
        let entries = self.detached(py, Some(&file), |reader| {
            let dir = file.inode(reader, FollowLast::Follow)?;
            metadata::list(reader, &dir)
        })?;
        PyList::new(py, entries.iter().map(|(name, nid, kind)| (PyBytes::new(py, name), nid, kind)))
    }

    fn _readlink<'py>(&self, py: Python<'py>, file: FileRef) -> PyResult<Bound<'py, PyBytes>> {
        let target =
            self.detached(py, Some(&file), |reader| reader.read_link(&file.inode(reader, FollowLast::Keep)?))?;
        Ok(PyBytes::new(py, &target))
    }

    fn _listxattr<'py>(&self, py: Python<'py>, file: FileRef, follow: bool) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let last = follow_last(follow);
        let xattrs = self.detached(py, Some(&file), |reader| reader.list_xattrs(&file.inode(reader, last)?))?;
        Ok(xattrs.iter().map(|xattr| PyBytes::new(py, &xattr.name)).collect())
    }

    fn _getxattr<'py>(
        &self,
        py: Python<'py>,
        file: FileRef,
        name: Name,
        follow: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let last = follow_last(follow);
        let value = self.detached(py, Some(&file), |reader| reader.get_xattr(&file.inode(reader, last)?, &name.0))?;
        if let Some(value) = value {
            return Ok(PyBytes::new(py, &value));
        }
        let errno = rustix::io::Errno::NODATA.raw_os_error();
        let path = errors::text(py, file.path().unwrap_or(&self.name))?.unbind();
        let image = self.py_name(py)?.unbind();
        Err(PyOSError::new_err((errno, "No such extended attribute", path, py.None(), image)))
    }

    /// Returns the contents of a file from byte `start` to byte `stop` as `bytes`, by default all
    /// of it. The result is shorter if the file ends before `stop`.
    ///
    /// `path` is a path (`str`, `bytes`, `kilnfs.Path`), absolute or from the root. `nid=` takes an
    /// inode number instead. Symbolic links are followed.
    ///
    /// Costs a lookup of each name of the path, none with `nid=`; one read of the image, or none if
    /// the pclusters are in the cache; one copy. Compressed files are decompressed by whole
    /// pclusters. For many files, `read_many` is cheaper.
    ///
    /// Raises OSError: FileNotFoundError, NotADirectoryError, IsADirectoryError,
    /// `kilnfs.CorruptImageError`; ValueError if the image is closed or a number is out of range.
    ///
    /// >>> image.read("cat/1.txt"), image.read("cat/1.txt", 1, 3)
    /// (b'meow\n', b'eo')
    /// >>> image.read(nid=image.stat("cat/1.txt").st_ino)
    /// b'meow\n'
    #[pyo3(
        signature = (path=None, start=None, stop=None, *, nid=None),
        text_signature = "($self, path=None, start=0, stop=None, *, nid=None)"
    )]
    fn read<'py>(
        &self,
        py: Python<'py>,
        path: Option<PathRef>,
        start: Option<Number>,
        stop: Option<Number>,
        nid: Option<Number>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let file = one_file(path, nid)?;
        contents::read(py, self, &file, number_or(start, "start", 0)?..number_or(stop, "stop", u64::MAX)?)
    }

    /// Reads a file from byte `start` on into `buffer`, and returns the number of bytes read, which
    /// is less than the length of the buffer only at the end of the file. `buffer` is writable and
    /// contiguous, with elements of any type: a `bytearray`, an array, a NumPy array or the memory
    /// of a tensor.
    ///
    /// Costs the same as `read`, without memory of its own: uncompressed data is read, and
    /// compressed data is decompressed, straight into the buffer.
    ///
    /// Raises OSError as `read`; TypeError for a read-only buffer.
    ///
    /// >>> buffer = bytearray(3)
    /// >>> image.read_into("cat/1.txt", buffer), buffer
    /// (3, bytearray(b'meo'))
    #[pyo3(
        signature = (path=None, buffer=None, *, start=None, nid=None),
        text_signature = "($self, path=None, buffer=None, *, start=0, nid=None)"
    )]
    fn read_into(
        &self,
        py: Python<'_>,
        path: Option<PathRef>,
        buffer: Option<&Bound<'_, PyAny>>,
        start: Option<Number>,
        nid: Option<Number>,
    ) -> PyResult<usize> {
        let (file, start) = (one_file(path, nid)?, number_or(start, "start", 0)?);
        let buffer = buffer.ok_or_else(|| PyTypeError::new_err("read_into: a buffer is missing"))?;
        contents::read_into(py, self, &file, start, WritableBuffer::of(buffer)?.bytes_mut())
    }

    /// Returns the contents of a file from byte `start` to byte `stop` as a read-only `memoryview`
    /// of bytes, which stays valid when the image is closed.
    ///
    /// Zero-copy if the range is one uncompressed run and the image is mapped (`mmap=True`) or in
    /// memory. Otherwise it copies: compressed files, files with holes or several extents, files
    /// whose end is stored beside the inode (`kilnfs.pack(inline=False)` makes no such ends), and
    /// all files of an image that is not mapped.
    ///
    /// Raises OSError as `read`.
    ///
    /// >>> bytes(image.view("cat/1.txt", 1))
    /// b'eow\n'
    #[pyo3(
        signature = (path=None, start=None, stop=None, *, nid=None),
        text_signature = "($self, path=None, start=0, stop=None, *, nid=None)"
    )]
    fn view<'py>(
        &self,
        py: Python<'py>,
        path: Option<PathRef>,
        start: Option<Number>,
        stop: Option<Number>,
        nid: Option<Number>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let file = one_file(path, nid)?;
        contents::view(py, self, &file, number_or(start, "start", 0)?..number_or(stop, "stop", u64::MAX)?)
    }

    /// Returns the contents of many files as a list of read-only views, in the order of the
    /// arguments. `files`, `rows` and `nids` are as for `read_many`.
    ///
    /// Zero-copy under the conditions of `view`: mapped images whose files are one uncompressed run
    /// each. A file of 16 KiB then costs 0.4 µs; a copied one, whose end is stored beside its
    /// inode, 3 µs. Reads one file after the other on the calling thread: for compressed images,
    /// and images that are not mapped, `read_many` is faster.
    ///
    /// Raises OSError that names the file.
    ///
    /// >>> with kilnfs.open("train.erofs", mmap=True) as mapped:
    /// ...     [bytes(view) for view in mapped.views(["cat/1.txt", "dog/1.txt"])]
    /// [b'meow\n', b'woof\n']
    #[pyo3(signature = (files=None, *, rows=None, nids=None))]
    fn views<'py>(
        slf: &Bound<'py, Self>,
        files: Option<&Bound<'py, PyAny>>,
        rows: Option<&Bound<'py, PyAny>>,
        nids: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        contents::views(slf, &Files::new(slf, files, nids, rows)?)
    }

    /// Reads the contents of many files into one buffer, and returns them as a `kilnfs.Batch` in
    /// the order of the arguments.
    ///
    /// * `files`: a `kilnfs.Index`, or an iterable of paths: a list, a generator, a column of a
    ///   table. `nids` takes inode numbers instead. `rows`: only these files, in this order, with
    ///   repetitions; integers in a list or in a buffer of 32 or 64 bits.
    /// * `ranges`: a pair (first byte, end or None) for each file.
    /// * `out`: a writable buffer for the contents, at least as long as they are; by default a
    ///   buffer of the image's pool.
    /// * `threads`: the largest number of threads that read and decompress; by default the number
    ///   of processors, up to 4.
    /// * `on_error="return"`: errors of single files are stored in `Batch.errors`, and raised when
    ///   such a file is accessed; "raise" raises the first one.
    ///
    /// Costs a lookup of each path, none with an index. Files are read in stored order, neighbours
    /// by one request. Uncompressed data is read, and compressed data is decompressed, straight
    /// into the buffer, without a copy. Memory is the sum of the lengths.
    ///
    /// Raises OSError that names the file; MemoryError if the contents are longer than memory;
    /// IndexError for a row that does not exist.
    ///
    /// >>> index = image.index()
    /// >>> batch = image.read_many(index, rows=[3, 1])
    /// >>> [bytes(part) for part in batch], list(batch.offsets)
    /// ([b'woof\n', b'meow\n'], [0, 5, 10])
    /// >>> image.read_many(["cat/1.txt"], ranges=[(1, None)]).tobytes(0)
    /// b'eow\n'
    #[pyo3(signature = (files=None, *, rows=None, nids=None, ranges=None, out=None, threads=None, on_error="raise"))]
    fn read_many<'py>(
        slf: &Bound<'py, Self>,
        files: Option<&Bound<'py, PyAny>>,
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
            other => return Err(PyValueError::new_err(format!("on_error={other:?}: use 'raise' or 'return'"))),
        };
        let threads = self::threads(threads)?;
        let ranges = ranges.map(self::ranges).transpose()?;
        ReadMany { files: Files::new(slf, files, nids, rows)?, ranges, threads, on_error }.run(slf, out)
    }

    /// Iterates over files in stored order, with bounded memory. Yields pairs: the position of a
    /// file in the arguments, and its contents as a writable view. `files`, `rows`, `nids` and
    /// `threads` are as for `read_many`.
    ///
    /// Costs the same as `read_many`, for as many files at a time as have `window_bytes` bytes
    /// together, at least one. Views stay valid; each keeps the memory of its window. All files are
    /// looked up before the first one is yielded.
    ///
    /// Raises OSError that names the file; the iteration can continue with the next file then.
    ///
    /// >>> {place: bytes(contents) for place, contents in image.iter_many(["dog/1.txt", "cat/1.txt"])}[1]
    /// b'meow\n'
    #[pyo3(
        signature = (files=None, *, rows=None, nids=None, threads=None, window_bytes=None),
        text_signature = "($self, files=None, *, rows=None, nids=None, threads=None, window_bytes=67108864)"
    )]
    fn iter_many<'py>(
        slf: &Bound<'py, Self>,
        files: Option<&Bound<'py, PyAny>>,
        rows: Option<&Bound<'py, PyAny>>,
        nids: Option<&Bound<'py, PyAny>>,
        threads: Option<Number>,
        window_bytes: Option<Number>,
    ) -> PyResult<IterMany> {
        let window_bytes = number_or(window_bytes, "window_bytes", 64 << 20)?;
        IterMany::new(slf, Files::new(slf, files, nids, rows)?, self::threads(threads)?, window_bytes)
    }

    /// Returns the places at which files are stored, as `kilnfs._native.Positions`: a row for each
    /// file, in the order of the arguments. `files`, `rows` and `nids` are as for `read_many`.
    ///
    /// Costs a read of the metadata of each file. Reads no contents.
    ///
    /// Raises OSError that names the file.
    ///
    /// >>> places = image.positions(image.index())
    /// >>> len(places), list(places.devices)
    /// (4, [0, 0, 0, 0])
    #[pyo3(signature = (files=None, *, rows=None, nids=None))]
    fn positions<'py>(
        slf: &Bound<'py, Self>,
        files: Option<&Bound<'py, PyAny>>,
        rows: Option<&Bound<'py, PyAny>>,
        nids: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Positions> {
        Positions::of(slf, &Files::new(slf, files, nids, rows)?)
    }

    /// Returns the positions of files in the arguments, sorted by the order in which their contents
    /// are stored: a read-only view of unsigned 64-bit integers ('Q'). `files`, `rows` and `nids`
    /// are as for `read_many`, costs and errors as for `positions`.
    ///
    /// >>> sorted(image.physical_order(image.index()))
    /// [0, 1, 2, 3]
    #[pyo3(signature = (files=None, *, rows=None, nids=None))]
    fn physical_order<'py>(
        slf: &Bound<'py, Self>,
        files: Option<&Bound<'py, PyAny>>,
        rows: Option<&Bound<'py, PyAny>>,
        nids: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let order = Positions::of(slf, &Files::new(slf, files, nids, rows)?)?.order();
        memory::column_view(slf.py(), memory::column(order), "Q")
    }

    /// Announces that these files will be read soon, and returns the number of bytes that were
    /// announced to the storage: 0 if the files are in memory. `files`, `rows` and `nids` are as
    /// for `read_many`.
    ///
    /// Costs a read of the metadata of each file. Does not wait for contents: the system reads them
    /// ahead, and those of a URL are fetched by the next call that reads.
    ///
    /// Raises OSError that names the file.
    ///
    /// >>> image.prefetch(["cat/1.txt"]) >= 0
    /// True
    #[pyo3(signature = (files=None, *, rows=None, nids=None))]
    fn prefetch<'py>(
        slf: &Bound<'py, Self>,
        files: Option<&Bound<'py, PyAny>>,
        rows: Option<&Bound<'py, PyAny>>,
        nids: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<u64> {
        Files::new(slf, files, nids, rows)?.prefetch(slf)
    }

    #[pyo3(signature = (root, *, extensions=vec![], glob=None, depth=None, threads=None))]
    fn _index<'py>(
        slf: &Bound<'py, Self>,
        root: FileRef,
        extensions: Vec<Name>,
        glob: Option<Name>,
        depth: Option<Number>,
        threads: Option<Number>,
    ) -> PyResult<Index> {
        let depth = depth.map(|depth| depth.named("group")).transpose()?;
        let query = IndexQuery::new(root, extensions, glob, depth, self::threads(threads)?)?;
        let handle = slf.get();
        let find = |reader: &_| query.find_or_scan(reader, &handle.origin, handle.offset);
        Ok(Index::bound(handle.detached(slf.py(), Some(&query.root), find)?, slf))
    }

    /// Writes the index that `_index` returns for these arguments behind the image, in the file at
    /// `path`. Returns its length in bytes.
    #[pyo3(signature = (path, root, *, extensions=vec![], glob=None, depth=None, threads=None))]
    fn _store_index<'py>(
        slf: &Bound<'py, Self>,
        path: Name,
        root: FileRef,
        extensions: Vec<Name>,
        glob: Option<Name>,
        depth: Option<Number>,
        threads: Option<Number>,
    ) -> PyResult<u64> {
        let depth = depth.map(|depth| depth.named("group")).transpose()?;
        let query = IndexQuery::new(root, extensions, glob, depth, self::threads(threads)?)?;
        let (py, handle) = (slf.py(), slf.get());
        let columns = handle.detached(py, Some(&query.root), |reader| query.scan(reader))?;
        let (reader, file) = (handle.get()?, path.to_path());
        let stored = py.detach(|| behind::store(&reader, &file, &query.key(), &columns));
        stored.map_err(|error| errors::of_index_file(py, &error, &path.0))
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
        let existing = if overwrite { Existing::Replace } else { Existing::Keep };
        let options = extract::options(policy, existing, self::threads(threads)?)?;
        extract::extract_members(py, self, members, target, options, progress)
    }

    #[pyo3(signature = (*, threads=None, progress=None))]
    fn _check<'py>(
        &self,
        py: Python<'py>,
        threads: Option<Number>,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        check::check(py, self, self::threads(threads)?, progress)
    }

    fn _extents<'py>(&self, py: Python<'py>, file: FileRef) -> PyResult<Bound<'py, PyList>> {
        let extents = self.detached(py, Some(&file), |reader| {
            reader.extents(&file.inode(reader, FollowLast::Follow)?).collect::<Result<Vec<_>, _>>()
        })?;
        explain::extents(py, &extents)
    }

    #[pyo3(signature = (file, start=None, stop=None))]
    fn _explain<'py>(
        &self,
        py: Python<'py>,
        file: FileRef,
        start: Option<Number>,
        stop: Option<Number>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (start, stop) = (number_or(start, "start", 0)?, stop.map(|stop| stop.named("stop")).transpose()?);
        let cost = self.detached(py, Some(&file), |reader| {
            let inode = file.inode(reader, FollowLast::Follow)?;
            reader.explain(&inode, start..stop.unwrap_or(inode.size()))?.total()
        })?;
        explain::cost(py, &cost)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let name = errors::text(slf.py(), &slf.get().name)?.repr()?;
        let class = slf.get_type().name()?;
        Ok(format!("<{class} {name}{}>", if slf.get().closed() { ", closed" } else { "" }))
    }
}

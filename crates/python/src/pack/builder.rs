//! Native part of `Builder`.

use kilnfs::output::Spool;
use kilnfs::read::{FileSource, ReadAt};
use kilnfs::source::merge::{Draft, DraftSource};
use kilnfs::source::{ScanOptions, SourceError, SourceOptions, open_bytes};
use kilnfs::tree::{Metadata, Xattr};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::errors::{of_io, of_source, to_py};
use super::interrupt::{self, Meter};
use super::options::Options;
use super::result;
use crate::arguments::path;

/// Name of the tree in errors without a path.
const NAME: &str = "Builder";
/// Length in bytes of one read of an archive.
const PIECE_LEN: usize = 1 << 20;
/// Number of files of an iterable between two checks for signals.
const FILES_PER_CHECK: u64 = 256;

/// Tree that grows call by call.
///
/// Only threads that have released the interpreter take the lock, and none takes the interpreter
/// while it has the lock.
#[pyclass(frozen, module = "kilnfs._native")]
pub(super) struct Builder {
    state: Mutex<State>,
    options: SourceOptions,
}

enum State {
    Open(Box<Draft>),
    /// A thread works on the draft.
    Busy,
    Written,
    Closed,
}

#[pymethods]
impl Builder {
    #[new]
    #[pyo3(signature = (spool_dir=None))]
    fn new(spool_dir: Option<Vec<u8>>) -> Self {
        let options = SourceOptions { spool_dir: spool_dir.map(path), ..SourceOptions::default() };
        Self { state: Mutex::new(State::Open(Box::new(Draft::new(NAME, &options)))), options }
    }

    /// Drops the tree.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let mut state = self.lock();
            if matches!(*state, State::Open(_)) {
                *state = State::Closed;
            }
        });
    }

    fn add_bytes(&self, py: Python<'_>, at: &[u8], data: &[u8], meta: Meta) -> PyResult<()> {
        self.with(py, |draft| draft.add_bytes(at, meta.into(), data))
    }

    /// Adds files, pairs of path and contents, and returns their number.
    fn add_many(&self, py: Python<'_>, files: &Bound<'_, PyAny>, meta: Meta) -> PyResult<u64> {
        let meta = Metadata::from(meta);
        let mut count = 0;
        for file in files.try_iter()? {
            let (at, data): (Bound<'_, PyBytes>, Bound<'_, PyAny>) = file?.extract()?;
            let data = data.cast_into::<PyBytes>().map_err(|_| PyTypeError::new_err("contents are bytes"))?;
            let (at, data) = (at.as_bytes(), data.as_bytes());
            self.with(py, |draft| draft.add_bytes(at, meta, data))?;
            count += 1;
            if count % FILES_PER_CHECK == 0 {
                py.check_signals()?;
            }
        }
        Ok(count)
    }

    fn add_file(&self, py: Python<'_>, host: Vec<u8>, at: &[u8]) -> PyResult<()> {
        let host = path(host);
        self.with(py, |draft| draft.add_file(at, &host))
    }

    /// Merges a source over the tree at `at`.
    fn add_tree(&self, py: Python<'_>, source: Vec<u8>, at: &[u8], concatenated: bool) -> PyResult<()> {
        let (source, options) = (path(source), &self.options);
        let open = |stop: &Arc<AtomicBool>| {
            let options = SourceOptions { concatenated, stop: Some(Arc::clone(stop)), ..options.clone() };
            kilnfs::source::open(&source, &options)
        };
        self.scan(py, at, open)
    }

    /// Merges an archive, read by `read(size)` of a file object, over the tree at `at`.
    fn add_archive(
        &self,
        py: Python<'_>,
        file: &Bound<'_, PyAny>,
        at: &[u8],
        name: Vec<u8>,
        concatenated: bool,
    ) -> PyResult<()> {
        self.with(py, |_| Ok(()))?;
        let (name, options) = (path(name), SourceOptions { concatenated, ..self.options.clone() });
        let dir = options.spool_dir.clone().unwrap_or_else(Spool::default_dir);
        let spool = Spool::create(&dir).map_err(|error| to_py(py, error.into(), None))?.into_file();
        self.spool(py, file, &spool, &dir)?;
        self.scan(py, at, |_| {
            let unreadable = |source| kilnfs::source::Unreadable { path: name.clone(), source };
            let bytes: Arc<dyn ReadAt> = Arc::new(FileSource::from_file(spool).map_err(unreadable)?);
            open_bytes(bytes, &name, &options)
        })
    }

    fn mkdir(&self, py: Python<'_>, at: &[u8], meta: Meta) -> PyResult<()> {
        self.with(py, |draft| draft.add_dir(at, meta.into()))
    }

    fn symlink(&self, py: Python<'_>, target: &[u8], at: &[u8], meta: Meta) -> PyResult<()> {
        self.with(py, |draft| draft.add_symlink(at, meta.into(), target))
    }

    fn link(&self, py: Python<'_>, existing: &[u8], at: &[u8]) -> PyResult<()> {
        self.with(py, |draft| draft.link(at, existing))
    }

    fn setxattr(&self, py: Python<'_>, at: &[u8], name: &[u8], value: &[u8]) -> PyResult<()> {
        self.with(py, |draft| draft.set_xattr(at, Xattr { name: name.into(), value: value.into() }))
    }

    /// Builds the image, and drops the tree. If an error occurs before the tree is read, the tree
    /// stays.
    fn write<'py>(
        &self,
        py: Python<'py>,
        image: Vec<u8>,
        options: Options,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let image = path(image);
        let (stop, meter) = (Arc::new(AtomicBool::new(false)), Arc::new(Meter::default()));
        let plan = options.plan(None, Arc::clone(&stop), &meter)?;
        let source = DraftSource::from(*self.take(py)?);
        let packed =
            interrupt::run(py, &stop, &mut meter.reporter(progress), || plan.packer.pack_source(&source, &image));
        let is_written = matches!(packed, Ok(Ok(_)));
        py.detach(|| {
            let left = source.into_draft().map(|draft| State::Open(Box::new(draft)));
            *self.lock() = left.unwrap_or(if is_written { State::Written } else { State::Closed });
        });
        let packed = packed?.map_err(|error| to_py(py, error, Some(&image)))?;
        result::packed(py, &packed, plan.order)
    }
}

impl Builder {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the draft, with the interpreter released.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&mut Draft) -> Result<T, SourceError> + Send,
    ) -> PyResult<T> {
        let changed = py.detach(|| match &mut *self.lock() {
            State::Open(draft) => Ok(change(draft)),
            other => Err(refusal(other)),
        });
        changed.map_err(PyValueError::new_err)?.map_err(|error| of_source(py, error))
    }

    /// Takes the draft for longer work.
    fn take(&self, py: Python<'_>) -> PyResult<Box<Draft>> {
        let taken = py.detach(|| {
            let mut state = self.lock();
            match std::mem::replace(&mut *state, State::Busy) {
                State::Open(draft) => Ok(draft),
                other => {
                    let reason = refusal(&other);
                    *state = other;
                    Err(reason)
                }
            }
        });
        taken.map_err(PyValueError::new_err)
    }

    /// Merges a source, which `open` opens, over the tree at `at`. Ctrl-C ends it.
    fn scan(
        &self,
        py: Python<'_>,
        at: &[u8],
        open: impl FnOnce(&Arc<AtomicBool>) -> Result<Box<dyn kilnfs::source::Source>, SourceError> + Send,
    ) -> PyResult<()> {
        let mut draft = self.take(py)?;
        let stop = Arc::new(AtomicBool::new(false));
        let scanned = interrupt::run(py, &stop, &mut |_, _| Ok(()), || {
            draft.add_source(&*open(&stop)?, at, &ScanOptions::new(&stop))
        });
        py.detach(|| *self.lock() = State::Open(draft));
        scanned?.map(drop).map_err(|error| of_source(py, error))
    }

    /// Copies `file`, read by `file.read(size)`, into `spool`, which is in `dir`.
    fn spool(&self, py: Python<'_>, file: &Bound<'_, PyAny>, mut spool: &File, dir: &Path) -> PyResult<()> {
        let read = file.getattr("read")?;
        loop {
            let piece = read.call1((PIECE_LEN,))?;
            let piece = piece.cast_into::<PyBytes>().map_err(|_| {
                PyTypeError::new_err("read() of the archive did not return bytes: open it in binary and blocking mode")
            })?;
            let bytes = piece.as_bytes();
            if bytes.is_empty() {
                return Ok(());
            }
            let written: io::Result<()> = py.detach(|| spool.write_all(bytes));
            written.map_err(|error| of_io(py, &error, dir.as_os_str().as_encoded_bytes()))?;
            py.check_signals()?;
        }
    }
}

/// Returns the reason why the draft is not available.
fn refusal(state: &State) -> &'static str {
    match state {
        State::Open(_) => "the builder is open",
        State::Busy => "another thread is using the builder",
        State::Written => "the builder has written its image: use a new builder",
        State::Closed => "the builder is closed",
    }
}

/// Metadata: permissions, uid, gid, mtime in nanoseconds.
#[derive(Clone, Copy, FromPyObject)]
struct Meta(u16, u32, u32, i128);

impl From<Meta> for Metadata {
    fn from(Meta(mode, uid, gid, mtime_ns): Meta) -> Self {
        const NS: i128 = 1_000_000_000;
        let secs = mtime_ns.div_euclid(NS).clamp(i64::MIN.into(), i64::MAX.into());
        Metadata {
            permissions: mode & 0o7777,
            uid,
            gid,
            mtime: secs as i64,
            mtime_nsec: mtime_ns.rem_euclid(NS) as u32,
        }
    }
}

//! Memory that Python sees as buffers.
//!
//! A `memoryview` keeps an [`Exported`] alive, so the view stays valid after the image is closed,
//! and after the cache has dropped the bytes. Elements are exported as bytes, and cast by Python.
#![allow(unsafe_code)]

use crate::errors;
use bytes::Bytes;
use kiln_parallel::locks::lock;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use std::alloc::Layout;
use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

/// Largest number of buffers that wait to be used again.
const SPARE_MAX: usize = 4;
/// Largest total length in bytes of these buffers.
const SPARE_LEN_MAX: usize = 64 << 20;
/// Alignment to cache lines, so that no two arrays share one.
const ALIGN: usize = 64;

/// Alignment up to which zeroed memory comes from `calloc`. Above it, Rust's allocator takes other
/// memory and writes zeros to all of it.
const CALLOC_ALIGN: usize = 8;

/// Initialised bytes, which Python may write to while no method of this crate has a reference to
/// them.
pub(crate) struct Block {
    /// Start of the allocation, up to a cache line before `start`.
    base: NonNull<u8>,
    start: NonNull<u8>,
    capacity: usize,
}

// SAFETY: the memory belongs to the block alone.
unsafe impl Send for Block {}
// SAFETY: shared references give no access to the bytes.
unsafe impl Sync for Block {}

impl Block {
    /// Allocates zeroed memory, which the system provides page by page for large blocks. Returns
    /// `None` if memory does not suffice.
    fn zeroed(capacity: usize) -> Option<Block> {
        let layout = Self::layout(capacity)?;
        // SAFETY: the layout has a length above 0.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        // SAFETY: the allocation is ALIGN bytes longer than the block.
        let start = unsafe { base.add(base.align_offset(ALIGN)) };
        Some(Block { base, start, capacity })
    }

    fn layout(capacity: usize) -> Option<Layout> {
        Layout::from_size_align(capacity.checked_add(ALIGN)?, CALLOC_ALIGN).ok()
    }

    /// Returns the first `len` bytes.
    pub(crate) fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        let len = len.min(self.capacity);
        // SAFETY: the bytes are initialised, and `self` is borrowed mutably: nothing else refers to
        // them.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), len) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(layout) = Self::layout(self.capacity) {
            // SAFETY: allocated with this layout.
            unsafe { std::alloc::dealloc(self.base.as_ptr(), layout) };
        }
    }
}

/// Pool of blocks for reuse, so that pages are not mapped and zeroed again for each batch.
#[derive(Default)]
pub(crate) struct Pool {
    spare: Mutex<Vec<Block>>,
}

impl Pool {
    /// Takes a block of at least `len` bytes, whose contents are unspecified.
    ///
    /// # Errors
    /// `MemoryError` if the machine has less memory.
    pub(crate) fn take(self: &Arc<Pool>, len: usize) -> PyResult<PooledBlock> {
        let block = {
            let mut spare = lock(&self.spare);
            let fits = |block: &Block| block.capacity >= len && block.capacity / 4 <= len.max(4096);
            spare.iter().position(fits).map(|at| spare.swap_remove(at))
        };
        let available = physical_memory();
        let new = || match len as u64 > available {
            true => None,
            false => Block::zeroed(len.checked_next_multiple_of(4096)?),
        };
        let block = block.or_else(new).ok_or_else(|| errors::memory("contents", len as u64))?;
        Ok(PooledBlock { block: Some(block), pool: self.clone() })
    }

    fn give_back(&self, block: Block) {
        let mut spare = lock(&self.spare);
        let len: usize = spare.iter().map(|block| block.capacity).sum();
        if spare.len() < SPARE_MAX && len.saturating_add(block.capacity) <= SPARE_LEN_MAX {
            spare.push(block);
        }
    }
}

/// Returns the length in bytes of this machine's memory.
pub(crate) fn physical_memory() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit))
}

/// Block that returns to its pool when it is dropped.
pub(crate) struct PooledBlock {
    block: Option<Block>,
    pool: Arc<Pool>,
}

impl PooledBlock {
    /// Returns the first `len` bytes.
    pub(crate) fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        self.block.as_mut().map_or(Default::default(), |block| block.bytes_mut(len))
    }
}

impl Drop for PooledBlock {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.pool.give_back(block);
        }
    }
}

/// Memory of a view.
enum Owner {
    /// Bytes that do not change.
    Fixed(Bytes),
    /// The first bytes of a block, and their number: Python may write to them.
    Writable(PooledBlock, usize),
}

/// Owner of the memory of a buffer.
#[pyclass(frozen, module = "kilnfs._native")]
pub(crate) struct Exported(Owner);

#[pymethods]
impl Exported {
    /// Fills in a view of all bytes.
    ///
    /// # Safety
    /// Python gives a valid `view`.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view"));
        }
        let (start, len, readonly) = match &slf.get().0 {
            Owner::Fixed(bytes) => (bytes.as_ptr().cast_mut(), bytes.len(), 1),
            Owner::Writable(block, len) => match &block.block {
                Some(block) => (block.start.as_ptr(), *len, 0),
                None => return Err(PyBufferError::new_err("the memory was returned to its pool")),
            },
        };
        // SAFETY: `view` is valid; the memory lives as long as `slf`, to which the view takes a
        // reference; only Python writes to it, as no method returns references to exported bytes.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start.cast(), len as ffi::Py_ssize_t, readonly, flags)
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

fn view<'py>(py: Python<'py>, owner: Owner) -> PyResult<Bound<'py, PyAny>> {
    let exported = Bound::new(py, Exported(owner))?;
    Ok(PyMemoryView::from(&exported.into_any())?.into_any())
}

/// Returns a read-only view of bytes.
pub(crate) fn fixed_view<'py>(py: Python<'py>, bytes: Bytes) -> PyResult<Bound<'py, PyAny>> {
    view(py, Owner::Fixed(bytes))
}

/// Returns a read-only view of elements in a format of the `struct` module.
pub(crate) fn column_view<'py>(py: Python<'py>, bytes: Bytes, format: &str) -> PyResult<Bound<'py, PyAny>> {
    fixed_view(py, bytes)?.call_method1("cast", (format,))
}

/// Returns a writable view of the first `len` bytes of a block.
pub(crate) fn writable_view<'py>(py: Python<'py>, block: PooledBlock, len: usize) -> PyResult<Bound<'py, PyAny>> {
    view(py, Owner::Writable(block, len))
}

/// Returns integers as bytes that own them.
pub(crate) fn column<T: zerocopy::IntoBytes + zerocopy::Immutable + Send + 'static>(numbers: Vec<T>) -> Bytes {
    struct Numbers<T>(Vec<T>);
    impl<T: zerocopy::IntoBytes + zerocopy::Immutable> AsRef<[u8]> for Numbers<T> {
        fn as_ref(&self) -> &[u8] {
            zerocopy::IntoBytes::as_bytes(self.0.as_slice())
        }
    }
    Bytes::from_owner(Numbers(numbers))
}

//! Memory that Python sees as buffers.
//!
//! An [`Exported`] is what a `memoryview` keeps alive: the view stays valid after the image is closed, and after the cache has dropped
//! the bytes. Elements are exported as bytes, and cast by Python.
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

/// Buffers that wait to be used again, and their bytes in all, at most.
const SPARE_MAX: usize = 4;
const SPARE_LEN_MAX: usize = 64 << 20;
/// A cache line: no two arrays share one.
const ALIGN: usize = 64;

/// An alignment for which zeros come from `calloc`; above it Rust's allocator takes other memory and writes zeros to all of it.
const CALLOC_ALIGN: usize = 8;

/// Bytes that have been initialised once, and that Python may write to while no method of this crate has a reference to them.
pub(crate) struct Block {
    /// Start of the allocation: `start` lies up to a cache line behind it.
    base: NonNull<u8>,
    start: NonNull<u8>,
    capacity: usize,
}

// SAFETY: the memory belongs to the block alone.
unsafe impl Send for Block {}
// SAFETY: shared references give no access to the bytes.
unsafe impl Sync for Block {}

impl Block {
    /// Zeros, which of large blocks the system gives page by page as they are written; nothing where memory does not suffice.
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

    /// The first `len` bytes, for as long as the block is not shared.
    pub(crate) fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        let len = len.min(self.capacity);
        // SAFETY: the bytes are initialised, and `self` is borrowed mutably: nothing else refers to them.
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

/// Blocks that are used again: pages that the system has given once need not be zeroed and mapped again for each batch.
#[derive(Default)]
pub(crate) struct Pool {
    spare: Mutex<Vec<Block>>,
}

impl Pool {
    /// A block of at least `len` bytes, whose contents are unspecified.
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

/// Bytes of memory that this machine has.
pub(crate) fn physical_memory() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit))
}

/// A block that goes back to its pool.
pub(crate) struct PooledBlock {
    block: Option<Block>,
    pool: Arc<Pool>,
}

impl PooledBlock {
    /// The first `len` bytes.
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

/// What a view refers to.
enum Owner {
    /// Bytes that nobody changes.
    Fixed(Bytes),
    /// Bytes that Python may write: the first ones of a block, so many.
    Writable(PooledBlock, usize),
}

/// The owner of a buffer.
#[pyclass(frozen, module = "kilnfs._native")]
pub(crate) struct Exported(Owner);

#[pymethods]
impl Exported {
    /// Fill in a view of all bytes.
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
                None => return Err(PyBufferError::new_err("the memory was given back")),
            },
        };
        // SAFETY: `view` is valid; the memory lives for as long as `slf`, of which the view takes a reference; who writes to it is
        // Python alone, as no method hands out references to exported bytes.
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

/// A read-only view of bytes, which stay for as long as the view.
pub(crate) fn fixed_view<'py>(py: Python<'py>, bytes: Bytes) -> PyResult<Bound<'py, PyAny>> {
    view(py, Owner::Fixed(bytes))
}

/// A read-only view of elements of the `struct` module's `format`.
pub(crate) fn column_view<'py>(py: Python<'py>, bytes: Bytes, format: &str) -> PyResult<Bound<'py, PyAny>> {
    fixed_view(py, bytes)?.call_method1("cast", (format,))
}

/// A view of the first `len` bytes of a block that Python may write to.
pub(crate) fn writable_view<'py>(py: Python<'py>, block: PooledBlock, len: usize) -> PyResult<Bound<'py, PyAny>> {
    view(py, Owner::Writable(block, len))
}

/// Numbers as bytes that own them.
pub(crate) fn column<T: zerocopy::IntoBytes + zerocopy::Immutable + Send + 'static>(numbers: Vec<T>) -> Bytes {
    struct Numbers<T>(Vec<T>);
    impl<T: zerocopy::IntoBytes + zerocopy::Immutable> AsRef<[u8]> for Numbers<T> {
        fn as_ref(&self) -> &[u8] {
            zerocopy::IntoBytes::as_bytes(self.0.as_slice())
        }
    }
    Bytes::from_owner(Numbers(numbers))
}

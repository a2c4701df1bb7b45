//! An allocator that keeps long blocks that were freed, for the next ones of about their length.
//!
//! Builds get and free blocks of some MiB all the time: segments of text, and what they are compressed to. musl and
//! mimalloc return such blocks to the system, and each page that comes back costs a fault. glibc keeps them.
//!
//! The longest blocks have mappings of their own, as with glibc: buffers of which little is used. mimalloc writes zeros
//! over all of a block that it uses again for zeros, and so touches its pages.
#![allow(unsafe_code)] // an allocator is unsafe to implement

use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap_anonymous, mremap, munmap};
use std::alloc::{GlobalAlloc, Layout};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Logarithm of the length in bytes up to which blocks are short, and of the longest that are kept.
const BITS: std::ops::Range<u32> = 16..24;
/// Logarithm of the number of lengths between a power of two and the next one: a quarter of a block is unused at most,
/// and its pages are never touched.
const STEP_BITS: u32 = 2;
const CLASSES: usize = ((BITS.end - BITS.start) << STEP_BITS) as usize;
/// Alignment in bytes that all blocks have. Blocks with more are not kept.
const ALIGN: usize = 16;

/// An allocator over another one. `dealloc` of the other one must accept any block of its own, whatever layout is
/// named.
pub(super) struct KeptBlocks<A> {
    inner: A,
    free: Mutex<Free>,
}

/// Blocks that are free, of each class in a list through their first words.
struct Free {
    first: [*mut u8; CLASSES],
    /// Bytes of all of them.
    len: usize,
    /// Bytes that are kept at most.
    most: usize,
}

// SAFETY: the blocks belong to the lists alone.
unsafe impl Send for Free {}

/// A class of lengths.
#[derive(Clone, Copy)]
struct Class {
    idx: usize,
    /// Length in bytes of its blocks.
    len: usize,
}

impl Class {
    /// Returns the class of a block, if it is one that is kept.
    fn of(len: usize, align: usize) -> Option<Self> {
        if len <= 1 << BITS.start || len > 1 << BITS.end || align > ALIGN {
            return None;
        }
        // Lengths up to a power of two belong to it.
        let bits = (len - 1).ilog2();
        let step_bits = bits - STEP_BITS;
        let steps = (len - 1) >> step_bits;
        let idx = (((bits - BITS.start) << STEP_BITS) as usize) + steps - (1 << STEP_BITS);
        Some(Self { idx, len: (steps + 1) << step_bits })
    }

    fn layout(self) -> Layout {
        // SAFETY: the alignment is a power of two, and the length is far below the limit.
        unsafe { Layout::from_size_align_unchecked(self.len, ALIGN) }
    }
}

/// Returns true for blocks that are mapped: those that are longer than those of all classes.
fn is_mapped(len: usize, align: usize) -> bool {
    len > 1 << BITS.end && align <= ALIGN
}

/// Returns a mapping of zeros, or null.
fn map(len: usize) -> *mut u8 {
    let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: the system chooses a place where nothing is.
    unsafe { mmap_anonymous(ptr::null_mut(), len, access, kind) }.map_or(ptr::null_mut(), <*mut _>::cast)
}

impl<A> KeptBlocks<A> {
    /// Returns an allocator over `inner` that keeps `most` bytes of free blocks at most.
    pub(super) const fn new(inner: A, most: usize) -> Self {
        Self { inner, free: Mutex::new(Free { first: [ptr::null_mut(); CLASSES], len: 0, most }) }
    }

    /// Keeps nothing from now on.
    pub(super) fn keep_nothing(&self) {
        self.free().most = 0;
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Free {
    /// Takes a block out of its list.
    fn take(&mut self, class: Class) -> Option<*mut u8> {
        let block = self.first[class.idx];
        if block.is_null() {
            return None;
        }
        // SAFETY: a block in a list begins with the address of the next one, and is aligned for it.
        self.first[class.idx] = unsafe { block.cast::<*mut u8>().read() };
        self.len -= class.len;
        Some(block)
    }

    /// Puts a block into its list; false if there is no room for it.
    fn put(&mut self, block: *mut u8, class: Class) -> bool {
        if self.len + class.len > self.most {
            return false;
        }
        // SAFETY: the block is free, and longer than an address.
        unsafe { block.cast::<*mut u8>().write(self.first[class.idx]) };
        self.first[class.idx] = block;
        self.len += class.len;
        true
    }
}

// SAFETY: a block is either in a list or with the program, since a list gives a block away when it is taken. Blocks of
// a class have its whole length, and all others are those of the other allocator.
unsafe impl<A: GlobalAlloc> GlobalAlloc for KeptBlocks<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_mapped(layout.size(), layout.align()) {
            return map(layout.size());
        }
        let Some(class) = Class::of(layout.size(), layout.align()) else {
            // SAFETY: the caller's promises.
            return unsafe { self.inner.alloc(layout) };
        };
        let kept = self.free().take(class);
        // SAFETY: the length is not 0.
        kept.unwrap_or_else(|| unsafe { self.inner.alloc(class.layout()) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_mapped(layout.size(), layout.align()) {
            return map(layout.size());
        }
        let Some(class) = Class::of(layout.size(), layout.align()) else {
            // SAFETY: the caller's promises.
            return unsafe { self.inner.alloc_zeroed(layout) };
        };
        let Some(block) = self.free().take(class) else {
            // SAFETY: the length is not 0.
            return unsafe { self.inner.alloc_zeroed(class.layout()) };
        };
        // SAFETY: the block is as long as its class, which the layout is not longer than.
        unsafe { block.write_bytes(0, layout.size()) };
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let class = |len| Class::of(len, layout.align());
        let (old, new) = (class(layout.size()), class(new_size));
        if old.map(|class| class.idx) == new.map(|class| class.idx) && old.is_some() {
            return block;
        }
        let was_mapped = is_mapped(layout.size(), layout.align());
        let new_len = match new {
            // The other allocator would get new pages for it.
            Some(new) => new.len,
            None if is_mapped(new_size, layout.align()) && was_mapped => {
                // SAFETY: the block is a whole mapping, which nothing else uses.
                let moved = unsafe { mremap(block.cast(), layout.size(), new_size, MremapFlags::MAYMOVE) };
                return moved.map_or(ptr::null_mut(), <*mut _>::cast);
            }
            None if is_mapped(new_size, layout.align()) || was_mapped => new_size,
            // SAFETY: the block has this layout; the length is the caller's.
            None => return unsafe { self.inner.realloc(block, old.map_or(layout, Class::layout), new_size) },
        };
        // SAFETY: the layout has the alignment of the old one, and a length that is not 0.
        let moved = unsafe { self.alloc(Layout::from_size_align_unchecked(new_len, layout.align())) };
        if !moved.is_null() {
            // SAFETY: both blocks are as long as what is copied, and the old one is not used any more.
            unsafe {
                moved.copy_from_nonoverlapping(block, layout.size().min(new_size));
                self.dealloc(block, layout);
            }
        }
        moved
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_mapped(layout.size(), layout.align()) {
            // SAFETY: the block is a whole mapping, and is not used any more.
            let unmapped = unsafe { munmap(block.cast(), layout.size()) };
            debug_assert!(unmapped.is_ok());
            return;
        }
        let class = Class::of(layout.size(), layout.align());
        if class.is_some_and(|class| self.free().put(block, class)) {
            return;
        }
        // SAFETY: the block has this layout.
        unsafe { self.inner.dealloc(block, class.map_or(layout, Class::layout)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::System;

    const MIB: usize = 1 << 20;

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, 1).unwrap()
    }

    #[test]
    fn classes_hold_their_lengths_and_are_a_quarter_longer_at_most() {
        assert!(Class::of(1 << BITS.start, 1).is_none() && Class::of((1 << BITS.end) + 1, 1).is_none());
        assert!(Class::of(MIB, 4096).is_none(), "no such alignment");
        let mut before = 0;
        for len in ((1 << BITS.start) + 1..=1 << BITS.end).step_by(4099).chain([1 << BITS.end]) {
            let class = Class::of(len, 1).unwrap();
            assert!((len..=len + len / 4).contains(&class.len), "{len}");
            assert!(class.idx < CLASSES && (before..=before + 1).contains(&class.idx), "{len}");
            before = class.idx;
        }
        assert_eq!(before, CLASSES - 1);
    }

    #[test]
    fn a_freed_block_is_the_next_one_of_its_class_and_zeros_are_zeros() {
        let blocks = KeptBlocks::new(System, 4 * MIB);
        // SAFETY: each block is used and given back with the layout with which it was made, once.
        unsafe {
            let (first, second) = (blocks.alloc(layout(2 * MIB)), blocks.alloc(layout(2 * MIB)));
            first.write_bytes(7, 2 * MIB);
            blocks.dealloc(first, layout(2 * MIB));
            let again = blocks.alloc_zeroed(layout(2 * MIB - 5));
            assert_eq!(again, first);
            assert!(std::slice::from_raw_parts(again, 2 * MIB - 5).iter().all(|&byte| byte == 0));
            let longer = blocks.alloc(layout(3 * MIB));
            assert_ne!(longer, second);
            blocks.dealloc(again, layout(2 * MIB - 5));
            blocks.dealloc(second, layout(2 * MIB));
            assert_eq!(blocks.free().len, 4 * MIB);
            // There is no room for this one.
            blocks.dealloc(longer, layout(3 * MIB));
            assert_eq!(blocks.free().len, 4 * MIB);
            assert_eq!(blocks.alloc(layout(2 * MIB)), second);
        }
    }

    #[test]
    fn the_longest_blocks_are_zeros_again_after_they_were_used() {
        let blocks = KeptBlocks::new(System, 64 * MIB);
        // SAFETY: each block is used and given back with the layout with which it was made, once.
        unsafe {
            for _ in 0..2 {
                let block = blocks.alloc_zeroed(layout(17 * MIB + 1));
                assert!(std::slice::from_raw_parts(block, 17 * MIB + 1).iter().all(|&byte| byte == 0));
                block.write_bytes(7, 17 * MIB + 1);
                let block = blocks.realloc(block, layout(17 * MIB + 1), 90 * MIB);
                assert_eq!((*block, *block.add(17 * MIB), *block.add(17 * MIB + 1)), (7, 7, 0));
                blocks.dealloc(block, layout(90 * MIB));
            }
            assert_eq!(blocks.free().len, 0);
        }
    }

    #[test]
    fn a_block_grows_and_shrinks_through_all_classes() {
        let blocks = KeptBlocks::new(System, 4 * MIB);
        // SAFETY: each block is used and given back with the layout with which it was made, once.
        unsafe {
            let (mut len, mut block) = (1000, blocks.alloc(layout(1000)));
            block.write_bytes(9, len);
            for new in [MIB, MIB + 1, 5 * MIB / 4, 40 * MIB, 3 * MIB, 300 << 10, 10] {
                block = blocks.realloc(block, layout(len), new);
                len = new;
                assert!(std::slice::from_raw_parts(block, len.min(1000)).iter().all(|&byte| byte == 9), "{new}");
            }
            blocks.dealloc(block, layout(len));
            assert!((1..=4 * MIB).contains(&blocks.free().len));
            blocks.keep_nothing();
            let one = blocks.alloc(layout(MIB));
            let left = blocks.free().len;
            blocks.dealloc(one, layout(MIB));
            assert_eq!(blocks.free().len, left);
        }
    }
}

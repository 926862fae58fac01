//! How much memory is in use, and how often some was asked for.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub struct Counted;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

static ASKED: AtomicUsize = AtomicUsize::new(0);

/// How many allocations there were.
pub fn allocations() -> usize {
    ASKED.load(Relaxed)
}

/// In bytes, now.
pub fn in_use() -> usize {
    IN_USE.load(Relaxed)
}

// SAFETY: the system's allocator does it all; the counts beside it touch no memory of its.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Relaxed);
        ASKED.fetch_add(1, Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(memory, layout) }
    }
}

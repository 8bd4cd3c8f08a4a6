//! How much memory a piece of work holds at a time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which counts what each thread holds. A program that is to know declares it:
///
/// ```
/// #[global_allocator]
/// static METER: airlock_tests::fuzz::Meter = airlock_tests::fuzz::Meter;
/// ```
pub struct Meter;

thread_local! {
    // No destructor and no allocation of their own, so that an allocator may use them.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// The most bytes that `work` held at one time, beyond those held before.
pub(super) fn most_held(work: impl FnOnce()) -> usize {
    HELD.set(0);
    MOST.set(0);
    work();
    usize::try_from(MOST.get()).unwrap_or_default()
}

fn count(change: isize) {
    let held = HELD.get() + change;
    HELD.set(held);
    MOST.set(MOST.get().max(held));
}

/// No object is larger than `isize::MAX`.
fn signed(size: usize) -> isize {
    size.cast_signed()
}

// SAFETY: every call goes on to the system's allocator as it came; the counters are no memory of it.
unsafe impl GlobalAlloc for Meter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller keeps to the contract of GlobalAlloc.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(signed(size) - signed(layout.size()));
        // SAFETY: as above.
        unsafe { System.realloc(place, layout, size) }
    }
}

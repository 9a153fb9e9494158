//! Memory that a device can transfer to and from directly.
#![allow(unsafe_code, reason = "aligned allocation: std has no safe owner of a Layout")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;

/// A zero-filled heap buffer aligned to 4 KiB for any length: the strictest O_DIRECT requirement.
pub struct IoBuffer {
    bytes: NonNull<u8>,
    len: usize,
}

/// Alignment of every [`IoBuffer`].
pub const ALIGNMENT: usize = 4096;

impl IoBuffer {
    /// A buffer of no bytes: the outcome of a request that returns no data. It takes no memory.
    #[must_use]
    pub const fn empty() -> Self {
        Self { bytes: NonNull::dangling(), len: 0 }
    }

    /// A buffer of `len` zero bytes.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        if len == 0 {
            return Self::empty();
        }
        if let Some(bytes) = FreedPages::take(len) {
            return Self { bytes, len };
        }
        let layout = Self::layout(len);
        // SAFETY: the layout has a non-zero size.
        let bytes = unsafe { alloc_zeroed(layout) };
        let Some(bytes) = NonNull::new(bytes) else { handle_alloc_error(layout) };
        Self { bytes, len }
    }

    /// A buffer that holds a copy of `bytes`.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, ALIGNMENT).expect("buffers are far smaller than isize::MAX")
    }
}

impl Drop for IoBuffer {
    fn drop(&mut self) {
        if self.len > 0 && !FreedPages::keep(self.bytes, self.len) {
            // SAFETY: allocated in `zeroed` with this very layout, freed once.
            unsafe { dealloc(self.bytes.as_ptr(), Self::layout(self.len)) }
        }
    }
}

/// Freed page-sized buffers kept by this thread for reuse: allocators are slow for page-aligned pages with short lifetimes.
struct FreedPages(RefCell<Vec<NonNull<u8>>>);

impl FreedPages {
    /// Buffers kept per thread, 256 KiB in all. Larger bursts use the allocator.
    const MOST: usize = 64;

    /// A kept buffer of `len` zero bytes, if there is one.
    fn take(len: usize) -> Option<NonNull<u8>> {
        if len != ALIGNMENT {
            return None;
        }
        let bytes = SPARES.try_with(|spares| spares.0.borrow_mut().pop()).ok().flatten()?;
        // SAFETY: `keep` received the whole buffer, which has this length, and no other reference to it exists.
        unsafe { bytes.write_bytes(0, len) }
        Some(bytes)
    }

    /// Keeps the buffer and returns true, unless the list is full. The caller must not use a kept buffer.
    fn keep(bytes: NonNull<u8>, len: usize) -> bool {
        let has_room = |spares: &Self| {
            let mut spares = spares.0.borrow_mut();
            let has_room = spares.len() < Self::MOST;
            if has_room {
                spares.push(bytes);
            }
            has_room
        };
        // The thread-local list is already gone while a thread ends.
        len == ALIGNMENT && SPARES.try_with(has_room).unwrap_or(false)
    }
}

impl Drop for FreedPages {
    fn drop(&mut self) {
        for bytes in self.0.get_mut().drain(..) {
            // SAFETY: allocated in `zeroed` with this very layout: only buffers of one page are kept.
            unsafe { dealloc(bytes.as_ptr(), IoBuffer::layout(ALIGNMENT)) }
        }
    }
}

thread_local! {
    static SPARES: FreedPages = const { FreedPages(RefCell::new(Vec::new())) };
}

impl Deref for IoBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `bytes` points to `len` initialised bytes that this buffer owns (dangling only for len 0).
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr(), self.len) }
    }
}

impl DerefMut for IoBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.as_ptr(), self.len) }
    }
}

// SAFETY: the buffer owns its bytes; shared access is read-only.
unsafe impl Send for IoBuffer {}
// SAFETY: as above.
unsafe impl Sync for IoBuffer {}

impl std::fmt::Debug for IoBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IoBuffer({} bytes)", self.len)
    }
}

/// A range of a shared buffer, the payload of a write. Several writes may send parts of one buffer concurrently, and readers may read it
/// at the same time.
#[derive(Debug, Clone)]
pub struct IoSlice {
    buffer: Arc<IoBuffer>,
    range: Range<usize>,
}

impl IoSlice {
    /// The whole of `buffer`.
    #[must_use]
    pub fn whole(buffer: Arc<IoBuffer>) -> Self {
        let range = 0..buffer.len();
        Self { buffer, range }
    }

    /// `range` of `buffer`, in bytes.
    ///
    /// # Panics
    /// If the range reaches past the buffer.
    #[must_use]
    pub fn new(buffer: Arc<IoBuffer>, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= buffer.len(), "slice outside its buffer");
        Self { buffer, range }
    }

    /// `range` of this slice, in bytes from its start.
    ///
    /// # Panics
    /// If the range reaches past the slice.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.range.len(), "part outside its slice");
        let start = self.range.start;
        Self { buffer: Arc::clone(&self.buffer), range: start + range.start..start + range.end }
    }

    /// The buffer behind the slice.
    #[must_use]
    pub fn into_buffer(self) -> Arc<IoBuffer> {
        self.buffer
    }
}

impl From<IoBuffer> for IoSlice {
    fn from(buffer: IoBuffer) -> Self {
        Self::whole(Arc::new(buffer))
    }
}

impl Deref for IoSlice {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_buffer_is_zeroed_and_aligned() {
        for len in [512, ALIGNMENT, ALIGNMENT + 512] {
            // More than the kept buffers, so that some come from the allocator.
            for _ in 0..2 {
                let mut buffers: Vec<IoBuffer> =
                    std::iter::repeat_with(|| IoBuffer::zeroed(len)).take(FreedPages::MOST + 3).collect();
                for buffer in &mut buffers {
                    assert!(buffer.iter().all(|byte| *byte == 0) && buffer.len() == len);
                    assert_eq!(buffer.as_ptr() as usize % ALIGNMENT, 0);
                    buffer.fill(0xFF);
                }
            }
        }
    }

    #[test]
    fn freed_page_is_reused_and_the_list_is_bounded() {
        let kept = || SPARES.with(|spares| spares.0.borrow().len());
        let page = IoBuffer::zeroed(ALIGNMENT);
        let place = page.as_ptr();
        drop(page);
        assert_eq!(IoBuffer::zeroed(ALIGNMENT).as_ptr(), place);
        drop(IoBuffer::zeroed(2 * ALIGNMENT));
        assert_eq!(kept(), 1, "only page-sized buffers are kept");
        drop((0..FreedPages::MOST + 5).map(|_| IoBuffer::zeroed(ALIGNMENT)).collect::<Vec<_>>());
        assert_eq!(kept(), FreedPages::MOST);
    }

    #[test]
    fn buffers_move_between_threads_and_outlive_them() {
        let buffers: Vec<IoBuffer> = std::iter::repeat_with(|| IoBuffer::zeroed(ALIGNMENT)).take(3).collect();
        let thread = std::thread::Builder::new().spawn(move || {
            drop(buffers);
            IoBuffer::zeroed(ALIGNMENT)
        });
        let mut kept = thread.unwrap().join().unwrap();
        kept.fill(7);
        drop(kept);
        assert!(IoBuffer::zeroed(ALIGNMENT).iter().all(|byte| *byte == 0));
    }
}

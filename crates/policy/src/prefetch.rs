//! Memory prefetch hints for policies and caches.
#![allow(unsafe_code, reason = "a prefetch takes an address, and is an intrinsic or an instruction")]

/// Bytes that one prefetch loads.
pub const CACHE_LINE_BYTES: usize = 64;

/// Prefetches the cache line at `address`, which may be invalid. Does nothing on architectures without a known instruction.
#[inline]
pub fn prefetch(address: *const ()) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing and does not fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

/// Prefetches a line for writing: other cores release it now instead of at the first write.
#[inline]
pub fn prefetch_to_write(address: *const ()) {
    // Not the intrinsic, which becomes a plain prefetch unless the program is built for processors with this instruction. Other processors
    // execute it as a no-op.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch writes nothing and does not fault.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

//! Large pages, where the system has them.

/// Asks the system to back memory that is walked again and again with large pages: the machine then translates addresses
/// once for 2 MiB and not for 4 KiB. Without them all works the same.
pub(crate) fn advise<T>(values: &[T]) {
    #[cfg(target_os = "linux")]
    {
        use rustix::mm::{Advice, madvise};
        const PAGE: usize = 4096;
        let bytes = values.as_ptr().cast::<u8>();
        let skipped = bytes.align_offset(PAGE);
        let len = size_of_val(values).saturating_sub(skipped) / PAGE * PAGE;
        if len > 0 {
            // SAFETY: the pages lie inside the values; the advice changes no content.
            let advised = unsafe {
                madvise(
                    bytes.add(skipped).cast_mut().cast(),
                    len,
                    Advice::LinuxHugepage,
                )
            };
            // A kernel built without them says no.
            let _ = advised;
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = values;
}

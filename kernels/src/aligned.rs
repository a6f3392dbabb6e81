//! Memory that begins on a cache line.

/// One cache line, and one vector of 16 lanes.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; Aligned::LINE]);

/// Zeroed bytes that begin on a cache line.
pub(crate) struct Aligned {
    lines: Vec<Line>,
}

impl Aligned {
    /// Bytes of a cache line.
    pub(crate) const LINE: usize = 64;

    /// At least `len` bytes, all 0.
    pub(crate) fn new(len: usize) -> Self {
        Self {
            lines: vec![Line([0; Self::LINE]); len.div_ceil(Self::LINE)],
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: lines are plain bytes without padding.
        unsafe {
            std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.lines.len() * Self::LINE)
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.lines.len() * Self::LINE;
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), len) }
    }
}

//! Arrays that several threads write at once, each its own elements.

use std::marker::PhantomData;
use std::ops::Range;

use crate::lanes::{LANES, Lanes};

/// A slice of which every thread writes and reads parts that no other thread touches meanwhile. Which parts those are is
/// the callers' agreement, kept by barriers.
pub(crate) struct Shared<'a, T> {
    values: *mut T,
    len: usize,
    lifetime: PhantomData<&'a mut [T]>,
}

impl<T> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shared<'_, T> {}

// SAFETY: threads touch disjoint parts, by the contract of the accessors.
unsafe impl<T: Send> Send for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub(crate) fn new(values: &'a mut [T]) -> Self {
        Self {
            values: values.as_mut_ptr(),
            len: values.len(),
            lifetime: PhantomData,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// A part of it, under the same agreement.
    pub(crate) fn part(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len);
        Self {
            // SAFETY: inside the slice.
            values: unsafe { self.values.add(range.start) },
            len: range.len(),
            lifetime: PhantomData,
        }
    }

    /// # Safety
    /// Nobody writes the range meanwhile.
    pub(crate) unsafe fn read(&self, range: Range<usize>) -> &'a [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: inside the slice; not written meanwhile, by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.values.add(range.start), range.len()) }
    }

    /// # Safety
    /// Nobody else reads or writes the range meanwhile.
    pub(crate) unsafe fn write(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: inside the slice; touched by nobody else meanwhile, by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.values.add(range.start), range.len()) }
    }
}

/// Where a product goes: `[tokens, rows]`, each thread its own rows.
#[derive(Clone, Copy)]
pub(crate) struct Output<'a> {
    values: Shared<'a, f32>,
    rows: usize,
    add: bool,
}

impl<'a> Output<'a> {
    /// Stores the product.
    pub(crate) fn store(values: Shared<'a, f32>, rows: usize) -> Self {
        assert!(values.len().is_multiple_of(rows));
        Self {
            values,
            rows,
            add: false,
        }
    }

    /// Adds the product to what is there.
    pub(crate) fn add(values: Shared<'a, f32>, rows: usize) -> Self {
        Self {
            add: true,
            ..Self::store(values, rows)
        }
    }

    /// The same place, adding.
    pub(crate) fn adding(self) -> Self {
        Self { add: true, ..self }
    }

    /// The product of a token and 16 rows from `row` on, of which those beyond the last are dropped.
    ///
    /// # Safety
    /// As `Lanes`; nobody else touches these elements meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn put<L: Lanes>(&self, token: usize, row: usize, product: L::Floats) {
        let start = token * self.rows + row;
        let count = LANES.min(self.rows - row);
        // SAFETY: by the caller's promise; a whole vector is read and written only where it fits.
        unsafe {
            let out = self.values.write(start..start + count);
            if count == LANES {
                let sum = match self.add {
                    true => L::add(L::load(out.as_ptr()), product),
                    false => product,
                };
                L::store(out.as_mut_ptr(), sum);
                return;
            }
            let mut lanes = [0f32; LANES];
            L::store(lanes.as_mut_ptr(), product);
            for (out, lane) in out.iter_mut().zip(lanes) {
                *out = if self.add { *out + lane } else { lane };
            }
        }
    }
}

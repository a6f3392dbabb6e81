//! What is not seen by a test of an operation: transposing, and the spreads of bytes.

use half::f16;

use super::*;
use crate::cpu::{self, Kernel, Path};

struct Transpose<'a> {
    from: &'a [f16],
    stride: usize,
    to: &'a mut [f16],
    to_stride: usize,
}

impl Kernel for Transpose<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        assert!(
            self.from.len() >= 7 * self.stride + 32 && self.to.len() >= 31 * self.to_stride + 8
        );
        // SAFETY: just checked.
        unsafe {
            L::transpose(
                self.from.as_ptr(),
                self.stride,
                self.to.as_mut_ptr(),
                self.to_stride,
            )
        };
    }
}

#[test]
fn transposing_moves_each_element_to_its_place_and_nothing_else() {
    for path in Path::available() {
        for (stride, to_stride) in [(32, 8), (192, 64), (53, 37)] {
            let from: Vec<f16> = (0..7 * stride + 32)
                .map(|i| f16::from_bits(i as u16))
                .collect();
            let mut to = vec![f16::NAN; 31 * to_stride + 8];
            let kernel = Transpose {
                from: &from,
                stride,
                to: &mut to,
                to_stride,
            };
            cpu::run(path, kernel);
            for (at, value) in to.iter().enumerate() {
                let (column, row) = (at / to_stride, at % to_stride);
                match row < 8 {
                    true => assert_eq!(value.to_bits(), from[row * stride + column].to_bits()),
                    false => assert!(value.is_nan()),
                }
            }
        }
    }
}

struct Field<'a> {
    bytes: &'a [u8; 64],
    right: i32,
    mask: u8,
}

impl Kernel for Field<'_> {
    type Out = bool;

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) -> bool {
        // SAFETY: 64 bytes; vectors of bytes are 64 bytes.
        unsafe {
            let got = L::field(L::bytes(self.bytes.as_ptr()), self.right, self.mask);
            let got: [u8; 64] = std::mem::transmute_copy(&got);
            let want = self.bytes.map(|byte| match self.right {
                right @ 0.. => byte >> right & self.mask,
                right => byte << -right & self.mask,
            });
            got == want
        }
    }
}

#[test]
fn fields_of_bytes_do_not_mix() {
    let bytes: [u8; 64] = std::array::from_fn(|i| (i * 151 + 77) as u8);
    for path in Path::available() {
        for (right, mask) in [
            (0, 15),
            (4, 15),
            (6, 3),
            (-4, 0x30),
            (-2, 0x30),
            (2, 0x30),
            (-1, 16),
            (3, 16),
        ] {
            assert!(
                cpu::run(
                    path,
                    Field {
                        bytes: &bytes,
                        right,
                        mask
                    }
                ),
                "{path:?} {right} {mask}"
            );
        }
    }
}

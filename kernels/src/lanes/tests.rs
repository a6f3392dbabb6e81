//! What is not seen by a test of an operation: the spreads of bytes.

use super::*;
use crate::cpu::{self, Kernel, Path};

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

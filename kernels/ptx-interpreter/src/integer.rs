//! Integer arithmetic, on registers that hold their low bits.

use crate::Fault;
use crate::op::IntOp;
use crate::types::Int;

/// `a op b (op c (op e))`, which only `bfi` has.
#[inline(always)]
pub(crate) fn int(op: IntOp, ty: Int, [a, b, c, e]: [u64; 4]) -> Result<u64, Fault> {
    let (x, y) = (ty.extended(a), ty.extended(b));
    let result = match op {
        IntOp::Add => a.wrapping_add(b),
        IntOp::Sub => a.wrapping_sub(b),
        IntOp::MulLow => a.wrapping_mul(b),
        IntOp::MadLow => a.wrapping_mul(b).wrapping_add(c),
        IntOp::And => a & b,
        IntOp::Or => a | b,
        IntOp::Xor => a ^ b,
        IntOp::Not => !a,
        IntOp::Neg => a.wrapping_neg(),
        IntOp::Min if ty.signed => (x as i64).min(y as i64) as u64,
        IntOp::Max if ty.signed => (x as i64).max(y as i64) as u64,
        IntOp::Min => x.min(y),
        IntOp::Max => x.max(y),
        IntOp::Shl => match b >= u64::from(ty.bits) {
            true => 0,
            false => a << b,
        },
        IntOp::Shr => {
            let by = b.min(u64::from(ty.bits)) as u32;
            match ty.signed {
                true => ((x as i64) >> by.min(63)) as u64,
                false => x.checked_shr(by).unwrap_or(0),
            }
        }
        _ => return rare(op, ty, [a, b, c, e]),
    };
    Ok(ty.wrap(result))
}

fn rare(op: IntOp, ty: Int, [a, b, c, e]: [u64; 4]) -> Result<u64, Fault> {
    let (x, y) = (ty.value(a), ty.value(b));
    let high = || ((x * y) >> ty.bits) as u64;
    let result = match op {
        IntOp::MulHigh => high(),
        IntOp::MadHigh => high().wrapping_add(c),
        IntOp::Div | IntOp::Rem if y == 0 => {
            return Err(Fault::Undefined("division by zero".into()));
        }
        IntOp::Div => (x / y) as u64,
        IntOp::Rem => (x % y) as u64,
        IntOp::Abs => x.unsigned_abs() as u64,
        IntOp::Popc => return Ok(u64::from(a.count_ones())),
        IntOp::Clz => return Ok(u64::from(a.leading_zeros() - (64 - u32::from(ty.bits)))),
        IntOp::BfindShift if a == 0 => u64::MAX,
        IntOp::BfindShift => return rare(IntOp::Clz, ty, [a, b, c, e]),
        IntOp::Brev => a.reverse_bits() >> (64 - ty.bits),
        IntOp::Bfe => field(ty, a, b & 255, c & 255),
        IntOp::Bfi => {
            let (start, len) = (c & 255, e & 255);
            match len == 0 || start >= u64::from(ty.bits) {
                true => b,
                false => {
                    let mask = ones(len) << start;
                    (b & !mask) | ((a << start) & mask)
                }
            }
        }
        _ => unreachable!("the common ones are above"),
    };
    Ok(ty.wrap(result))
}

fn ones(bits: u64) -> u64 {
    match bits >= 64 {
        true => u64::MAX,
        false => (1 << bits) - 1,
    }
}

/// Bits `start..start + len`; beyond the register stands its sign.
fn field(ty: Int, a: u64, start: u64, len: u64) -> u64 {
    if len == 0 {
        return 0;
    }
    let bits = u64::from(ty.bits);
    let a = ty.extended(a);
    let shifted = match (start >= 64, ty.signed) {
        (true, true) => ((a as i64) >> 63) as u64,
        (true, false) => 0,
        (false, true) => ((a as i64) >> start) as u64,
        (false, false) => a >> start,
    };
    let value = shifted & ones(len);
    if !ty.signed {
        return value;
    }
    let top = (start + len - 1).min(bits - 1);
    let is_negative = (a >> top) & 1 == 1;
    match is_negative && len < 64 {
        true => value | !ones(len),
        false => value,
    }
}

pub(crate) fn wide(ty: Int, a: u64, b: u64, c: u64) -> u64 {
    let product = ty.extended(a).wrapping_mul(ty.extended(b));
    Int::unsigned(2 * ty.bits).wrap(product.wrapping_add(c))
}

/// Any function of three bits: bit `4 a + 2 b + c` of the table.
pub(crate) fn logic(table: u8, a: u64, b: u64, c: u64) -> u64 {
    let mut result = 0;
    for row in 0..8 {
        if table >> row & 1 == 1 {
            let pick = |value: u64, bit: u8| match row >> bit & 1 {
                1 => value,
                _ => !value,
            };
            result |= pick(a, 2) & pick(b, 1) & pick(c, 0);
        }
    }
    result & 0xffff_ffff
}

pub(crate) fn permute(a: u64, b: u64, selector: u64) -> u64 {
    let bytes = (b << 32 | a).to_le_bytes();
    let byte = |i: u32| {
        let select = selector >> (4 * i) & 15;
        let byte = bytes[(select & 7) as usize];
        let byte = match select & 8 {
            0 => byte,
            _ => ((byte as i8) >> 7) as u8,
        };
        u64::from(byte) << (8 * i)
    };
    byte(0) | byte(1) | byte(2) | byte(3)
}

pub(crate) fn dot4(signs: (bool, bool), a: u64, b: u64, c: u64) -> u64 {
    let value = |byte: u8, signed: bool| match signed {
        true => i64::from(byte as i8),
        false => i64::from(byte),
    };
    let (a, b) = ((a as u32).to_le_bytes(), (b as u32).to_le_bytes());
    let products = a
        .iter()
        .zip(b)
        .map(|(&a, b)| value(a, signs.0) * value(b, signs.1));
    (c as i64 + products.sum::<i64>()) as u64 & 0xffff_ffff
}

pub(crate) fn funnel(left: bool, clamp: bool, a: u64, b: u64, by: u64) -> u64 {
    let by = match clamp {
        true => by.min(32),
        false => by & 31,
    };
    let both = b << 32 | a;
    let result = match left {
        true if by == 32 => a,
        true => both << by >> 32,
        false => both >> by,
    };
    result & 0xffff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_cut_with_the_sign_at_their_end() {
        let (s32, u32) = (
            Int {
                bits: 32,
                signed: true,
            },
            Int::unsigned(32),
        );
        let run = |ty, args| int(IntOp::Bfe, ty, args).unwrap();
        assert_eq!(run(u32, [0xabcd_1234, 8, 8, 0]), 0x12);
        assert_eq!(run(s32, [0x0000_8000, 8, 8, 0]), 0xffff_ff80);
        assert_eq!(run(s32, [0x8000_0000, 28, 16, 0]), 0xffff_fff8);
        assert_eq!(run(u32, [0xffff_ffff, 40, 4, 0]), 0);
        let insert = int(IntOp::Bfi, u32, [0xff, 0x1111_1111, 4, 8]).unwrap();
        assert_eq!(insert, 0x1111_1ff1);
    }

    #[test]
    fn shifts_by_too_much_are_shifts_by_all() {
        let (s32, u32) = (
            Int {
                bits: 32,
                signed: true,
            },
            Int::unsigned(32),
        );
        assert_eq!(int(IntOp::Shl, u32, [1, 32, 0, 0]), Ok(0));
        assert_eq!(int(IntOp::Shr, u32, [1, 99, 0, 0]), Ok(0));
        assert_eq!(
            int(IntOp::Shr, s32, [0x8000_0000, 99, 0, 0]),
            Ok(0xffff_ffff)
        );
    }

    #[test]
    fn bytes_are_permuted_with_their_signs() {
        assert_eq!(permute(0x3322_1100, 0x7766_5544, 0x7531), 0x7755_3311);
        assert_eq!(permute(0x0000_8000, 0, 0x0009), 0x0000_00ff);
    }

    #[test]
    fn wide_products_and_dot_products_take_the_sign_into_account() {
        let s32 = Int {
            bits: 32,
            signed: true,
        };
        assert_eq!(wide(s32, 0xffff_ffff, 4, 0), (-4i64) as u64);
        assert_eq!(wide(Int::unsigned(32), 0xffff_ffff, 4, 1), 0x3_ffff_fffd);
        let (a, b) = (0x0000_00ff, 0x0000_0002);
        assert_eq!(dot4((true, true), a, b, 10), 8);
        assert_eq!(dot4((false, true), a, b, 10), 520);
        assert_eq!(logic(0xe8, 0b1100, 0b1010, 0b0110), 0b1110);
        assert_eq!(funnel(true, false, 0x8000_0000, 1, 1), 3);
        assert_eq!(funnel(false, true, 5, 7, 32), 7);
    }
}

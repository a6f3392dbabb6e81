//! Float arithmetic and conversions, rounded as IEEE 754 and PTX say. What PTX leaves approximate (`rsqrt`, `ex2`, `lg2`, quick
//! divisions) is the nearest f32 here: a GPU's result may be a few units in the last place away.

use std::cmp::Ordering;

use half::{bf16, f16};

use crate::op::{Compared, Comparison, Conversion, Float, FloatOp, Join, Round};
use crate::types::{Int, Type};

/// The NaN that PTX's operations on f32 give.
const NAN: u32 = 0x7fff_ffff;

fn flushed(bits: u32, flush: bool) -> u32 {
    match flush && bits & 0x7f80_0000 == 0 {
        true => bits & 0x8000_0000,
        false => bits,
    }
}

/// An f32 as a register holds it.
fn held(value: f32, flush: bool) -> u64 {
    match value.is_nan() {
        true => u64::from(NAN),
        false => u64::from(flushed(value.to_bits(), flush)),
    }
}

#[inline(always)]
pub(crate) fn float(op: FloatOp, format: Float, args: [u64; 3]) -> u64 {
    match format {
        Float::F32 { flush } => single(op, flush, args),
        Float::F64 => double(op, args),
        Float::F16 => half(op, args, f16_of, bits_of_f16),
        Float::Bf16 => half(op, args, bf16_of, bits_of_bf16),
        Float::F16x2 => pair(args, |args| half(op, args, f16_of, bits_of_f16)),
        Float::Bf16x2 => pair(args, |args| half(op, args, bf16_of, bits_of_bf16)),
    }
}

fn single(op: FloatOp, flush: bool, args: [u64; 3]) -> u64 {
    let [a, b, c] = args.map(|arg| f32::from_bits(flushed(arg as u32, flush)));
    let value = match op {
        FloatOp::Add => a + b,
        FloatOp::Sub => a - b,
        FloatOp::Mul => a * b,
        FloatOp::Fma => a.mul_add(b, c),
        FloatOp::Div => a / b,
        FloatOp::Min => extreme(a, b, Ordering::Less),
        FloatOp::Max => extreme(a, b, Ordering::Greater),
        // These two only touch the sign, a NaN's as well.
        FloatOp::Neg => return u64::from(a.to_bits() ^ 0x8000_0000),
        FloatOp::Abs => return u64::from(a.to_bits() & 0x7fff_ffff),
        FloatOp::Sqrt => a.sqrt(),
        FloatOp::Rsqrt => (1.0 / f64::from(a).sqrt()) as f32,
        FloatOp::Rcp => 1.0 / a,
        FloatOp::Exp2 => f64::from(a).exp2() as f32,
        FloatOp::Log2 => f64::from(a).log2() as f32,
    };
    held(value, flush)
}

/// The smaller or larger; the other one of a NaN; -0 is below 0.
fn extreme(a: f32, b: f32, wanted: Ordering) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a.total_cmp(&b) == wanted => a,
        _ => b,
    }
}

fn double(op: FloatOp, args: [u64; 3]) -> u64 {
    let [a, b, c] = args.map(f64::from_bits);
    let value = match op {
        FloatOp::Add => a + b,
        FloatOp::Sub => a - b,
        FloatOp::Mul => a * b,
        FloatOp::Fma => a.mul_add(b, c),
        FloatOp::Div => a / b,
        FloatOp::Min => a.min(b),
        FloatOp::Max => a.max(b),
        FloatOp::Neg => -a,
        FloatOp::Abs => a.abs(),
        FloatOp::Sqrt => a.sqrt(),
        FloatOp::Rcp => 1.0 / a,
        FloatOp::Rsqrt | FloatOp::Exp2 | FloatOp::Log2 => unreachable!("not decoded"),
    };
    value.to_bits()
}

/// In f64, which holds sums and products of halves so exactly that rounding them again is rounding once.
fn half(
    op: FloatOp,
    args: [u64; 3],
    widened: impl Fn(u64) -> f64,
    narrowed: impl Fn(f64) -> u64,
) -> u64 {
    let [a, b, c] = args.map(widened);
    let value = match op {
        FloatOp::Add => a + b,
        FloatOp::Sub => a - b,
        FloatOp::Mul => a * b,
        FloatOp::Fma => a.mul_add(b, c),
        FloatOp::Min => f64::from(extreme(a as f32, b as f32, Ordering::Less)),
        FloatOp::Max => f64::from(extreme(a as f32, b as f32, Ordering::Greater)),
        FloatOp::Neg => -a,
        FloatOp::Abs => a.abs(),
        _ => unreachable!("not decoded"),
    };
    narrowed(value)
}

fn pair(args: [u64; 3], of: impl Fn([u64; 3]) -> u64) -> u64 {
    let part = |shift: u32| of(args.map(|arg| arg >> shift & 0xffff)) << shift;
    part(0) | part(16)
}

fn f16_of(bits: u64) -> f64 {
    f16::from_bits(bits as u16).to_f64()
}

fn bf16_of(bits: u64) -> f64 {
    bf16::from_bits(bits as u16).to_f64()
}

fn bits_of_f16(value: f64) -> u64 {
    match value.is_nan() {
        true => 0x7fff,
        false => u64::from(f16::from_f32(to_odd(value)).to_bits()),
    }
}

fn bits_of_bf16(value: f64) -> u64 {
    match value.is_nan() {
        true => 0x7fff,
        false => u64::from(bf16::from_f32(to_odd(value)).to_bits()),
    }
}

/// To f32, but to the neighbour with the last bit set where it is not exact, so that rounding that again is rounding once
/// (Boldo and Melquiond, 2008).
fn to_odd(value: f64) -> f32 {
    let near = value as f32;
    if f64::from(near) == value || near.to_bits() & 1 == 1 {
        return near;
    }
    let bits = near.to_bits();
    match f64::from(near).abs() > value.abs() {
        true => f32::from_bits(bits - 1),
        false => f32::from_bits(bits + 1),
    }
}

pub(crate) fn convert_pair(to: Type, high: u64, low: u64) -> u64 {
    let part = |bits: u64| narrowed(to_half(to), f64::from(f32::from_bits(bits as u32)));
    part(high) << 16 | part(low)
}

fn to_half(ty: Type) -> Type {
    match ty {
        Type::F16x2 => Type::F16,
        _ => Type::Bf16,
    }
}

fn narrowed(to: Type, value: f64) -> u64 {
    match to {
        Type::F16 => bits_of_f16(value),
        Type::Bf16 => bits_of_bf16(value),
        Type::F32 => held(value as f32, false),
        _ => value.to_bits(),
    }
}

fn widened(from: Type, bits: u64) -> f64 {
    match from {
        Type::F16 => f16_of(bits),
        Type::Bf16 => bf16_of(bits),
        Type::F32 => f64::from(f32::from_bits(bits as u32)),
        _ => f64::from_bits(bits),
    }
}

#[inline(always)]
pub(crate) fn convert(conversion: Conversion, bits: u64) -> u64 {
    let Conversion { to, from, .. } = conversion;
    match (to, from) {
        (Type::Int(to), Type::Int(from)) => match conversion.saturate {
            true => saturated(to, from.value(bits)),
            false => to.wrap(from.extended(bits)),
        },
        (Type::Int(to), from) => {
            let value = whole(conversion.round, flushed_value(conversion, from, bits));
            // Out of range is the nearest in range, NaN is 0, for every integer type.
            saturated(to, value as i128)
        }
        (to, Type::Int(from)) => {
            let value = from.value(bits);
            // A 64-bit integer does not fit f64, so f32 takes it directly.
            match to {
                Type::F32 => held(value as f32, false),
                Type::F64 => (value as f64).to_bits(),
                _ => narrowed(to, value as f64),
            }
        }
        (to, from) => {
            let value = flushed_value(conversion, from, bits);
            let value = match conversion.round {
                Round::None | Round::Nearest => value,
                round => whole(round, value),
            };
            let value = match conversion.saturate {
                true if value.is_nan() => 0.0,
                true => value.clamp(0.0, 1.0),
                false => value,
            };
            let result = narrowed(to, value);
            match to == Type::F32 {
                true => u64::from(flushed(result as u32, conversion.flush)),
                false => result,
            }
        }
    }
}

fn flushed_value(conversion: Conversion, from: Type, bits: u64) -> f64 {
    match from == Type::F32 {
        true => widened(from, u64::from(flushed(bits as u32, conversion.flush))),
        false => widened(from, bits),
    }
}

fn whole(round: Round, value: f64) -> f64 {
    match round {
        Round::ZeroInt => value.trunc(),
        Round::DownInt => value.floor(),
        Round::UpInt => value.ceil(),
        _ => value.round_ties_even(),
    }
}

fn saturated(to: Int, value: i128) -> u64 {
    let (least, most) = match to.signed {
        true => (-(1i128 << (to.bits - 1)), (1i128 << (to.bits - 1)) - 1),
        false => (0, (1i128 << to.bits) - 1),
    };
    to.wrap(value.clamp(least, most) as u64)
}

#[inline(always)]
pub(crate) fn compare(comparison: Comparison, a: u64, b: u64, c: u64) -> (bool, bool) {
    let relation = comparison.relation;
    let order = match comparison.of {
        Compared::Int(ty) => match ty.signed {
            true => Some((ty.extended(a) as i64).cmp(&(ty.extended(b) as i64))),
            false => Some(ty.extended(a).cmp(&ty.extended(b))),
        },
        Compared::Float(Float::F32 { flush }) => {
            let value = |bits: u64| f32::from_bits(flushed(bits as u32, flush));
            value(a).partial_cmp(&value(b))
        }
        Compared::Float(Float::F64) => f64::from_bits(a).partial_cmp(&f64::from_bits(b)),
        Compared::Float(_) => f16_of(a).partial_cmp(&f16_of(b)),
    };
    let holds = match order {
        Some(Ordering::Less) => relation.less,
        Some(Ordering::Equal) => relation.equal,
        Some(Ordering::Greater) => relation.greater,
        None => relation.unordered,
    };
    let c = (c != 0) != comparison.is_negated;
    match comparison.join {
        Join::None => (holds, !holds),
        Join::And => (holds && c, !holds && c),
        Join::Or => (holds || c, !holds || c),
        Join::Xor => (holds != c, holds == c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F32: Float = Float::F32 { flush: false };

    fn bits(x: f32) -> u64 {
        u64::from(x.to_bits())
    }

    #[test]
    fn a_multiply_add_rounds_once() {
        let (a, b) = (1.0 + f32::EPSILON, 1.0 - f32::EPSILON);
        let got = float(FloatOp::Fma, F32, [bits(a), bits(b), bits(-1.0)]);
        assert_eq!(got, bits(-f32::EPSILON * f32::EPSILON));
    }

    #[test]
    fn extremes_skip_nans_and_order_zeros() {
        let run = |op, a, b| float(op, F32, [bits(a), bits(b), 0]);
        assert_eq!(run(FloatOp::Max, f32::NAN, 1.0), bits(1.0));
        assert_eq!(run(FloatOp::Min, 0.0, -0.0), bits(-0.0));
        assert_eq!(run(FloatOp::Max, -0.0, 0.0), bits(0.0));
        assert_eq!(run(FloatOp::Max, f32::NAN, f32::NAN), u64::from(NAN));
    }

    #[test]
    fn flushing_makes_subnormals_zero_on_both_ends() {
        let flush = Float::F32 { flush: true };
        let tiny = f32::MIN_POSITIVE / 2.0;
        assert_eq!(
            float(FloatOp::Add, flush, [bits(-tiny), bits(-0.0), 0]),
            bits(-0.0)
        );
        let product = [bits(f32::MIN_POSITIVE), bits(0.5), 0];
        assert_eq!(float(FloatOp::Mul, flush, product), 0);
        assert_eq!(float(FloatOp::Mul, F32, product), bits(tiny));
    }

    #[test]
    fn halves_round_once() {
        // 1 + 2^-11 is a tie, and 2^-60 above it is not: an f32 in between would make it one.
        let value = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(
            bits_of_f16(value),
            u64::from(f16::from_f32(1.0).to_bits()) + 1
        );
        assert_eq!(
            bits_of_f16(1.0 + 2f64.powi(-11)),
            u64::from(f16::ONE.to_bits())
        );
        assert_eq!(bits_of_f16(65_520.0), 0x7c00);
        assert_eq!(bits_of_bf16(1.0 + 2f64.powi(-8)), 0x3f80);
    }

    #[test]
    fn conversions_saturate_round_and_extend_as_they_say() {
        let to_int = |to, round, x: f32| {
            let conversion = Conversion {
                to: Type::Int(to),
                from: Type::F32,
                round,
                flush: false,
                saturate: false,
            };
            convert(conversion, bits(x))
        };
        let s32 = Int {
            bits: 32,
            signed: true,
        };
        assert_eq!(to_int(s32, Round::NearestInt, 2.5), 2);
        assert_eq!(to_int(s32, Round::ZeroInt, -2.7), 0xffff_fffe);
        assert_eq!(to_int(s32, Round::DownInt, -2.1), 0xffff_fffd);
        assert_eq!(to_int(s32, Round::ZeroInt, 1e20), 0x7fff_ffff);
        assert_eq!(to_int(s32, Round::ZeroInt, f32::NAN), 0);
        assert_eq!(to_int(Int::unsigned(32), Round::ZeroInt, -5.0), 0);
        let between = |to, from, value| {
            let conversion = Conversion {
                to: Type::Int(to),
                from: Type::Int(from),
                round: Round::None,
                flush: false,
                saturate: false,
            };
            convert(conversion, value)
        };
        let s8 = Int {
            bits: 8,
            signed: true,
        };
        assert_eq!(between(s32, s8, 0xff), 0xffff_ffff);
        assert_eq!(
            between(Int::unsigned(16), Int::unsigned(32), 0x12_3456),
            0x3456
        );
    }

    #[test]
    fn comparisons_know_unordered_operands() {
        let ask = |less, unordered, a: f32, b: f32| {
            let comparison = Comparison {
                relation: crate::op::Relation {
                    less,
                    equal: false,
                    greater: false,
                    unordered,
                },
                of: Compared::Float(F32),
                join: Join::None,
                is_negated: false,
            };
            compare(comparison, bits(a), bits(b), 0).0
        };
        assert!(ask(true, false, 1.0, 2.0));
        assert!(!ask(true, false, f32::NAN, 2.0));
        assert!(ask(true, true, f32::NAN, 2.0));
    }
}

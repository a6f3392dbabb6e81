//! Opcodes that compute in one thread.

use super::{Decoded, NO_ARGS, Operands};
use crate::Result;
use crate::op::{
    Compared, Comparison, Conversion, Float, FloatOp, IntOp, Join, NO_SLOT, Op, Relation, Round,
};
use crate::text::Operand;
use crate::types::{Int, Type};

pub(super) fn decode(opcode: &[&str], operands: &mut Operands) -> Result<Option<Decoded>> {
    if let Some(decoded) = moves(opcode, operands)? {
        return Ok(Some(decoded));
    }
    if let Some(decoded) = bits(opcode, operands)? {
        return Ok(Some(decoded));
    }
    if let Some((op, ty, count)) = int_op(opcode) {
        let mut args = match count {
            1 => operands.ints::<1>(ty.bits)?,
            2 => operands.ints::<2>(ty.bits)?,
            _ => operands.ints::<3>(ty.bits)?,
        };
        if matches!(op, Op::Int(IntOp::Bfi, _)) {
            // `bfi d, a, b, c, e`: one operand more.
            args[4] = operands.int(32)?;
        }
        return Ok(Some((op, args, 0)));
    }
    if let Some((op, count)) = float_op(opcode) {
        let args = match count {
            1 => operands.values::<1>()?,
            2 => operands.values::<2>()?,
            _ => operands.values::<3>()?,
        };
        return Ok(Some((op, args, 0)));
    }
    match opcode {
        ["setp", ..] => compare(opcode, operands),
        ["cvt", ..] => convert(opcode, operands),
        _ => Ok(None),
    }
}

fn moves(opcode: &[&str], operands: &mut Operands) -> Result<Option<Decoded>> {
    let (name, ty) = match opcode {
        ["mov", ty] => ("mov", Type::named(ty)),
        ["selp", ty] => ("selp", Type::named(ty)),
        _ => return Ok(None),
    };
    let Some(ty) = ty else {
        return Ok(None);
    };
    let bits = (ty.bytes() * 8).max(1) as u8;
    if name == "selp" {
        let mut args = operands.ints::<2>(bits)?;
        args[3] = operands.value()?;
        return Ok(Some((Op::Select, args, 0)));
    }
    let parts = |operand: &Operand| match operand {
        Operand::Vector(parts) => parts.len(),
        _ => 1,
    };
    let mut args = NO_ARGS;
    match operands.operands {
        [_, Operand::Vector(_)] => {
            args[0] = operands.value()?;
            let (list, count) = operands.list()?;
            let op = Op::Pack(count as u8, bits / count as u8);
            Ok(Some((op, args, list)))
        }
        [to @ Operand::Vector(_), _] => {
            let count = parts(to) as u8;
            let (list, _) = operands.list()?;
            args[1] = operands.int(bits)?;
            Ok(Some((Op::Unpack(count, bits / count), args, list)))
        }
        _ => Ok(Some((Op::Mov, operands.ints::<1>(bits)?, 0))),
    }
}

/// Operations on bits with a form of their own.
fn bits(opcode: &[&str], operands: &mut Operands) -> Result<Option<Decoded>> {
    let decoded = match opcode {
        ["lop3", "b32"] => {
            let args = operands.ints::<3>(32)?;
            let Operand::Bits(table) = operands.take()? else {
                return Err(operands.statement.error("a table is wanted"));
            };
            (Op::Logic3(*table as u8), args, 0)
        }
        ["prmt", "b32"] => (Op::Permute, operands.ints::<3>(32)?, 0),
        ["dp4a", a @ ("u32" | "s32"), b @ ("u32" | "s32")] => (
            Op::Dot4(*a == "s32", *b == "s32"),
            operands.ints::<3>(32)?,
            0,
        ),
        ["shf", side @ ("l" | "r"), mode @ ("wrap" | "clamp"), "b32"] => {
            let op = Op::Funnel {
                left: *side == "l",
                clamp: *mode == "clamp",
            };
            (op, operands.ints::<3>(32)?, 0)
        }
        ["mul", "wide", ty] | ["mad", "wide", ty] => {
            let Some(int) = Type::named(ty).and_then(Type::int) else {
                return Ok(None);
            };
            let mut args = operands.ints::<2>(int.bits)?;
            args[3] = match opcode[0] {
                "mad" => operands.int(2 * int.bits)?,
                _ => operands.decoder.number(0),
            };
            (Op::Wide(int), args, 0)
        }
        _ => return Ok(None),
    };
    Ok(Some(decoded))
}

/// The operation, its type and how many operands it takes.
fn int_op(opcode: &[&str]) -> Option<(Op, Int, usize)> {
    use IntOp::*;
    let (op, ty, count) = match opcode {
        ["add", ty] => (Add, ty, 2),
        ["sub", ty] => (Sub, ty, 2),
        ["mul", "lo", ty] => (MulLow, ty, 2),
        ["mul", "hi", ty] => (MulHigh, ty, 2),
        ["mad", "lo", ty] => (MadLow, ty, 3),
        ["mad", "hi", ty] => (MadHigh, ty, 3),
        ["div", ty] => (Div, ty, 2),
        ["rem", ty] => (Rem, ty, 2),
        ["min", ty] => (Min, ty, 2),
        ["max", ty] => (Max, ty, 2),
        ["neg", ty] => (Neg, ty, 1),
        ["abs", ty] => (Abs, ty, 1),
        ["and", ty] => (And, ty, 2),
        ["or", ty] => (Or, ty, 2),
        ["xor", ty] => (Xor, ty, 2),
        ["not", ty] => (Not, ty, 1),
        ["shl", ty] => (Shl, ty, 2),
        ["shr", ty] => (Shr, ty, 2),
        ["popc", ty] => (Popc, ty, 1),
        ["clz", ty] => (Clz, ty, 1),
        ["brev", ty] => (Brev, ty, 1),
        ["bfind", "shiftamt", ty @ "u32"] => (BfindShift, ty, 1),
        ["bfe", ty] => (Bfe, ty, 3),
        ["bfi", ty] => (Bfi, ty, 3),
        _ => return None,
    };
    let is_logic = matches!(op, And | Or | Xor | Not);
    let int = match Type::named(ty)? {
        Type::Int(int) => int,
        Type::Pred if is_logic => Int::unsigned(1),
        _ => return None,
    };
    // Bit operations take bits, the others numbers: a `b32` sum is no PTX.
    let takes_bits = is_logic || matches!(op, Shl | Shr | Popc | Clz | Brev | Bfi);
    let is_wide = int.bits >= 32
        || matches!(op, Add | Sub | MulLow | MadLow | Min | Max | Neg)
        || is_logic
        || matches!(op, Shl | Shr | MulHigh | Div | Rem | Abs);
    let is_known = int.bits != 8 && is_wide && (takes_bits || !ty.starts_with('b'));
    is_known.then_some((Op::Int(op, int), int, count))
}

/// The operation and how many operands it takes. A multiplication or sum without `.rn` is none: the driver may join the two.
fn float_op(opcode: &[&str]) -> Option<(Op, usize)> {
    use FloatOp::*;
    let (name, modifiers) = opcode.split_first()?;
    let (ty, modifiers) = modifiers.split_last()?;
    let (op, count, required): (_, _, &[&str]) = match *name {
        "add" => (Add, 2, &["rn"]),
        "sub" => (Sub, 2, &["rn"]),
        "mul" => (Mul, 2, &["rn"]),
        "fma" => (Fma, 3, &["rn"]),
        "div" => (Div, 2, &["rn"]),
        "min" => (Min, 2, &[]),
        "max" => (Max, 2, &[]),
        "neg" => (Neg, 1, &[]),
        "abs" => (Abs, 1, &[]),
        "sqrt" => (Sqrt, 1, &["rn"]),
        "rcp" => (Rcp, 1, &["rn"]),
        "rsqrt" => (Rsqrt, 1, &["approx"]),
        "ex2" => (Exp2, 1, &["approx"]),
        "lg2" => (Log2, 1, &["approx"]),
        _ => return None,
    };
    let flush = modifiers.last() == Some(&"ftz");
    let given = &modifiers[..modifiers.len() - usize::from(flush)];
    let float = match Type::named(ty)? {
        Type::F32 => Float::F32 { flush },
        Type::F64 if !flush => Float::F64,
        Type::F16 if !flush => Float::F16,
        Type::F16x2 if !flush => Float::F16x2,
        Type::Bf16 if !flush => Float::Bf16,
        Type::Bf16x2 if !flush => Float::Bf16x2,
        _ => return None,
    };
    let is_f32 = matches!(float, Float::F32 { .. });
    let is_half = !is_f32 && float != Float::F64;
    let is_known = match op {
        Rsqrt | Exp2 | Log2 => is_f32,
        Div | Sqrt | Rcp => !is_half,
        _ => true,
    };
    // The quick division and root are as exact here as the slow ones.
    let is_quick =
        matches!(op, Div | Sqrt | Rcp) && is_f32 && matches!(given, ["approx"] | ["full"]);
    (is_known && (given == required || is_quick)).then_some((Op::Float(op, float), count))
}

fn relation(name: &str) -> Option<Relation> {
    let (name, unordered) = match name {
        "equ" | "neu" | "ltu" | "leu" | "gtu" | "geu" => (&name[..2], true),
        _ => (name, false),
    };
    let [less, equal, greater] = match name {
        "eq" => [false, true, false],
        "ne" => [true, false, true],
        "lt" | "lo" => [true, false, false],
        "le" | "ls" => [true, true, false],
        "gt" | "hi" => [false, false, true],
        "ge" | "hs" => [false, true, true],
        "num" => [true, true, true],
        "nan" => [false, false, false],
        _ => return None,
    };
    Some(Relation {
        less,
        equal,
        greater,
        unordered: unordered || name == "nan",
    })
}

fn compare(opcode: &[&str], operands: &mut Operands) -> Result<Option<Decoded>> {
    let (opcode, flush) = match opcode {
        [head @ .., "ftz", ty] => ([head, &[*ty]].concat(), true),
        _ => (opcode.to_vec(), false),
    };
    let (name, join, ty) = match opcode.as_slice() {
        ["setp", name, ty] => (name, Join::None, ty),
        ["setp", name, "and", ty] => (name, Join::And, ty),
        ["setp", name, "or", ty] => (name, Join::Or, ty),
        ["setp", name, "xor", ty] => (name, Join::Xor, ty),
        _ => return Ok(None),
    };
    let (Some(relation), Some(ty)) = (relation(name), Type::named(ty)) else {
        return Ok(None);
    };
    let of = match ty {
        Type::Int(int) if int.bits != 8 && !flush => Compared::Int(int),
        Type::F32 => Compared::Float(Float::F32 { flush }),
        Type::F64 if !flush => Compared::Float(Float::F64),
        Type::F16 if !flush => Compared::Float(Float::F16),
        _ => return Ok(None),
    };
    let mut args = [NO_SLOT; 5];
    match operands.take()? {
        Operand::Both(p, q) => {
            args[0] = operands.decoder.register(operands.statement, p)?;
            args[4] = operands.decoder.register(operands.statement, q)?;
        }
        operand => args[0] = operands.slot_of(operand)?,
    }
    let bits = (ty.bytes() * 8) as u8;
    args[1] = operands.int(bits)?;
    args[2] = operands.int(bits)?;
    let mut is_negated = false;
    if join != Join::None {
        args[3] = match operands.take()? {
            Operand::Not(name) => {
                is_negated = true;
                operands.decoder.register(operands.statement, name)?
            }
            operand => operands.slot_of(operand)?,
        };
    }
    let comparison = Comparison {
        relation,
        of,
        join,
        is_negated,
    };
    Ok(Some((Op::Compare(comparison), args, 0)))
}

fn convert(opcode: &[&str], operands: &mut Operands) -> Result<Option<Decoded>> {
    let [_, modifiers @ .., to, from] = opcode else {
        return Ok(None);
    };
    let (Some(to), Some(from)) = (Type::named(to), Type::named(from)) else {
        return Ok(None);
    };
    if matches!(to, Type::F16x2 | Type::Bf16x2) {
        let is_known = from == Type::F32 && modifiers == ["rn"];
        let op = Op::ConvertPair(to);
        return match is_known {
            true => Ok(Some((op, operands.values::<2>()?, 0))),
            false => Ok(None),
        };
    }
    let (mut round, mut flush, mut saturate) = (Round::None, false, false);
    for modifier in modifiers {
        match *modifier {
            "rn" => round = Round::Nearest,
            "rni" => round = Round::NearestInt,
            "rzi" => round = Round::ZeroInt,
            "rmi" => round = Round::DownInt,
            "rpi" => round = Round::UpInt,
            "ftz" => flush = true,
            "sat" => saturate = true,
            _ => return Ok(None),
        }
    }
    let is_float = |ty: Type| matches!(ty, Type::F16 | Type::Bf16 | Type::F32 | Type::F64);
    let is_to_int = !matches!(round, Round::None | Round::Nearest);
    let is_known = match (to, from) {
        (Type::Int(_), Type::Int(_)) => round == Round::None && !flush,
        (Type::Int(_), from) if is_float(from) => is_to_int,
        (to, Type::Int(_)) if is_float(to) => round == Round::Nearest,
        (to, from) if to == from && is_float(to) => is_to_int || (round == Round::None && saturate),
        (to, from) if is_float(to) && is_float(from) => {
            let is_exact = from.bytes() < to.bytes();
            to.bytes() != from.bytes()
                && !saturate
                && (round == Round::None) == is_exact
                && !is_to_int
        }
        _ => false,
    };
    if !is_known {
        return Ok(None);
    }
    let conversion = Conversion {
        to,
        from,
        round,
        flush,
        saturate,
    };
    let args = operands.ints::<1>((from.bytes() * 8) as u8)?;
    Ok(Some((Op::Convert(conversion), args, 0)))
}

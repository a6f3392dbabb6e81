//! Opcodes that threads execute together.

use super::{Decoded, NO_ARGS, Operands};
use crate::Result;
use crate::op::{IntOp, NO_SLOT, Op, ShuffleMode, VoteMode};
use crate::text::Operand;
use crate::types::Type;

pub(super) fn decode(opcode: &[&str], operands: &mut Operands) -> Result<Option<Decoded>> {
    let mut args = NO_ARGS;
    match opcode {
        ["bar" | "barrier", "sync"] | ["bar" | "barrier", "sync", "aligned"] => {
            match operands.take()? {
                Operand::Bits(0) => Ok(Some((Op::Barrier, NO_ARGS, 0))),
                _ => Err(operands.statement.error("only barrier 0 is known")),
            }
        }
        ["bar", "warp", "sync"] => {
            args[4] = operands.int(32)?;
            Ok(Some((Op::SyncWarp, args, 0)))
        }
        ["shfl", "sync", mode, "b32"] => shuffle(mode, operands),
        ["vote", "sync", mode, ty] => vote(mode, ty, operands),
        ["redux", "sync", op, ty] => reduce(op, ty, operands),
        [
            "mma",
            "sync",
            "aligned",
            "m16n8k16",
            "row",
            "col",
            "f32",
            a,
            b,
            "f32",
        ] if a == b => {
            let ty = match *a {
                "f16" => Type::F16,
                "bf16" => Type::Bf16,
                _ => return Ok(None),
            };
            matrices(Op::Mma(ty), [4, 4, 2, 4], operands)
        }
        [
            "mma",
            "sync",
            "aligned",
            shape @ ("m16n8k16" | "m16n8k32"),
            "row",
            "col",
            "s32",
            a @ ("s8" | "u8"),
            b @ ("s8" | "u8"),
            "s32",
        ] => {
            let is_half = *shape == "m16n8k16";
            let signs = (*a == "s8", *b == "s8");
            let lengths = if is_half { [4, 2, 1, 4] } else { [4, 4, 2, 4] };
            matrices(Op::MmaBytes { is_half, signs }, lengths, operands)
        }
        ["ldmatrix", "sync", "aligned", "m8n8", rest @ ..] => load_matrix(rest, operands),
        _ => Ok(None),
    }
}

fn shuffle(mode: &str, operands: &mut Operands) -> Result<Option<Decoded>> {
    let mode = match mode {
        "up" => ShuffleMode::Up,
        "down" => ShuffleMode::Down,
        "bfly" => ShuffleMode::Butterfly,
        "idx" => ShuffleMode::Index,
        _ => return Ok(None),
    };
    let mut args = NO_ARGS;
    // d and p, then value, lane, clamp, mask: six, so the predicate goes to the list.
    let mut predicate = NO_SLOT;
    match operands.take()? {
        Operand::Both(d, p) => {
            args[0] = operands.decoder.register(operands.statement, d)?;
            predicate = operands.decoder.register(operands.statement, p)?;
        }
        operand => args[0] = operands.slot_of(operand)?,
    }
    for arg in &mut args[1..] {
        *arg = operands.int(32)?;
    }
    Ok(Some((Op::Shuffle(mode), args, u32::from(predicate))))
}

fn vote(mode: &str, ty: &str, operands: &mut Operands) -> Result<Option<Decoded>> {
    let mode = match (mode, ty) {
        ("all", "pred") => VoteMode::All,
        ("any", "pred") => VoteMode::Any,
        ("uni", "pred") => VoteMode::Uniform,
        ("ballot", "b32") => VoteMode::Ballot,
        _ => return Ok(None),
    };
    let mut args = NO_ARGS;
    args[0] = operands.value()?;
    args[1] = operands.value()?;
    args[4] = operands.int(32)?;
    Ok(Some((Op::Vote(mode), args, 0)))
}

fn reduce(op: &str, ty: &str, operands: &mut Operands) -> Result<Option<Decoded>> {
    let op = match op {
        "add" => IntOp::Add,
        "min" => IntOp::Min,
        "max" => IntOp::Max,
        "and" => IntOp::And,
        "or" => IntOp::Or,
        "xor" => IntOp::Xor,
        _ => return Ok(None),
    };
    let int = Type::named(ty).and_then(Type::int);
    let Some(int) = int.filter(|int| int.bits == 32) else {
        return Ok(None);
    };
    let mut args = NO_ARGS;
    args[0] = operands.value()?;
    args[1] = operands.int(32)?;
    args[4] = operands.int(32)?;
    Ok(Some((Op::Reduce(op, int), args, 0)))
}

fn matrices(op: Op, wanted: [usize; 4], operands: &mut Operands) -> Result<Option<Decoded>> {
    let mut args = NO_ARGS;
    args[4] = operands.decoder.number(u64::from(u32::MAX));
    let (list, length) = operands.list()?;
    let lengths = [
        length,
        operands.list()?.1,
        operands.list()?.1,
        operands.list()?.1,
    ];
    match lengths == wanted {
        true => Ok(Some((op, args, list))),
        false => Err(operands.statement.error("vectors of other lengths")),
    }
}

fn load_matrix(modifiers: &[&str], operands: &mut Operands) -> Result<Option<Decoded>> {
    let (count, is_transposed) = match modifiers {
        [count, "shared", "b16"] => (count, false),
        [count, "trans", "shared", "b16"] => (count, true),
        _ => return Ok(None),
    };
    let count = match *count {
        "x1" => 1,
        "x2" => 2,
        "x4" => 4,
        _ => return Ok(None),
    };
    let mut args = NO_ARGS;
    args[4] = operands.decoder.number(u64::from(u32::MAX));
    let (list, found) = operands.list()?;
    [args[1], args[2]] = operands.address()?;
    if found != usize::from(count) {
        return Err(operands.statement.error("a vector of another length"));
    }
    let op = Op::LoadMatrix {
        count,
        is_transposed,
    };
    Ok(Some((op, args, list)))
}

//! Opcodes that read and write memory.

use super::{Decoded, NO_ARGS, Operands};
use crate::Result;
use crate::op::{Access, Op, Space};
use crate::text::Operand;
use crate::types::Type;

pub(super) fn decode(opcode: &[&str], operands: &mut Operands) -> Result<Option<Decoded>> {
    match opcode {
        ["ld", rest @ ..] | ["st", rest @ ..] => access(opcode[0] == "ld", rest, operands),
        ["cvta", space @ ("global" | "shared" | "local"), "u64"] => {
            let op = Op::FromSpace(space_named(space));
            Ok(Some((op, operands.values::<1>()?, 0)))
        }
        ["cvta", "to", space @ ("global" | "shared" | "local"), "u64"] => {
            let op = Op::ToSpace(space_named(space));
            Ok(Some((op, operands.values::<1>()?, 0)))
        }
        ["atom", "shared", "add", "u32"] => {
            let mut args = NO_ARGS;
            args[0] = operands.value()?;
            [args[1], args[2]] = operands.address()?;
            args[3] = operands.int(32)?;
            Ok(Some((Op::AtomicAdd, args, 0)))
        }
        ["cp", "async", rest @ ..] => copy(rest, operands),
        _ => Ok(None),
    }
}

fn space_named(name: &str) -> Space {
    match name {
        "global" => Space::Global,
        "shared" => Space::Shared,
        "local" => Space::Local,
        "param" => Space::Param,
        _ => Space::Const,
    }
}

fn access(is_load: bool, modifiers: &[&str], operands: &mut Operands) -> Result<Option<Decoded>> {
    let (space, modifiers) = match modifiers {
        [name @ ("global" | "shared"), rest @ ..] => (space_named(name), rest),
        [name @ "local", rest @ ..] => (space_named(name), rest),
        [name @ ("param" | "const"), rest @ ..] if is_load => (space_named(name), rest),
        rest => (Space::Generic, rest),
    };
    // Hints about caches change no value.
    let modifiers = match modifiers {
        ["nc", rest @ ..] if is_load && space == Space::Global => rest,
        ["cg" | "cs" | "ca", rest @ ..] => rest,
        rest => rest,
    };
    let (count, ty) = match modifiers {
        [ty] => (1, ty),
        ["v2", ty] => (2, ty),
        ["v4", ty] => (4, ty),
        _ => return Ok(None),
    };
    let Some(ty) = Type::named(ty).filter(|ty| *ty != Type::Pred) else {
        return Ok(None);
    };
    let mut access = Access {
        space,
        count,
        bytes: ty.bytes() as u8,
        is_signed: ty.int().is_some_and(|int| int.signed),
        register_bits: 64,
    };
    let mut args = NO_ARGS;
    let (op, list, found);
    if is_load {
        (list, found) = operands.list()?;
        let first = operands.decoder.kernel.lists[list as usize];
        access.register_bits = operands.decoder.register_bits(first);
        op = Op::Load(access);
        [args[1], args[2]] = operands.address()?;
    } else {
        [args[1], args[2]] = operands.address()?;
        (list, found) = operands.list()?;
        op = Op::Store(access);
    }
    match found == usize::from(count) {
        true => Ok(Some((op, args, list))),
        false => Err(operands.statement.error("a vector of another length")),
    }
}

fn copy(modifiers: &[&str], operands: &mut Operands) -> Result<Option<Decoded>> {
    let number = |operands: &mut Operands| match operands.take()? {
        Operand::Bits(bits) => Ok(*bits),
        _ => Err(operands.statement.error("a number is wanted")),
    };
    match modifiers {
        ["commit_group"] => Ok(Some((Op::CommitCopies, NO_ARGS, 0))),
        ["wait_all"] => Ok(Some((Op::WaitCopies(u32::MAX), NO_ARGS, 0))),
        ["wait_group"] => {
            let groups = number(operands)? as u32;
            Ok(Some((Op::WaitCopies(groups), NO_ARGS, 0)))
        }
        [mode @ ("cg" | "ca"), "shared", "global"]
        | [mode @ ("cg" | "ca"), "shared", "global", "L2::128B"] => {
            let [to, to_offset] = operands.address()?;
            let [from, from_offset] = operands.address()?;
            let bytes = number(operands)?;
            let is_known = match *mode {
                "cg" => bytes == 16,
                _ => matches!(bytes, 4 | 8 | 16),
            };
            if !is_known {
                return Ok(None);
            }
            let read = match operands.left() {
                0 => operands.decoder.number(bytes),
                _ => operands.int(32)?,
            };
            let args = [to, to_offset, from, from_offset, read];
            Ok(Some((Op::CopyAsync(bytes as u8), args, 0)))
        }
        _ => Ok(None),
    }
}

//! What the threads of a warp do together.

use crate::Fault;
use crate::block::{Block, WARP};
use crate::integer::int;
use crate::matrix;
use crate::op::{Instruction, NO_SLOT, Op, ShuffleMode, VoteMode};

/// Runs an operation for the lanes in the mask, all of which stand at it. A fault comes with its lane.
pub(crate) fn run(
    block: &mut Block,
    warp: usize,
    instruction: &Instruction,
    mask: u32,
) -> Result<(), (usize, Fault)> {
    let mut lanes = Lanes { block, warp };
    let first = mask.trailing_zeros() as usize;
    let is_in = |lane: usize| mask >> lane & 1 == 1;
    let args = instruction.args;
    match instruction.op {
        Op::SyncWarp => Ok(()),
        Op::Vote(mode) => {
            let holds = |lane: usize| lanes.get(lane, args[1]) != 0;
            let mut ballot = 0u32;
            for lane in (0..WARP).filter(|&lane| is_in(lane) && holds(lane)) {
                ballot |= 1 << lane;
            }
            let result = match mode {
                VoteMode::Ballot => u64::from(ballot),
                VoteMode::All => u64::from(ballot == mask),
                VoteMode::Any => u64::from(ballot != 0),
                VoteMode::Uniform => u64::from(ballot == 0 || ballot == mask),
            };
            for lane in (0..WARP).filter(|&lane| is_in(lane)) {
                lanes.set(lane, args[0], result);
            }
            Ok(())
        }
        Op::Reduce(op, ty) => {
            let mut result = lanes.get(first, args[1]);
            for lane in (first + 1..WARP).filter(|&lane| is_in(lane)) {
                let operands = [result, lanes.get(lane, args[1]), 0, 0];
                result = int(op, ty, operands).map_err(|fault| (lane, fault))?;
            }
            for lane in (0..WARP).filter(|&lane| is_in(lane)) {
                lanes.set(lane, args[0], result);
            }
            Ok(())
        }
        Op::Shuffle(mode) => shuffle(&mut lanes, mode, instruction, mask),
        Op::Mma(_) | Op::MmaBytes { .. } | Op::LoadMatrix { .. } if mask != u32::MAX => Err((
            first,
            Fault::Undefined("matrices without a whole warp".into()),
        )),
        Op::MmaBytes { is_half, signs } => {
            matrix::multiply_bytes(&mut lanes, is_half, signs, instruction.list);
            Ok(())
        }
        Op::Mma(ty) => {
            matrix::multiply(&mut lanes, ty, instruction.list);
            Ok(())
        }
        Op::LoadMatrix {
            count,
            is_transposed,
        } => matrix::load(&mut lanes, instruction, count, is_transposed),
        op => unreachable!("{op:?} is run elsewhere"),
    }
}

/// The registers of a warp's threads.
pub(crate) struct Lanes<'a, 'b> {
    pub(crate) block: &'a mut Block<'b>,
    pub(crate) warp: usize,
}

impl Lanes<'_, '_> {
    fn at(&self, lane: usize, slot: u16) -> usize {
        (self.warp * WARP + lane) * self.block.kernel.registers.len() + usize::from(slot)
    }

    pub(crate) fn get(&self, lane: usize, slot: u16) -> u64 {
        self.block.registers[self.at(lane, slot)]
    }

    pub(crate) fn set(&mut self, lane: usize, slot: u16, value: u64) {
        let at = self.at(lane, slot);
        self.block.registers[at] = value;
    }
}

fn shuffle(
    lanes: &mut Lanes,
    mode: ShuffleMode,
    instruction: &Instruction,
    mask: u32,
) -> Result<(), (usize, Fault)> {
    let [d, a, b, c, _] = instruction.args;
    let predicate = instruction.list as u16;
    let mut results = [(0, false); WARP];
    for lane in (0..WARP).filter(|lane| mask >> lane & 1 == 1) {
        let by = lanes.get(lane, b) as usize & 31;
        let clamp = lanes.get(lane, c) as usize;
        let segment = clamp >> 8 & 31;
        let clamp = clamp & 31;
        let (most, least) = ((lane & segment) | (clamp & !segment & 31), lane & segment);
        let (from, is_inside) = match mode {
            ShuffleMode::Up => (lane.wrapping_sub(by), lane >= by + most),
            ShuffleMode::Down => (lane + by, lane + by <= most),
            ShuffleMode::Butterfly => (lane ^ by, lane ^ by <= most),
            ShuffleMode::Index => {
                let from = least | (by & !segment & 31);
                (from, from <= most)
            }
        };
        let from = if is_inside { from } else { lane };
        if mask >> from & 1 == 0 {
            return Err((
                lane,
                Fault::Undefined(format!("lane {from} is not in the mask")),
            ));
        }
        results[lane] = (lanes.get(from, a), is_inside);
    }
    for lane in (0..WARP).filter(|lane| mask >> lane & 1 == 1) {
        let (value, is_inside) = results[lane];
        lanes.set(lane, d, value);
        if predicate != NO_SLOT {
            lanes.set(lane, predicate, u64::from(is_inside));
        }
    }
    Ok(())
}

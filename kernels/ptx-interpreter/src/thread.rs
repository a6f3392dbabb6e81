//! One thread, from where it stands to where it must wait.

use crate::Fault;
use crate::block::{Block, MOST_INSTRUCTIONS};
use crate::float::{compare, convert, convert_pair, float};
use crate::integer::{dot4, funnel, int, logic, permute, wide};
use crate::memory::{LOCAL_WINDOW, SHARED_WINDOW};
use crate::op::{Access, Instruction, NO_SLOT, Op, Space};
use crate::types::Int;

/// Why a thread stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Its turn is over.
    Turn,
    Barrier,
    Warp,
    Exit,
}

/// The asynchronous copies of one thread, in groups.
#[derive(Default)]
pub(crate) struct Copies {
    open: Vec<Copy>,
    groups: std::collections::VecDeque<Vec<Copy>>,
}

struct Copy {
    to: u64,
    bytes: Vec<u8>,
}

/// A thread's own memory.
pub(crate) struct Local {
    bytes: Vec<u8>,
    is_written: Vec<bool>,
}

impl Local {
    pub(crate) fn new(bytes: u32) -> Self {
        Self {
            bytes: vec![0; bytes as usize],
            is_written: vec![false; bytes as usize],
        }
    }

    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Fault> {
        let at = inside("local memory", self.bytes.len(), address, out.len())?;
        let written = &self.is_written[at..at + out.len()];
        if let Some(i) = written.iter().position(|is| !is) {
            return Err(Fault::Uninitialised {
                space: "local".into(),
                address: address + i as u64,
            });
        }
        out.copy_from_slice(&self.bytes[at..at + out.len()]);
        Ok(())
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let at = inside("local memory", self.bytes.len(), address, bytes.len())?;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.is_written[at..at + bytes.len()].fill(true);
        Ok(())
    }
}

fn inside(space: &str, len: usize, address: u64, bytes: usize) -> Result<usize, Fault> {
    let size = bytes as u32;
    if !address.is_multiple_of(bytes as u64) {
        return Err(Fault::Misaligned {
            address,
            bytes: size,
        });
    }
    match address.checked_add(bytes as u64) {
        Some(end) if end <= len as u64 => Ok(address as usize),
        _ => Err(Fault::OutOfBounds {
            space: format!("{len} bytes of {space}"),
            address,
            bytes: size,
        }),
    }
}

impl Block<'_> {
    /// Runs a thread for so many instructions at most.
    pub(crate) fn run_thread(&mut self, thread: usize, turn: u64) -> Result<Stop, Fault> {
        let kernel = self.kernel;
        let (num, lists) = (kernel.registers.len(), kernel.lists.as_slice());
        let mut pc = self.threads[thread].pc;
        let start = self.instructions;
        let stop = loop {
            let instruction = &kernel.code[pc as usize];
            if self.instructions - start >= turn {
                break Ok(Stop::Turn);
            }
            if self.instructions - start > MOST_INSTRUCTIONS {
                break Err(Fault::Endless(MOST_INSTRUCTIONS));
            }
            self.instructions += 1;
            let registers = &mut self.registers[thread * num..][..num];
            if instruction.guard != NO_SLOT
                && (registers[usize::from(instruction.guard)] != 0) == instruction.is_negated
            {
                pc += 1;
                continue;
            }
            match instruction.op {
                Op::Branch => {
                    pc = instruction.list;
                    continue;
                }
                Op::Exit => break Ok(Stop::Exit),
                Op::Barrier => break Ok(Stop::Barrier),
                op if op.is_collective() => break Ok(Stop::Warp),
                _ => {}
            }
            let done = match compute(instruction, registers, lists) {
                Ok(false) => self.touch(thread, instruction),
                other => other.map(|_| ()),
            };
            if let Err(fault) = done {
                break Err(fault);
            }
            pc += 1;
        };
        self.threads[thread].pc = pc;
        stop
    }

    /// Instructions that read or write memory.
    fn touch(&mut self, thread: usize, instruction: &Instruction) -> Result<(), Fault> {
        let num = self.kernel.registers.len();
        let args = instruction.args;
        let value = |block: &Self, slot: u16| block.registers[thread * num + usize::from(slot)];
        let sum = |block: &Self, a, b| value(block, a).wrapping_add(value(block, b));
        match instruction.op {
            Op::Load(access) => {
                let address = sum(self, args[1], args[2]);
                self.load_registers(thread, access, address, instruction.list)?;
            }
            Op::Store(access) => {
                let address = sum(self, args[1], args[2]);
                self.store_registers(thread, access, address, instruction.list)?;
            }
            Op::AtomicAdd => {
                let (address, by) = (sum(self, args[1], args[2]), value(self, args[3]));
                let now = self.now(thread);
                let before = self.shared.add(now, address & 0xffff_ffff, by as u32)?;
                self.registers[thread * num + usize::from(args[0])] = u64::from(before);
            }
            Op::CopyAsync(size) => {
                let (to, from) = (sum(self, args[0], args[1]), sum(self, args[2], args[3]));
                let (to, size) = (to & 0xffff_ffff, usize::from(size));
                let mut bytes = vec![0; size];
                match value(self, args[4]) as usize {
                    0 => {}
                    read if read == size => self.memory.read(self.who(thread), from, &mut bytes)?,
                    _ => return Err(Fault::Undefined("a copy of a part".into())),
                }
                let now = self.now(thread);
                self.shared.begin(now, to, size)?;
                self.threads[thread].copies.open.push(Copy { to, bytes });
            }
            Op::CommitCopies => {
                let copies = &mut self.threads[thread].copies;
                let group = std::mem::take(&mut copies.open);
                copies.groups.push_back(group);
            }
            Op::WaitCopies(most) => self.wait_copies(thread, most)?,
            op => unreachable!("{op:?} is run elsewhere"),
        }
        Ok(())
    }

    fn load_registers(
        &mut self,
        thread: usize,
        access: Access,
        address: u64,
        list: u32,
    ) -> Result<(), Fault> {
        let (size, count) = (usize::from(access.bytes), usize::from(access.count));
        let mut bytes = [0; 16];
        self.load(thread, access, address, &mut bytes[..size * count])?;
        let loaded = Int {
            bits: 8 * access.bytes,
            signed: access.is_signed,
        };
        let first = thread * self.kernel.registers.len();
        let slots = &self.kernel.lists[list as usize..][..count];
        for (slot, bytes) in slots.iter().zip(bytes.chunks_exact(size)) {
            let mut word = [0; 8];
            word[..size].copy_from_slice(bytes);
            let word = loaded.extended(u64::from_le_bytes(word));
            let register = Int::unsigned(access.register_bits);
            self.registers[first + usize::from(*slot)] = register.wrap(word);
        }
        Ok(())
    }

    fn store_registers(
        &mut self,
        thread: usize,
        access: Access,
        address: u64,
        list: u32,
    ) -> Result<(), Fault> {
        let (size, count) = (usize::from(access.bytes), usize::from(access.count));
        let first = thread * self.kernel.registers.len();
        let slots = &self.kernel.lists[list as usize..][..count];
        let mut bytes = [0; 16];
        for (slot, bytes) in slots.iter().zip(bytes.chunks_exact_mut(size)) {
            let word = self.registers[first + usize::from(*slot)].to_le_bytes();
            bytes.copy_from_slice(&word[..size]);
        }
        self.store(thread, access, address, &bytes[..size * count])
    }

    fn wait_copies(&mut self, thread: usize, most: u32) -> Result<(), Fault> {
        let now = self.now(thread);
        let copies = &mut self.threads[thread].copies;
        let mut most = most as usize;
        if most == u32::MAX as usize {
            let group = std::mem::take(&mut copies.open);
            copies.groups.push_back(group);
            most = 0;
        }
        while copies.groups.len() > most {
            for copy in copies.groups.pop_front().into_iter().flatten() {
                self.shared.arrive(now, copy.to, &copy.bytes)?;
            }
        }
        Ok(())
    }

    fn load(
        &mut self,
        thread: usize,
        access: Access,
        address: u64,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let (space, address) = resolved(access.space, address);
        let table = match space {
            Space::Shared => {
                let now = self.now(thread);
                return self.shared.read(now, address, out);
            }
            Space::Local => return self.threads[thread].local.read(address, out),
            Space::Param => ("parameters", self.params),
            Space::Const => ("constants", self.constants),
            Space::Global | Space::Generic => {
                return self.memory.read(self.who(thread), address, out);
            }
        };
        let at = inside(table.0, table.1.len(), address, out.len())?;
        out.copy_from_slice(&table.1[at..at + out.len()]);
        Ok(())
    }

    fn store(
        &mut self,
        thread: usize,
        access: Access,
        address: u64,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        let (space, address) = resolved(access.space, address);
        match space {
            Space::Shared => {
                let now = self.now(thread);
                self.shared.write(now, address, bytes)
            }
            Space::Local => self.threads[thread].local.write(address, bytes),
            _ => {
                let who = self.who(thread);
                self.memory.write(who, address, bytes)
            }
        }
    }
}

/// Which space a generic address is in.
fn resolved(space: Space, address: u64) -> (Space, u64) {
    match (space, address / SHARED_WINDOW) {
        (Space::Generic, 1) => (Space::Shared, address - SHARED_WINDOW),
        (Space::Generic, 2) => (Space::Local, address - LOCAL_WINDOW),
        (Space::Generic, _) => (Space::Global, address),
        // Shared addresses have 32 bits.
        (Space::Shared, _) => (Space::Shared, address & 0xffff_ffff),
        _ => (space, address),
    }
}

/// Instructions that only touch registers; false for any other.
#[inline(always)]
fn compute(instruction: &Instruction, r: &mut [u64], lists: &[u16]) -> Result<bool, Fault> {
    let [d, a, b, c, e] = instruction.args.map(usize::from);
    let list = &lists[instruction.list as usize..];
    let slot = |i: usize| usize::from(list[i]);
    r[d] = match instruction.op {
        Op::Mov => r[a],
        Op::Int(op, ty) => int(op, ty, [r[a], r[b], r[c], r[e]])?,
        Op::Float(op, format) => float(op, format, [r[a], r[b], r[c]]),
        Op::Wide(ty) => wide(ty, r[a], r[b], r[c]),
        Op::Select => match r[c] != 0 {
            true => r[a],
            false => r[b],
        },
        Op::Convert(conversion) => convert(conversion, r[a]),
        Op::ConvertPair(to) => convert_pair(to, r[a], r[b]),
        Op::Logic3(table) => logic(table, r[a], r[b], r[c]),
        Op::Permute => permute(r[a], r[b], r[c]),
        Op::Dot4(x, y) => dot4((x, y), r[a], r[b], r[c]),
        Op::Funnel { left, clamp } => funnel(left, clamp, r[a], r[b], r[c]),
        Op::Pack(count, bits) => (0..usize::from(count))
            .map(|i| Int::unsigned(bits).wrap(r[slot(i)]) << (usize::from(bits) * i))
            .fold(0, |all, part| all | part),
        Op::ToSpace(space) => match resolved(Space::Generic, r[a]) {
            (found, address) if found == space => address,
            _ => return Err(Fault::Undefined("an address of another space".into())),
        },
        Op::FromSpace(Space::Shared) => r[a] + SHARED_WINDOW,
        Op::FromSpace(Space::Local) => r[a] + LOCAL_WINDOW,
        Op::FromSpace(_) => r[a],
        Op::Compare(comparison) => {
            let joined = match instruction.args[3] {
                NO_SLOT => 0,
                _ => r[c],
            };
            let (holds, other) = compare(comparison, r[a], r[b], joined);
            if instruction.args[4] != NO_SLOT {
                r[e] = u64::from(other);
            }
            u64::from(holds)
        }
        Op::Unpack(count, bits) => {
            let value = r[a];
            for i in 0..usize::from(count) {
                r[slot(i)] = Int::unsigned(bits).wrap(value >> (usize::from(bits) * i));
            }
            return Ok(true);
        }
        _ => return Ok(false),
    };
    Ok(true)
}

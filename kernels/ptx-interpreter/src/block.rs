//! One block: whose turn it is, and who waits for whom.

use crate::launch::{Launch, Turns};
use crate::memory::{Memory, Who};
use crate::module::{Kernel, Special};
use crate::op::{Instruction, Op};
use crate::shared::{Now, Shared};
use crate::thread::{Copies, Local, Stop};
use crate::warp;
use crate::{Error, Fault, Result};

/// Instructions of a thread, on the average of its block, after which it is taken to never end.
pub(crate) const MOST_INSTRUCTIONS: u64 = 1_000_000;
pub(crate) const WARP: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    AtBarrier,
    /// At an operation of its warp.
    InWarp,
    Exited,
}

pub(crate) struct Thread {
    pub(crate) pc: u32,
    pub(crate) state: State,
    pub(crate) copies: Copies,
    pub(crate) local: Local,
}

pub(crate) struct Block<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) constants: &'a [u8],
    pub(crate) params: &'a [u8],
    pub(crate) memory: &'a mut Memory,
    pub(crate) shared: Shared,
    pub(crate) registers: Vec<u64>,
    pub(crate) threads: Vec<Thread>,
    /// Barriers so far, from 1.
    pub(crate) epoch: u32,
    pub(crate) warp_epochs: Vec<u32>,
    /// Numbers of the launch and of the block in it.
    numbers: (u32, u32),
    index: [u32; 3],
    pub(crate) instructions: u64,
}

impl<'a> Block<'a> {
    pub(crate) fn new(
        kernel: &'a Kernel,
        (constants, params): (&'a [u8], &'a [u8]),
        launch: &Launch,
        (launch_number, number): (u32, u32),
        index: [u32; 3],
        memory: &'a mut Memory,
    ) -> Self {
        let threads: u32 = launch.block.iter().product();
        let mut registers = Vec::with_capacity(threads as usize * kernel.registers.len());
        for thread in 0..threads {
            let start = registers.len();
            registers.extend(&kernel.registers);
            let [x, y, _] = launch.block;
            let place = [thread % x, thread / x % y, thread / x / y];
            for &(slot, special) in &kernel.specials {
                let value = match special {
                    Special::Thread(axis) => place[axis],
                    Special::Block(axis) => index[axis],
                    Special::Threads(axis) => launch.block[axis],
                    Special::Blocks(axis) => launch.grid[axis],
                    Special::Lane => thread % WARP as u32,
                    Special::Warp => thread / WARP as u32,
                };
                registers[start + usize::from(slot)] = u64::from(value);
            }
        }
        let thread = |_| Thread {
            pc: 0,
            state: State::Running,
            copies: Copies::default(),
            local: Local::new(kernel.local_bytes),
        };
        Self {
            kernel,
            constants,
            params,
            memory,
            shared: Shared::new(launch.shared_bytes, kernel.static_shared_bytes),
            registers,
            threads: (0..threads).map(thread).collect(),
            epoch: 1,
            warp_epochs: vec![0; threads as usize / WARP],
            numbers: (launch_number, number),
            index,
            instructions: 0,
        }
    }

    /// To the end of all threads.
    pub(crate) fn run(&mut self, turns: &mut Turns) -> Result<()> {
        let mut order: Vec<u32> = (0..self.threads.len() as u32).collect();
        turns.arrange(&mut order);
        loop {
            let mut has_moved = false;
            for &thread in &order {
                let thread = thread as usize;
                if self.threads[thread].state == State::Running {
                    let stop = self.take_turn(thread, turns.length());
                    stop.map_err(|fault| self.error(thread, fault))?;
                    has_moved = true;
                }
            }
            for warp in 0..self.warp_epochs.len() {
                has_moved |= self.run_warp(warp)?;
            }
            has_moved |= self.pass_barrier()?;
            if !has_moved {
                return match self.threads.iter().all(|t| t.state == State::Exited) {
                    true => Ok(()),
                    false => Err(self.stuck()),
                };
            }
            if self.instructions > MOST_INSTRUCTIONS * self.threads.len() as u64 {
                return Err(self.error(0, Fault::Endless(self.instructions)));
            }
            turns.arrange(&mut order);
        }
    }

    fn take_turn(&mut self, thread: usize, instructions: u64) -> std::result::Result<(), Fault> {
        match self.run_thread(thread, instructions)? {
            Stop::Turn => {}
            Stop::Barrier => self.threads[thread].state = State::AtBarrier,
            Stop::Warp => self.threads[thread].state = State::InWarp,
            Stop::Exit => {
                self.threads[thread].state = State::Exited;
            }
        }
        Ok(())
    }

    pub(crate) fn at(&self, thread: usize) -> &'a Instruction {
        &self.kernel.code[self.threads[thread].pc as usize]
    }

    pub(crate) fn now(&self, thread: usize) -> Now {
        Now {
            thread: thread as u32,
            epoch: self.epoch,
            warp_epoch: self.warp_epochs[thread / WARP],
        }
    }

    pub(crate) fn who(&self, thread: usize) -> Who {
        Who {
            launch: self.numbers.0,
            block: self.numbers.1,
            thread: thread as u32,
        }
    }

    /// Runs the operations of a warp that all their threads have come to.
    fn run_warp(&mut self, warp: usize) -> Result<bool> {
        let mut has_moved = false;
        for lane in 0..WARP {
            let thread = warp * WARP + lane;
            if self.threads[thread].state != State::InWarp {
                continue;
            }
            let (pc, mask) = (self.threads[thread].pc, self.mask(thread));
            if mask >> lane & 1 == 0 {
                let fault =
                    Fault::Undefined("an operation of the warp without its own thread".into());
                return Err(self.error(thread, fault));
            }
            let is_here = |lane: usize| {
                let other = &self.threads[warp * WARP + lane];
                mask >> lane & 1 == 0
                    || (other.state == State::InWarp
                        && other.pc == pc
                        && self.mask(warp * WARP + lane) == mask)
            };
            if !(0..WARP).all(is_here) {
                continue;
            }
            let instruction = *self.at(thread);
            warp::run(self, warp, &instruction, mask)
                .map_err(|(lane, fault)| self.error(warp * WARP + lane, fault))?;
            for lane in (0..WARP).filter(|lane| mask >> lane & 1 == 1) {
                let thread = &mut self.threads[warp * WARP + lane];
                thread.pc += 1;
                thread.state = State::Running;
            }
            if instruction.op == Op::SyncWarp && mask == u32::MAX {
                self.warp_epochs[warp] += 1;
            }
            has_moved = true;
        }
        Ok(has_moved)
    }

    fn mask(&self, thread: usize) -> u32 {
        let slot = usize::from(self.at(thread).args[4]);
        self.registers[thread * self.kernel.registers.len() + slot] as u32
    }

    /// Lets all go on when all are at one barrier.
    fn pass_barrier(&mut self) -> Result<bool> {
        let Some(first) = self
            .threads
            .iter()
            .position(|t| t.state == State::AtBarrier)
        else {
            return Ok(false);
        };
        let pc = self.threads[first].pc;
        if !self.threads.iter().all(|t| t.state == State::AtBarrier) {
            return Ok(false);
        }
        if let Some(other) = self.threads.iter().position(|t| t.pc != pc) {
            return Err(self.divergent(first, other));
        }
        self.epoch += 1;
        for thread in &mut self.threads {
            thread.pc += 1;
            thread.state = State::Running;
        }
        Ok(true)
    }

    fn whereabouts(&self, thread: usize) -> String {
        let Thread { pc, state, .. } = &self.threads[thread];
        match state {
            State::Exited => "has ended".into(),
            _ => format!("is at line {}", self.kernel.lines[*pc as usize].0),
        }
    }

    fn divergent(&self, thread: usize, other: usize) -> Error {
        let fault = Fault::DivergentBarrier {
            other: other as u32,
            state: self.whereabouts(other),
        };
        self.error(thread, fault)
    }

    /// Nobody can go on, and not all have ended.
    fn stuck(&self) -> Error {
        let waiting = |thread: &Thread| thread.state == State::InWarp;
        let Some(thread) = self.threads.iter().position(waiting) else {
            let at = |thread: &Thread| thread.state == State::AtBarrier;
            let thread = self.threads.iter().position(at).unwrap_or(0);
            let others = self
                .threads
                .iter()
                .position(|t| t.state != State::AtBarrier);
            return self.divergent(thread, others.unwrap_or(0));
        };
        let (warp, mask) = (thread / WARP * WARP, self.mask(thread));
        let pc = self.threads[thread].pc;
        let missing = (0..WARP)
            .filter(|lane| mask >> lane & 1 == 1)
            .map(|lane| warp + lane)
            .find(|&other| {
                let at = &self.threads[other];
                at.state != State::InWarp || at.pc != pc || self.mask(other) != mask
            });
        let other = missing.unwrap_or(thread);
        let fault = Fault::DivergentWarp {
            other: other as u32,
            state: self.whereabouts(other),
        };
        self.error(thread, fault)
    }

    pub(crate) fn error(&self, thread: usize, fault: Fault) -> Error {
        let (line, text) = &self.kernel.lines[self.threads[thread].pc as usize];
        Error::Fault {
            fault,
            thread: thread as u32,
            block: self.index,
            line: *line,
            text: text.clone(),
        }
    }
}

//! A grid of blocks.

use crate::block::Block;
use crate::memory::{Buffer, Memory};
use crate::module::{Kernel, Module};
use crate::{Error, Result};

/// An argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// The address of a buffer.
    Buffer(Buffer),
    /// A 32-bit number.
    U32(u32),
    /// A 64-bit number, also an address.
    U64(u64),
    /// A float.
    F32(f32),
}

/// In which order blocks, and the threads of a block, take their turns. A kernel without races gives the same bits in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By index, each as far as it comes.
    Forward,
    /// The last index first.
    Backward,
    /// Shuffled anew for every turn, with turns of random length.
    Random(u64),
}

/// How a kernel is launched.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// One for each parameter.
    pub arguments: &'a [Argument],
    /// Order of turns.
    pub order: Order,
}

impl Module {
    /// Bytes of each parameter of a kernel, in order.
    ///
    /// # Errors
    /// When there is no such kernel.
    pub fn parameter_bytes(&self, name: &str) -> Result<Vec<u32>> {
        let params = &self.kernel(name)?.params;
        Ok(params.iter().map(|(bytes, _)| *bytes).collect())
    }

    /// Runs a kernel to its end.
    ///
    /// # Errors
    /// [`Error::Launch`] when the launch does not fit the kernel, [`Error::Fault`] at the first thing a thread must not do.
    pub fn run(&self, name: &str, launch: &Launch, memory: &mut Memory) -> Result<()> {
        let kernel = self.kernel(name)?;
        check(kernel, launch)?;
        let params = params(kernel, launch.arguments, memory)?;
        let number = memory.begin_launch();
        let mut turns = Turns::new(launch.order);
        let [x, y, z] = launch.grid;
        let mut order: Vec<u32> = (0..x * y * z).collect();
        turns.arrange(&mut order);
        for index in order {
            let at = [index % x, index / x % y, index / x / y];
            let tables = (self.constants.as_slice(), params.as_slice());
            let mut block = Block::new(kernel, tables, launch, (number, index), at, memory);
            block.run(&mut turns)?;
        }
        Ok(())
    }
}

fn check(kernel: &Kernel, launch: &Launch) -> Result<()> {
    let threads: u32 = launch.block.iter().product();
    let blocks: u64 = launch.grid.iter().map(|&n| u64::from(n)).product();
    let reason = if !(1..=1024).contains(&threads) || launch.block[2] > 64 {
        format!("{threads} threads a block")
    } else if !threads.is_multiple_of(32) {
        // A GPU takes them; no kernel here wants a warp with threads missing.
        format!("{threads} threads are no whole warps")
    } else if blocks == 0
        || blocks > u64::from(u32::MAX)
        || launch.grid[1].max(launch.grid[2]) > 65_535
    {
        format!("a grid of {:?}", launch.grid)
    } else if launch.arguments.len() != kernel.params.len() {
        format!(
            "{} arguments for {} parameters",
            launch.arguments.len(),
            kernel.params.len()
        )
    } else if launch.shared_bytes > 0 && !kernel.has_dynamic_shared {
        "dynamic shared memory, which the module does not have".into()
    } else {
        return Ok(());
    };
    Err(Error::Launch(format!("{}: {reason}", kernel.name)))
}

/// The bytes of the arguments, as the kernel reads them.
fn params(kernel: &Kernel, arguments: &[Argument], memory: &Memory) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for (i, (argument, &(size, offset))) in arguments.iter().zip(&kernel.params).enumerate() {
        let value = match *argument {
            Argument::Buffer(buffer) => memory.address(buffer).to_le_bytes().to_vec(),
            Argument::U64(value) => value.to_le_bytes().to_vec(),
            Argument::U32(value) => value.to_le_bytes().to_vec(),
            Argument::F32(value) => value.to_le_bytes().to_vec(),
        };
        if value.len() != size as usize {
            let reason = format!(
                "{}: argument {i} has {} bytes, its parameter {size}",
                kernel.name,
                value.len()
            );
            return Err(Error::Launch(reason));
        }
        bytes.resize(offset as usize, 0);
        bytes.extend(value);
    }
    Ok(bytes)
}

/// Chooses who comes next, and for how long.
pub(crate) struct Turns {
    order: Order,
    state: u64,
}

impl Turns {
    fn new(order: Order) -> Self {
        let state = match order {
            Order::Random(seed) => seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            _ => 1,
        };
        Self { order, state }
    }

    /// xorshift64* (Vigna, 2016).
    fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }

    /// Puts ascending indices in order.
    pub(crate) fn arrange(&mut self, indices: &mut [u32]) {
        match self.order {
            Order::Forward => {}
            Order::Backward => indices.sort_unstable_by(|a, b| b.cmp(a)),
            Order::Random(_) => {
                for i in (1..indices.len()).rev() {
                    let j = self.next() as usize % (i + 1);
                    indices.swap(i, j);
                }
            }
        }
    }

    /// Instructions of a turn.
    pub(crate) fn length(&mut self) -> u64 {
        match self.order {
            Order::Random(_) => 1 + self.next() % 256,
            _ => u64::MAX,
        }
    }
}

//! Runs PTX on the CPU, so that kernels are tested where there is no GPU. Only tests use it.
//!
//! [`Module::parse`] takes the text that nvcc 13.0 writes and decodes it once; [`Module::run`] executes a grid, block after
//! block, each thread with its own program counter. Whatever a thread must not do ends the run with an [`Error::Fault`] that
//! names the instruction, the thread and the block:
//!
//! - an access outside of a buffer of [`Memory`], of shared, local, parameter or constant memory, or a misaligned one;
//! - a read of shared, local or output memory that nobody wrote, or of what a `cp.async` has yet to write (its data arrive at
//!   the wait, never before);
//! - a race: two threads touch a byte of shared memory, one of them writing, with no `bar.sync` between them and, within a
//!   warp, no `bar.warp.sync` of the whole warp either;
//! - two threads of a launch that write the same byte of global memory, or a block that reads what another wrote;
//! - a barrier or an operation of the warp that not all of its threads come to, and a kernel that never ends.
//!
//! An opcode with types or modifiers that are not known is an error when the text is parsed. So is an f32 sum or product
//! without `.rn`, which the driver's compiler may join to a multiply-add: nobody could say which bits a GPU computes.
//! [`Order`] makes the threads take turns in different ways; a kernel without races gives the same bits in all.
//!
//! What it does not say: anything about speed, about memory order between blocks (each runs to its end before the next), about
//! the last bits of the approximate instructions and of the tensor cores' sums, or about registers that were never written
//! (they are zero). It knows `sm_80` instructions for every target.

mod block;
mod decode;
mod error;
mod float;
mod integer;
mod launch;
mod matrix;
mod memory;
mod module;
mod op;
mod shared;
mod text;
mod thread;
mod types;
mod warp;

pub use error::{Error, Fault, Result};
pub use launch::{Argument, Launch, Order};
pub use memory::{Buffer, Memory};
pub use module::{Kernel, Module};

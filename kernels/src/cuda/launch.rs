//! A launch of a kernel, as plain data.

use super::Source;
use crate::{Error, Result};

/// Elements of the largest head that the kernels take.
pub(crate) const MAX_HEAD_DIM: usize = 256;
/// Threads of a warp.
pub(crate) const WARP: u32 = 32;

/// One argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// An address in device memory, 0 for none.
    Address(u64),
    /// A 32-bit number.
    U32(u32),
    /// A 64-bit number.
    U64(u64),
    /// A float.
    F32(f32),
}

/// What a driver needs to know to run a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The text that has it.
    pub source: Source,
    /// Its name there.
    pub kernel: String,
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory. More than 48 KiB must be allowed first (`CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`).
    pub shared_bytes: u32,
    /// In the order of the kernel's parameters.
    pub arguments: Vec<Argument>,
}

/// A size as a kernel takes it.
pub(crate) fn number(op: &'static str, value: usize) -> Result<u32> {
    u32::try_from(value).map_err(|_| Error::argument(op, format!("{value} is too large")))
}

/// Sizes as kernels take them.
pub(crate) fn numbers<const N: usize>(op: &'static str, values: [usize; N]) -> Result<[u32; N]> {
    let mut out = [0; N];
    for (out, value) in out.iter_mut().zip(values) {
        *out = number(op, value)?;
    }
    Ok(out)
}

/// An error when a grid is empty or exceeds what devices take along y and z.
pub(crate) fn checked(op: &'static str, launch: Launch) -> Result<Launch> {
    let [x, y, z] = launch.grid;
    match x > 0 && (1..=65_535).contains(&y) && (1..=65_535).contains(&z) {
        true => Ok(launch),
        false => {
            let reason = format!("a grid of {x} × {y} × {z} blocks");
            Err(Error::argument(op, reason))
        }
    }
}

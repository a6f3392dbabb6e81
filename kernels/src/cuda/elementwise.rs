//! Launches of the kernels over rows of activations.

use super::launch::{WARP, checked, number, numbers};
use super::{Argument, Launch, Rows, Source};
use crate::{Error, Result, RopeKind};

/// Threads of most blocks.
const THREADS: usize = 256;

/// Rotates the heads of `tokens` tokens in place, the first of which stands at the position that `offset` (an address, of
/// u32) holds. `cos` and `sin` are addresses of `[positions, head_dim / 2]`.
///
/// # Errors
/// When a size does not fit the kernel.
pub fn rope(
    rows: Rows,
    (tokens, heads, head_dim): (usize, usize, usize),
    (cos, sin): (u64, u64),
    offset: u64,
    kind: RopeKind,
) -> Result<Launch> {
    const OP: &str = "rope on the GPU";
    if !head_dim.is_multiple_of(2) {
        return Err(Error::argument(OP, format!("heads of {head_dim} elements")));
    }
    let pairs = heads * head_dim / 2;
    let [stride, num_heads, dim] = numbers(OP, [rows.stride, heads, head_dim])?;
    let launch = Launch {
        source: Source::Rope,
        kernel: "rope".into(),
        grid: [number(OP, pairs.div_ceil(THREADS))?, number(OP, tokens)?, 1],
        threads: THREADS as u32,
        shared_bytes: 0,
        arguments: vec![
            Argument::Address(rows.address),
            Argument::Address(cos),
            Argument::Address(sin),
            Argument::Address(offset),
            Argument::U32(stride),
            Argument::U32(num_heads),
            Argument::U32(dim),
            Argument::U32(u32::from(kind == RopeKind::Halves)),
        ],
    };
    checked(OP, launch)
}

/// Adds `residual` to `x` (both `[rows, width]`; no residual where that is 0), then writes `x / sqrt(mean(x²) + eps) * weight`
/// to `out`, which may be `x`. All are addresses.
///
/// # Errors
/// When a size does not fit the kernel.
pub fn add_rms_norm(
    x: u64,
    residual: u64,
    weight: u64,
    out: u64,
    (rows, width): (usize, usize),
    eps: f32,
) -> Result<Launch> {
    const OP: &str = "rms_norm on the GPU";
    // By the width alone, since the order of sums depends on it: four elements a thread, up to 16 warps.
    let warps = width.div_ceil(4 * WARP as usize).clamp(1, 16) as u32;
    let launch = Launch {
        source: Source::RmsNorm,
        kernel: "add_rms_norm".into(),
        grid: [number(OP, rows)?, 1, 1],
        threads: warps * WARP,
        shared_bytes: warps * 4,
        arguments: vec![
            Argument::Address(x),
            Argument::Address(residual),
            Argument::Address(weight),
            Argument::Address(out),
            Argument::U32(number(OP, width)?),
            Argument::F32(eps),
        ],
    };
    checked(OP, launch)
}

/// `gate * sigmoid(gate) * up` for `len` elements into `out`, which may be `gate`. All are addresses.
///
/// # Errors
/// When a size does not fit the kernel.
pub fn swiglu(gate: u64, up: u64, out: u64, len: usize) -> Result<Launch> {
    const OP: &str = "swiglu on the GPU";
    let launch = Launch {
        source: Source::Swiglu,
        kernel: "swiglu".into(),
        grid: [number(OP, len.div_ceil(4 * THREADS))?, 1, 1],
        threads: THREADS as u32,
        shared_bytes: 0,
        arguments: vec![
            Argument::Address(gate),
            Argument::Address(up),
            Argument::Address(out),
            Argument::U32(number(OP, len)?),
        ],
    };
    // The kernel counts elements in 32 bits, a whole block beyond the last.
    match len <= u32::MAX as usize - 4 * THREADS {
        true => checked(OP, launch),
        false => Err(Error::argument(OP, format!("{len} elements"))),
    }
}

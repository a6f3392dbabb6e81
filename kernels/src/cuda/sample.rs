//! Launches of the sampling kernels.

use super::launch::{checked, number};
use super::{Argument, Launch, Source};
use crate::{Error, Result};

const OP: &str = "sampling on the GPU";
/// Candidates that the kernel ranks at most.
const MOST_CANDIDATES: usize = 256;
/// What `top_k` writes for a row in which more candidates would have to be ranked: the host must choose.
pub const UNDECIDED: u32 = u32::MAX;

/// What cuts the candidates of `sample_top_k`, in this order, and the temperature of what is left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cuts {
    /// Keep the k most likely tokens, at most 256.
    pub top_k: Option<usize>,
    /// Keep the most likely tokens that together reach this probability.
    pub top_p: Option<f32>,
    /// Keep the tokens at least this likely relative to the most likely one.
    pub min_p: Option<f32>,
    /// Above 0.
    pub temperature: f32,
}

/// The most likely token of each row of `logits` `[rows, vocab]`, the first of equal ones, to `tokens` `[rows]` u32; 0 where no
/// logit is a number. Both are addresses.
///
/// # Errors
/// When a size does not fit the kernel.
pub fn sample_greedy(logits: u64, tokens: u64, (rows, vocab): (usize, usize)) -> Result<Launch> {
    launch(
        "sample_greedy",
        rows,
        vec![
            Argument::Address(logits),
            Argument::Address(tokens),
            Argument::U32(number(OP, vocab)?),
        ],
    )
}

/// A token of each row of `logits` `[rows, vocab]` by `random` `[rows]` f64 in 0..1, to `tokens` `[rows]` u32, [`UNDECIDED`] where
/// more than 256 candidates would have to be ranked. All are addresses.
///
/// # Errors
/// When a size or a cut does not fit the kernel.
pub fn sample_top_k(
    logits: u64,
    random: u64,
    tokens: u64,
    (rows, vocab): (usize, usize),
    cuts: Cuts,
) -> Result<Launch> {
    let top_k = cuts.top_k.filter(|k| *k > 0).unwrap_or(0);
    if top_k > MOST_CANDIDATES {
        let reason = format!("top-k of {top_k}; at most {MOST_CANDIDATES}");
        return Err(Error::argument(OP, reason));
    }
    if cuts.temperature.is_nan() || cuts.temperature <= 0.0 {
        let reason = format!(
            "a temperature of {}; greedy is a kernel of its own",
            cuts.temperature
        );
        return Err(Error::argument(OP, reason));
    }
    launch(
        "sample_top_k",
        rows,
        vec![
            Argument::Address(logits),
            Argument::Address(random),
            Argument::Address(tokens),
            Argument::U32(number(OP, vocab)?),
            Argument::U32(top_k as u32),
            Argument::F32(cuts.top_p.filter(|p| (0.0..1.0).contains(p)).unwrap_or(1.0)),
            Argument::F32(cuts.min_p.filter(|p| *p > 0.0).unwrap_or(0.0)),
            // As the CPU's sampler: no division by almost nothing.
            Argument::F32(cuts.temperature.max(1e-3)),
        ],
    )
}

fn launch(kernel: &str, rows: usize, arguments: Vec<Argument>) -> Result<Launch> {
    let launch = Launch {
        source: Source::Sample,
        kernel: kernel.into(),
        grid: [number(OP, rows)?, 1, 1],
        threads: 1024,
        shared_bytes: 0,
        arguments,
    };
    checked(OP, launch)
}

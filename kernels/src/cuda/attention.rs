//! Launches of the attention kernels.

use super::launch::{checked, number, numbers};
use super::{Argument, KeyOffsets, Kv, Launch, Source};
use crate::layout::{Side, TILE_TOKENS};
use crate::{AttentionParams, Error, KvDtype, Result};

const OP: &str = "attention on the GPU";
/// Positions of a split of the context.
const SPLIT_TOKENS: usize = 128;
/// Warps of a block of `paged_attention_decode`.
const DECODE_WARPS: usize = 4;

/// Head sizes for which there are kernels on tensor cores.
const MMA_HEAD_DIMS: [usize; 4] = [64, 96, 128, 256];

/// Causal attention in one layer: `num_heads` query heads over the keys and values of `kv`.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// What is attended to; its offset is the position of the first query.
    pub kv: Kv,
    /// Query heads; head h belongs to KV head `h / (num_heads / num_kv_heads)`.
    pub num_heads: usize,
    /// Scale, window and soft-cap.
    pub params: AttentionParams,
    /// Address of a score for each query head that takes weight and has no value (`[num_heads]`), or 0.
    pub sinks: u64,
    /// Room for what scores over balanced keys lack, which `fill_key_offsets` fills; needed where keys are balanced.
    pub key_offsets: Option<KeyOffsets>,
}

impl Attention {
    pub(super) fn group(&self) -> Result<usize> {
        self.kv.check(OP)?;
        let kv_heads = self.kv.layout.num_kv_heads;
        match self.num_heads > 0 && self.num_heads.is_multiple_of(kv_heads) {
            true => Ok(self.num_heads / kv_heads),
            false => {
                let reason = format!("{} query heads for {kv_heads} KV heads", self.num_heads);
                Err(Error::argument(OP, reason))
            }
        }
    }

    pub(super) fn window(&self) -> Result<u32> {
        match self.params.window {
            Some(0) => Err(Error::argument(OP, "a window of 0 tokens")),
            window => number(OP, window.unwrap_or(0)),
        }
    }

    /// What the kernels take after their buffers.
    fn arguments(&self) -> Result<[Argument; 15]> {
        let layout = &self.kv.layout;
        let [num_heads, kv_heads, dim] =
            numbers(OP, [self.num_heads, layout.num_kv_heads, layout.head_dim])?;
        let [balance, key_offsets, key_offset_stride] = self.balance_arguments()?;
        Ok([
            Argument::Address(self.kv.blocks),
            Argument::Address(self.kv.offset),
            Argument::U64(self.kv.at(Side::Key)),
            Argument::U64(self.kv.at(Side::Value)),
            Argument::U32(num_heads),
            Argument::U32(kv_heads),
            Argument::U32(dim),
            Argument::U32(self.kv.format(Side::Key)),
            Argument::U32(self.kv.format(Side::Value)),
            Argument::U32(self.window()?),
            Argument::F32(self.params.scale),
            Argument::F32(self.params.softcap.unwrap_or(0.0)),
            balance,
            key_offsets,
            key_offset_stride,
        ])
    }

    /// Splits of a context of `positions`.
    fn splits(positions: usize) -> usize {
        positions.div_ceil(SPLIT_TOKENS)
    }

    /// Bytes that `decode` needs between its two kernels.
    pub fn parts_bytes(&self, tokens: usize, positions: usize) -> usize {
        4 * tokens * self.num_heads * Self::splits(positions) * (self.kv.layout.head_dim + 2)
    }

    /// Attends `tokens` queries `[tokens, num_heads, head_dim]` at the positions from the offset on, split over the context:
    /// two kernels, the second joining what the first left in `parts`. `positions` is at least the last query's position + 1;
    /// more is a bucket, so that a graph can be replayed further on. Outputs are as queries. All are addresses.
    ///
    /// # Errors
    /// When a size does not fit the kernels.
    pub fn decode(
        &self,
        queries: u64,
        parts: u64,
        out: u64,
        tokens: usize,
        positions: usize,
    ) -> Result<[Launch; 2]> {
        let group = self.group()?;
        let dim = self.kv.layout.head_dim;
        // As few heads at a time as hold the group, or 8.
        let heads = [1, 4, 8].into_iter().find(|n| *n >= group).unwrap_or(8);
        let pairs = if dim <= 128 { 2 } else { 4 };
        let [splits, num_tokens] = numbers(OP, [Self::splits(positions), tokens])?;
        let kv_heads = self.kv.layout.num_kv_heads * group.div_ceil(heads);
        let tile = self.kv.layout.tile_bytes(Side::Value);
        let warp = tile.max(heads * (dim + 2) * 4).next_multiple_of(16);
        let shared = 4 * heads * (dim + DECODE_WARPS * TILE_TOKENS) + DECODE_WARPS * warp;
        let mut arguments = vec![Argument::Address(queries), Argument::Address(parts)];
        arguments.extend(self.arguments()?);
        let decode = Launch {
            source: Source::AttentionDecode,
            kernel: format!("paged_attention_decode_{heads}_{pairs}"),
            grid: [splits, number(OP, kv_heads)?, num_tokens],
            threads: 32 * DECODE_WARPS as u32,
            shared_bytes: number(OP, shared)?,
            arguments,
        };
        let [num_heads, head_dim, rows] =
            numbers(OP, [self.num_heads, dim, tokens * self.num_heads])?;
        let combine = Launch {
            source: Source::AttentionDecode,
            kernel: "paged_attention_combine".into(),
            grid: [rows.div_ceil(DECODE_WARPS as u32), 1, 1],
            threads: 32 * DECODE_WARPS as u32,
            shared_bytes: 0,
            arguments: vec![
                Argument::Address(parts),
                Argument::Address(self.sinks),
                Argument::Address(out),
                Argument::Address(self.kv.offset),
                Argument::U32(num_tokens),
                Argument::U32(num_heads),
                Argument::U32(head_dim),
                Argument::U32(splits),
                Argument::U32(self.kv.format(Side::Value)),
                Argument::U32(self.window()?),
            ],
        };
        Ok([checked(OP, decode)?, checked(OP, combine)?])
    }

    /// Attends `tokens` queries `[tokens, num_heads, head_dim]` at the positions from the offset on, whose keys and values have
    /// been written, on a device of this compute capability (80 for 8.0). Outputs are as queries. Both are addresses.
    ///
    /// # Errors
    /// When a size does not fit the kernel.
    pub fn prefill(
        &self,
        queries: u64,
        out: u64,
        tokens: usize,
        compute_capability: u32,
    ) -> Result<Launch> {
        let group = self.group()?;
        let layout = &self.kv.layout;
        let dim = layout.head_dim;
        let has_bf16 = [layout.format.key, layout.format.value].map(|dtype| dtype == KvDtype::Bf16);
        let fits = compute_capability >= Source::AttentionPrefillMma.texts()[0].0
            && MMA_HEAD_DIMS.contains(&dim)
            && has_bf16[0] == has_bf16[1];
        let (source, kernel, rows, shared) = match fits {
            true => (
                Source::AttentionPrefillMma,
                format!(
                    "paged_attention_prefill_{dim}_{}",
                    if has_bf16[0] { "bf16" } else { "f16" }
                ),
                64,
                // Queries, keys and values of 64 rows or tokens, in 16 bits.
                3 * 64 * 2 * dim,
            ),
            false => (
                Source::AttentionPrefill,
                "paged_attention_prefill".into(),
                16,
                4 * (16 * (dim + 1) + TILE_TOKENS * dim),
            ),
        };
        let blocks = (tokens * group).div_ceil(rows);
        let [blocks, kv_heads, num_tokens, shared_bytes] =
            numbers(OP, [blocks, layout.num_kv_heads, tokens, shared])?;
        let mut arguments = vec![
            Argument::Address(queries),
            Argument::Address(self.sinks),
            Argument::Address(out),
            Argument::U32(num_tokens),
        ];
        arguments.extend(self.arguments()?);
        let launch = Launch {
            source,
            kernel,
            grid: [blocks, kv_heads, 1],
            threads: 128,
            shared_bytes,
            arguments,
        };
        checked(OP, launch)
    }
}

//! Keys and values on the device, and writing them.

use super::launch::{MAX_HEAD_DIM, checked, number, numbers};
use super::{Argument, Balance, Launch, Source};
use crate::layout::{Side, TILE_TOKENS};
use crate::{Error, KvDtype, KvLayout, Result};

/// The keys and values of a sequence in one layer.
#[derive(Clone, Copy, Debug)]
pub struct Kv {
    /// Geometry of the slots.
    pub layout: KvLayout,
    /// The layer.
    pub layer: usize,
    /// Address of the block table: for each 64 positions the address of their slot (u64), which is a multiple of 16.
    pub blocks: u64,
    /// Address of the position of the first token of the call (u32). On the device, so that a graph can be replayed further on.
    pub offset: u64,
    /// How keys of all layers are balanced before a format rotates and rounds them, if they are.
    pub balance: Option<Balance>,
}

/// Rows of activations `[tokens, heads * head_dim]`, which may be part of wider ones.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// Address of the first.
    pub address: u64,
    /// Elements from one to the next.
    pub stride: usize,
}

/// The number of a format in the kernels.
pub(super) fn code(dtype: KvDtype) -> u32 {
    match dtype {
        KvDtype::F16 => 0,
        KvDtype::Bf16 => 1,
        KvDtype::Q8 => 2,
        KvDtype::Q4 => 3,
    }
}

impl Kv {
    pub(super) fn check(&self, op: &'static str) -> Result<()> {
        let head_dim = self.layout.head_dim;
        if head_dim > MAX_HEAD_DIM || !head_dim.is_multiple_of(2) || !self.layout.is_sound() {
            let reason = format!(
                "heads of {head_dim} elements; the GPU takes even ones up to {MAX_HEAD_DIM}"
            );
            return Err(Error::argument(op, reason));
        }
        if self.layer >= self.layout.num_layers {
            let reason = format!("layer {} of {}", self.layer, self.layout.num_layers);
            return Err(Error::argument(op, reason));
        }
        Ok(())
    }

    /// Bytes from a slot's beginning to the layer's keys, or values.
    pub(super) fn at(&self, side: Side) -> u64 {
        self.layout.tile(side, self.layer, 0, 0).start as u64
    }

    pub(super) fn format(&self, side: Side) -> u32 {
        code(self.layout.dtype(side))
    }

    /// Writes the keys and values of `tokens` tokens, from `offset` on, into their tiles.
    ///
    /// # Errors
    /// When a size does not fit the kernel.
    pub fn write(&self, keys: Rows, values: Rows, tokens: usize) -> Result<Launch> {
        const OP: &str = "kv_write on the GPU";
        self.check(OP)?;
        let layout = &self.layout;
        let [num_tokens, kv_heads, dim] =
            numbers(OP, [tokens, layout.num_kv_heads, layout.head_dim])?;
        let [key_stride, value_stride] = numbers(OP, [keys.stride, values.stride])?;
        // As many tiles as the tokens touch when they begin at the end of one.
        let tiles = number(OP, (tokens + TILE_TOKENS - 2) / TILE_TOKENS + 1)?;
        let tile_bytes = layout
            .tile_bytes(Side::Key)
            .max(layout.tile_bytes(Side::Value));
        let [balance, cos, sin, halves] = self.balance_arguments();
        let launch = Launch {
            source: Source::KvWrite,
            kernel: "kv_write".into(),
            grid: [tiles, kv_heads, 2],
            threads: 512,
            shared_bytes: number(OP, tile_bytes)?,
            arguments: vec![
                Argument::Address(keys.address),
                Argument::Address(values.address),
                Argument::Address(self.blocks),
                Argument::Address(self.offset),
                Argument::U64(self.at(Side::Key)),
                Argument::U64(self.at(Side::Value)),
                Argument::U32(num_tokens),
                Argument::U32(key_stride),
                Argument::U32(value_stride),
                Argument::U32(kv_heads),
                Argument::U32(dim),
                Argument::U32(self.format(Side::Key)),
                Argument::U32(self.format(Side::Value)),
                balance,
                cos,
                sin,
                halves,
            ],
        };
        match tokens {
            0 => Err(Error::argument(OP, "no tokens")),
            _ => checked(OP, launch),
        }
    }
}

//! Balanced keys on the device: where their balance stands, and what scores over them lack.

use super::launch::{WARP, checked, number, numbers};
use super::{Argument, Attention, Kv, Launch, Source};
use crate::key_balance::DEVICE_PARTS;
use crate::{BLOCK_TOKENS, Error, Result, RopeKind};

const OP: &str = "key offsets on the GPU";
/// Rows of a block of threads: query heads of a KV head.
const ROWS: usize = 16;
/// Its columns: blocks of positions.
const COLUMNS: usize = 32;

/// Where the balance of a model's keys stands on the device (`KeyBalance` says what it is). It counts where the format of keys
/// rotates them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Balance {
    /// Address of `KeyBalance::device_numbers`.
    pub numbers: u64,
    /// Address of the cosines of the rotary angles `[positions, head_dim / 2]`, to the end of the last token's block.
    pub cos: u64,
    /// Address of their sines.
    pub sin: u64,
    /// Which elements of a head are rotated together.
    pub kind: RopeKind,
}

/// The table that `Attention::fill_key_offsets` fills: `[tokens, num_heads, columns]` f32, for each query what its score with the
/// key at position 0 lacks, and then with the others of each block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeyOffsets {
    /// Its address.
    pub address: u64,
    /// Positions that it has room for: at least the last query's position + 1; more is a bucket.
    pub positions: usize,
}

impl KeyOffsets {
    /// Entries of a query head.
    fn columns(positions: usize) -> usize {
        1 + positions.div_ceil(BLOCK_TOKENS)
    }
}

impl Kv {
    /// The balance of this layer's keys, if there is any.
    fn layer_balance(&self) -> Option<Balance> {
        let balance = self.balance.filter(|_| self.layout.format.key.is_rotated());
        balance.map(|balance| {
            let floats = self.layer * self.layout.row_elems() * DEVICE_PARTS;
            Balance {
                numbers: balance.numbers + 4 * floats as u64,
                ..balance
            }
        })
    }

    /// As kernels take it that need the centers.
    pub(super) fn balance_arguments(&self) -> [Argument; 4] {
        let balance = self.layer_balance();
        let address = |of: fn(&Balance) -> u64| Argument::Address(balance.as_ref().map_or(0, of));
        let is_halves = balance.is_some_and(|balance| balance.kind == RopeKind::Halves);
        [
            address(|balance| balance.numbers),
            address(|balance| balance.cos),
            address(|balance| balance.sin),
            Argument::U32(u32::from(is_halves)),
        ]
    }
}

impl Attention {
    /// Bytes of the table of key offsets of `tokens` queries over a context of `positions`; 0 where keys are not balanced.
    pub fn key_offsets_bytes(&self, tokens: usize, positions: usize) -> usize {
        match self.kv.layer_balance() {
            Some(_) => 4 * tokens * self.num_heads * KeyOffsets::columns(positions),
            None => 0,
        }
    }

    /// Fills the table of key offsets for `tokens` queries `[tokens, num_heads, head_dim]` (an address, a multiple of 16) at
    /// the positions from the offset on, before `decode` or `prefill` of the same queries; nothing to do where
    /// keys are not balanced.
    ///
    /// # Errors
    /// When a size does not fit the kernel, or keys are balanced and there is no table.
    pub fn fill_key_offsets(&self, queries: u64, tokens: usize) -> Result<Option<Launch>> {
        let (group, layout) = (self.group()?, &self.kv.layout);
        let Some(table) = self.needed_offsets()? else {
            return Ok(None);
        };
        let columns = KeyOffsets::columns(table.positions);
        let [rows, column_chunks] = [(tokens * group, ROWS), (columns, COLUMNS)]
            .map(|(all, of_block)| all.div_ceil(of_block));
        let [rows, kv_heads, column_chunks, columns] =
            numbers(OP, [rows, layout.num_kv_heads, column_chunks, columns])?;
        let [num_tokens, num_heads, dim] = numbers(OP, [tokens, self.num_heads, layout.head_dim])?;
        let [numbers, cos, sin, halves] = self.kv.balance_arguments();
        let launch = Launch {
            source: Source::KeyOffsets,
            kernel: "key_offsets".into(),
            grid: [rows, kv_heads, column_chunks],
            threads: 4 * WARP,
            // Centers [head_dim][columns + 1].
            shared_bytes: number(OP, 4 * layout.head_dim * (COLUMNS + 1))?,
            arguments: vec![
                Argument::Address(queries),
                Argument::Address(table.address),
                numbers,
                cos,
                sin,
                Argument::Address(self.kv.offset),
                Argument::U32(num_tokens),
                Argument::U32(num_heads),
                Argument::U32(kv_heads),
                Argument::U32(dim),
                halves,
                Argument::U32(columns),
                Argument::U32(self.window()?),
                Argument::F32(self.params.scale),
            ],
        };
        checked(OP, launch).map(Some)
    }

    /// The table of key offsets where keys are balanced.
    fn needed_offsets(&self) -> Result<Option<KeyOffsets>> {
        if self.kv.layer_balance().is_none() {
            return Ok(None);
        }
        match self.key_offsets {
            Some(table) => Ok(Some(table)),
            None => Err(Error::argument(OP, "balanced keys and no table for them")),
        }
    }

    /// What attention takes of a balance.
    pub(super) fn balance_arguments(&self) -> Result<[Argument; 3]> {
        let table = self.needed_offsets()?;
        let balance = self.kv.layer_balance();
        let columns = table.map_or(0, |table| KeyOffsets::columns(table.positions));
        Ok([
            Argument::Address(balance.map_or(0, |balance| balance.numbers)),
            Argument::Address(table.map_or(0, |table| table.address)),
            Argument::U32(number(OP, columns)?),
        ])
    }
}

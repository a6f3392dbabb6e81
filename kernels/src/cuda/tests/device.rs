//! Running launches, and sequences of keys and values in a device's memory.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};

use ptx_interpreter::{Argument as Given, Buffer, Error, Memory, Module, Order};

use super::balance::Balancing;
use crate::cpu::Path;
use crate::cuda::{Argument, Balance, Kv, Launch, Source};
use crate::hadamard::hadamard;
use crate::kv_write::{Rounded, read};
use crate::layout::{BLOCK_TOKENS, KvLayout, Side, TILE_TOKENS};
use crate::random::floats;
use crate::{KvFormat, RopeKind};

pub(super) const ORDERS: [Order; 3] = [Order::Forward, Order::Backward, Order::Random(7)];

/// The module of a text, parsed once.
fn parsed(text: &'static str) -> &'static Module {
    static MODULES: OnceLock<Mutex<HashMap<usize, &'static Module>>> = OnceLock::new();
    let mut modules = MODULES.get_or_init(Mutex::default).lock().unwrap();
    modules.entry(text.as_ptr() as usize).or_insert_with(|| {
        let module = Module::parse(text).unwrap_or_else(|error| panic!("{error}"));
        Box::leak(Box::new(module))
    })
}

/// Runs a launch with the kernels of a module.
pub(super) fn try_run(
    module: &Module,
    launch: &Launch,
    memory: &mut Memory,
    order: Order,
) -> Result<(), Error> {
    let given = |argument: &Argument| match *argument {
        Argument::Address(value) | Argument::U64(value) => Given::U64(value),
        Argument::U32(value) => Given::U32(value),
        Argument::F32(value) => Given::F32(value),
    };
    let arguments: Vec<Given> = launch.arguments.iter().map(given).collect();
    let given = ptx_interpreter::Launch {
        grid: launch.grid,
        block: [launch.threads, 1, 1],
        shared_bytes: launch.shared_bytes,
        arguments: &arguments,
        order,
    };
    module.run(&launch.kernel, &given, memory)
}

/// Runs a launch with the PTX that a device of this compute capability gets.
pub(super) fn run(launch: &Launch, memory: &mut Memory, compute_capability: u32, order: Order) {
    let module = parsed(launch.source.ptx(compute_capability).unwrap());
    if let Err(error) = try_run(module, launch, memory, order) {
        panic!("{} for {compute_capability}: {error}", launch.kernel);
    }
}

/// The compute capabilities for which a source has texts.
pub(super) fn targets(source: Source) -> impl Iterator<Item = u32> {
    source.texts().iter().map(|(least, _)| *least)
}

/// A conversation's keys and values in the last of two layers: in slots of their own, written by the CPU, and flat
/// `[len, kv_heads, head_dim]` as that rounded them; balanced keys are given as what they stand for. What nobody wrote is NaN,
/// or as bad as the format allows.
pub(super) struct Sequence {
    pub(super) layout: KvLayout,
    pub(super) slots: Vec<Buffer>,
    table: Buffer,
    balance: Option<Balance>,
    /// Keys before anything was done to them.
    pub(super) given_keys: Vec<f32>,
    pub(super) keys: Vec<f32>,
    pub(super) values: Vec<f32>,
}

pub(super) const LAYER: usize = 1;

pub(super) fn layout(format: KvFormat, num_kv_heads: usize, head_dim: usize) -> KvLayout {
    KvLayout {
        num_layers: 2,
        num_kv_heads,
        head_dim,
        format,
    }
}

/// Writes one head of one token as the CPU does, and tells what it has become.
pub(super) fn write_head(
    layout: &KvLayout,
    side: Side,
    slot: &mut [u8],
    (token, head): (usize, usize),
    x: &[f32],
) -> Vec<f32> {
    let range = layout.tile(side, LAYER, token % BLOCK_TOKENS / TILE_TOKENS, head);
    let tile = &mut slot[range];
    let place = (tile.as_mut_ptr(), token % TILE_TOKENS);
    // SAFETY: a whole tile, and one thread.
    unsafe { Rounded::default().write(Path::best(), layout, side, &mut x.to_vec(), place) };
    let mut row = read(layout, side, tile, token % TILE_TOKENS);
    if layout.dtype(side).is_rotated() {
        hadamard(Path::Scalar, &mut row, layout.head_dim);
    }
    row
}

impl Sequence {
    /// Keys are balanced, where their format is rotated, for a rope of this kind.
    pub(super) fn new(
        memory: &mut Memory,
        layout: KvLayout,
        len: usize,
        balance: Option<RopeKind>,
    ) -> Self {
        let balance = balance.filter(|_| layout.format.key.is_rotated());
        let balance = balance.map(|kind| Balancing::new(layout, len, kind));
        let mut given_keys = Vec::new();
        let mut bytes = vec![vec![0xff; layout.slot_bytes()]; len.div_ceil(BLOCK_TOKENS)];
        let [keys, values] = [(Side::Key, 1), (Side::Value, 2)].map(|(side, seed)| {
            let rows = floats(seed, len * layout.row_elems());
            let rows = rows.chunks_exact(layout.head_dim).enumerate();
            rows.flat_map(|(i, x)| {
                let (token, head) = (i / layout.num_kv_heads, i % layout.num_kv_heads);
                let (slot, place) = (&mut bytes[token / BLOCK_TOKENS], (token, head));
                let balance = balance.as_ref().filter(|_| side == Side::Key);
                let Some(balance) = balance else {
                    return write_head(&layout, side, slot, place, x);
                };
                let mut key = x.to_vec();
                balance.undo(place, &mut key);
                given_keys.extend_from_slice(&key);
                balance.balance(place, &mut key);
                let mut row = write_head(&layout, side, slot, place, &key);
                balance.undo(place, &mut row);
                row
            })
            .collect()
        });
        // The last block first, so that addresses do not follow positions.
        let mut slots: Vec<Buffer> = bytes
            .into_iter()
            .rev()
            .map(|bytes| memory.buffer("slot", bytes))
            .collect();
        slots.reverse();
        let addresses: Vec<u64> = slots.iter().map(|slot| memory.address(*slot)).collect();
        let table = memory.longs("block table", &addresses);
        Self {
            layout,
            slots,
            table,
            balance: balance.map(|balance| balance.on_device(memory)),
            given_keys,
            keys,
            values,
        }
    }

    /// For a call whose first token stands at `offset`.
    pub(super) fn at(&self, memory: &mut Memory, offset: usize) -> Kv {
        let offset = memory.words("offset", &[offset as u32]);
        Kv {
            layout: self.layout,
            layer: LAYER,
            blocks: memory.address(self.table),
            offset: memory.address(offset),
            balance: self.balance,
        }
    }
}

//! `kv_write` against the CPU's, byte for byte.

use std::ops::Range;

use ptx_interpreter::Memory;

use super::balance::{Balancing, KINDS};
use super::device::{ORDERS, Sequence, layout, run, write_head};
use crate::cuda::Rows;
use crate::layout::{BLOCK_TOKENS, Side, tests::formats};
use crate::random::floats;
use crate::{KvFormat, KvLayout, RopeKind};

/// Writes tokens `range` of a sequence on the GPU, and the same on the CPU; the slots must be equal to the byte, also where
/// nobody wrote.
fn check(layout: KvLayout, range: Range<usize>, magnitude: f32, order: usize) {
    check_balanced(layout, range, magnitude, order, None);
}

/// As `check`, with keys balanced where their format is rotated.
fn check_balanced(
    layout: KvLayout,
    range: Range<usize>,
    magnitude: f32,
    order: usize,
    balance: Option<RopeKind>,
) {
    let (dim, kv_heads) = (layout.head_dim, layout.num_kv_heads);
    let mut memory = Memory::new();
    let len = range.end.next_multiple_of(BLOCK_TOKENS);
    let sequence = Sequence::new(&mut memory, layout, len, balance);
    let balancing = balance.map(|kind| Balancing::new(layout, len, kind));
    // Keys and values stand in wider rows, a few elements in.
    let (tokens, stride) = (range.len(), layout.row_elems() + 4);
    let rows = |seed| -> Vec<f32> {
        let x = floats(seed, tokens * stride);
        x.iter().map(|x| x * magnitude).collect()
    };
    let given = [rows(5), rows(6)];
    let mut want: Vec<Vec<u8>> = sequence
        .slots
        .iter()
        .map(|slot| memory.bytes(*slot).to_vec())
        .collect();
    for (side, rows) in [Side::Key, Side::Value].into_iter().zip(&given) {
        for (i, position) in range.clone().enumerate() {
            for head in 0..kv_heads {
                let mut x = rows[i * stride + head * dim..][..dim].to_vec();
                let is_balanced = side == Side::Key && layout.format.key.is_rotated();
                if let Some(balancing) = balancing.as_ref().filter(|_| is_balanced) {
                    balancing.balance((position, head), &mut x);
                }
                let slot = &mut want[position / BLOCK_TOKENS];
                write_head(&layout, side, slot, (position, head), &x);
            }
        }
    }
    let [keys, values] = given.map(|rows| {
        let buffer = memory.floats("rows", &rows);
        Rows {
            address: memory.address(buffer),
            stride,
        }
    });
    let kv = sequence.at(&mut memory, range.start);
    let launch = kv.write(keys, values, tokens).unwrap();
    run(&launch, &mut memory, 75, ORDERS[order % ORDERS.len()]);
    for (slot, want) in sequence.slots.iter().zip(want) {
        let got = memory.bytes(*slot);
        let first = got.iter().zip(&want).position(|(a, b)| a != b);
        assert!(
            first.is_none(),
            "{} {dim} {range:?} × {magnitude} {balance:?}: byte {first:?}",
            layout.format
        );
    }
}

#[test]
fn bytes_are_those_of_the_cpu_in_every_format_and_head_size() {
    for (i, format) in formats().enumerate() {
        for dim in [32, 64, 96, 128, 160, 256] {
            check(layout(format, 2, dim), 13..35, 3.0, i);
        }
    }
    for format in ["f16", "bf16", "f16/bf16"] {
        for dim in [2, 20, 80] {
            check(layout(format.parse().unwrap(), 3, dim), 13..35, 3.0, 0);
        }
    }
}

#[test]
fn balanced_keys_have_the_bytes_of_the_cpu_in_both_kinds_of_rope_and_every_head_size() {
    for kind in KINDS {
        for (i, dim) in [32, 64, 96, 128, 160, 256].into_iter().enumerate() {
            for format in ["q8", "q4", "f16", "f16/q8", "q4/bf16"] {
                let layout = layout(format.parse().unwrap(), 2, dim);
                check_balanced(layout, 55..70, 3.0, i, Some(kind));
            }
            // The first token of all has a center of its own.
            check_balanced(layout(KvFormat::Q8, 2, dim), 0..3, 3.0, i, Some(kind));
        }
    }
}

#[test]
fn tokens_at_the_edges_of_tiles_and_blocks_leave_their_neighbours_alone() {
    for (i, range) in [0..1, 15..16, 15..17, 16..17, 0..16, 1..64, 63..65, 60..130]
        .into_iter()
        .enumerate()
    {
        for format in [KvFormat::F16, KvFormat::Q8, KvFormat::Q4] {
            check(layout(format, 1, 64), range.clone(), 1.0, i);
            if format.key.is_rotated() {
                let kind = KINDS[i % 2];
                check_balanced(layout(format, 2, 64), range.clone(), 1.0, i, Some(kind));
            }
        }
    }
}

#[test]
fn tiny_huge_and_zero_values_have_the_bytes_of_the_cpu() {
    for magnitude in [0.0, 1e-7, 1e-3, 300.0, 1e9] {
        for format in formats().filter(|format| format.key == format.value) {
            check(layout(format, 1, 64), 3..6, magnitude, 1);
        }
    }
}

#[test]
fn a_nan_is_not_hidden() {
    for format in formats().filter(|format| format.key == format.value) {
        let layout = layout(format, 1, 64);
        let mut memory = Memory::new();
        let sequence = Sequence::new(&mut memory, layout, 64, None);
        let mut x = floats(1, 64);
        x[40] = f32::NAN;
        let buffer = memory.floats("rows", &x);
        let rows = Rows {
            address: memory.address(buffer),
            stride: 64,
        };
        let launch = sequence.at(&mut memory, 9).write(rows, rows, 1).unwrap();
        run(&launch, &mut memory, 75, ORDERS[0]);
        for side in [Side::Key, Side::Value] {
            let tile = &memory.bytes(sequence.slots[0])[layout.tile(side, 1, 0, 0)];
            let got = crate::kv_write::read(&layout, side, tile, 9);
            assert!(got.iter().any(|x| x.is_nan()), "{format} {side:?}");
        }
    }
}

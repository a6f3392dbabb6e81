//! The kernels over rows of activations.

use ptx_interpreter::{Buffer, Memory};

use super::device::{ORDERS, run};
use crate::RopeKind;
use crate::cpu::Path;
use crate::cuda::{Rows, add_rms_norm, rope, swiglu};
use crate::random::{bits, floats};

fn floats_on(memory: &mut Memory, values: &[f32]) -> (Buffer, u64) {
    let buffer = memory.floats("floats", values);
    (buffer, memory.address(buffer))
}

#[test]
fn rope_has_the_bits_of_the_cpu_in_both_kinds_at_any_offset() {
    for kind in [RopeKind::Interleaved, RopeKind::Halves] {
        for (heads, dim) in [(1, 2), (9, 64), (3, 80), (2, 20), (5, 128)] {
            let (tokens, offset, stride) = (3, 7, heads * dim + 6);
            let x = floats(1, tokens * stride);
            let angles = (offset + tokens) * dim / 2;
            let (cos, sin) = (floats(2, angles), floats(3, angles));
            let mut want = x.clone();
            for (i, row) in want.chunks_exact_mut(stride).enumerate() {
                let at = (offset + i) * dim / 2..(offset + i + 1) * dim / 2;
                let (cos, sin) = (&cos[at.clone()], &sin[at]);
                crate::rope::rope(Path::best(), &mut row[..heads * dim], cos, sin, kind);
            }
            let mut memory = Memory::new();
            let (buffer, address) = floats_on(&mut memory, &x);
            let (cos, sin) = (
                floats_on(&mut memory, &cos).1,
                floats_on(&mut memory, &sin).1,
            );
            let offset = memory.words("offset", &[offset as u32]);
            let rows = Rows { address, stride };
            let shape = (tokens, heads, dim);
            let launch = rope(rows, shape, (cos, sin), memory.address(offset), kind).unwrap();
            run(&launch, &mut memory, 75, ORDERS[2]);
            assert_eq!(
                bits(&memory.read_floats(buffer)),
                bits(&want),
                "{kind:?} {dim}"
            );
        }
    }
}

/// The sums and the norms of some rows.
fn normed(x: &[f32], residual: Option<&[f32]>, weight: &[f32], order: usize) -> [Vec<f32>; 2] {
    let rows = x.len() / weight.len();
    let mut memory = Memory::new();
    let (sum, at) = floats_on(&mut memory, x);
    let residual = residual.map_or(0, |residual| floats_on(&mut memory, residual).1);
    let weights = floats_on(&mut memory, weight).1;
    let out = memory.uninitialised("out", x.len() * 4);
    let to = memory.address(out);
    let shape = (rows, weight.len());
    let launch = add_rms_norm(at, residual, weights, to, shape, 1e-5).unwrap();
    run(&launch, &mut memory, 75, ORDERS[order]);
    assert!(memory.is_written(out));
    [memory.read_floats(sum), memory.read_floats(out)]
}

#[test]
fn norms_equal_the_reference_at_ragged_widths_with_and_without_a_residual() {
    for width in [1, 7, 64, 80, 128, 577, 2048, 4096] {
        let rows = 3;
        let (x, residual) = (floats(1, rows * width), floats(3, rows * width));
        let weight = floats(2, width);
        for residual in [None, Some(residual.as_slice())] {
            let [sum, got] = normed(&x, residual, &weight, width % 3);
            let added = |i: usize| x[i] + residual.map_or(0.0, |residual| residual[i]);
            let want: Vec<f32> = (0..rows * width).map(added).collect();
            assert_eq!(bits(&sum), bits(&want));
            for (got, row) in got.chunks(width).zip(want.chunks(width)) {
                let squares: f64 = row.iter().map(|v| f64::from(*v).powi(2)).sum();
                let factor = 1.0 / (squares / width as f64 + 1e-5).sqrt();
                for ((got, x), weight) in got.iter().zip(row).zip(&weight) {
                    let want = f64::from(*x) * factor * f64::from(*weight);
                    assert!((f64::from(*got) - want).abs() <= 1e-5 * want.abs().max(1.0));
                }
            }
        }
    }
}

#[test]
fn a_row_has_the_same_norm_alone_among_others_and_in_any_order() {
    let (x, weight) = (floats(3, 5 * 576), floats(4, 576));
    let all = normed(&x, None, &weight, 0)[1].clone();
    for (i, row) in x.chunks(576).enumerate() {
        let one = normed(row, None, &weight, i % 3)[1].clone();
        assert_eq!(bits(&one), bits(&all[i * 576..][..576]));
    }
}

#[test]
fn a_norm_in_place_is_the_same() {
    let (x, weight) = (floats(3, 2 * 80), floats(4, 80));
    let mut memory = Memory::new();
    let (buffer, at) = floats_on(&mut memory, &x);
    let weights = floats_on(&mut memory, &weight).1;
    let launch = add_rms_norm(at, 0, weights, at, (2, 80), 1e-5).unwrap();
    run(&launch, &mut memory, 75, ORDERS[1]);
    let want = &normed(&x, None, &weight, 0)[1];
    assert_eq!(bits(&memory.read_floats(buffer)), bits(want));
}

#[test]
fn swiglu_has_the_bits_of_the_cpu_at_ragged_lengths_and_extreme_gates() {
    for len in [1, 3, 4, 1000, 1024, 1027, 5000] {
        let mut gate: Vec<f32> = floats(1, len).iter().map(|v| 8.0 * v).collect();
        for (gate, extreme) in gate.iter_mut().zip([-1e30f32, -200.0, 0.0, 200.0]) {
            *gate = extreme;
        }
        let up = floats(2, len);
        let mut want = gate.clone();
        crate::swiglu::swiglu(Path::best(), &mut want, &up);
        let mut memory = Memory::new();
        let (gates, ups) = (
            floats_on(&mut memory, &gate).1,
            floats_on(&mut memory, &up).1,
        );
        let out = memory.uninitialised("out", len * 4);
        let launch = swiglu(gates, ups, memory.address(out), len).unwrap();
        run(&launch, &mut memory, 75, ORDERS[len % 3]);
        assert!(memory.is_written(out));
        assert_eq!(bits(&memory.read_floats(out)), bits(&want), "{len}");
    }
}

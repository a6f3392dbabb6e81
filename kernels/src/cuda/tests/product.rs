//! Products with weights, and rounding activations for them.

use candle_core::quantized::GgmlDType;
use ptx_interpreter::Memory;

use super::device::{ORDERS, run};
use super::weights::{Case, DENSE, Kind, PACKED, matrix, quantized, reference, upload};
use crate::cuda::{Input, Output, Quantized, Rows, Weights};
use crate::lanes::{Lanes, Scalar};
use crate::random::{bits, floats};
use crate::{QuantizedMatrix, Team};

/// Columns that make three segments, of which the last is short where the format allows that.
fn ragged(format: GgmlDType) -> usize {
    match format.block_size() {
        1 => 2 * 256 + 20,
        32 => 2 * 256 + 3 * 32,
        _ => 3 * 256,
    }
}

/// The kernels of a format with the devices that run them.
fn kernels(format: GgmlDType) -> &'static [(Kind, u32)] {
    match DENSE.contains(&format) {
        true => &[(Kind::Decode, 75), (Kind::Prefill, 75)],
        false => &[
            (Kind::Decode, 75),
            (Kind::Decode, 80),
            (Kind::Prefill, 75),
            (Kind::Prefill, 80),
        ],
    }
}

fn check(matrix: &QuantizedMatrix, x: &[f32], (kind, target): (Kind, u32), order: usize) {
    let case = Case {
        order: ORDERS[order % 3],
        ..Case::new(matrix, x, kind, target)
    };
    let tokens = x.len() / matrix.cols();
    let want = reference(matrix, x);
    assert_eq!(
        bits(&case.run()),
        bits(&want),
        "{matrix:?} times {tokens} by {kind:?} for {target}"
    );
}

#[test]
fn every_kernel_computes_the_bits_of_the_reference_at_ragged_sizes() {
    for (i, format) in PACKED.into_iter().chain(DENSE).enumerate() {
        let cols = ragged(format);
        let ragged = matrix(format, 21, cols);
        let x = floats(3, 17 * cols);
        for (j, &kernel) in kernels(format).iter().enumerate() {
            let tokens = match kernel.0 {
                Kind::Decode => 1 + i % 2,
                Kind::Prefill => [7, 8, 9, 17][(i + j) % 4],
            };
            check(&ragged, &x[..tokens * cols], kernel, i + j);
        }
    }
}

#[test]
fn many_rows_and_tokens_are_many_blocks() {
    for (i, format) in [GgmlDType::Q4K, GgmlDType::Q8_0, GgmlDType::Q2K]
        .into_iter()
        .enumerate()
    {
        let (rows, cols) = (70, 256);
        let matrix = matrix(format, rows, cols);
        let x = floats(4, 65 * cols);
        check(&matrix, &x, (Kind::Prefill, 80), i);
        check(&matrix, &x[..20 * cols], (Kind::Prefill, 75), i);
        check(&matrix, &x[..7 * cols], (Kind::Decode, 80), i);
    }
}

#[test]
fn rows_of_more_segments_than_are_held_are_summed_in_the_same_order() {
    for format in [GgmlDType::Q4_0, GgmlDType::F16] {
        let cols = 65 * 256;
        let matrix = matrix(format, 2, cols);
        let x = floats(5, 2 * cols);
        check(&matrix, &x[..cols], (Kind::Decode, 75), 2);
        check(&matrix, &x, (Kind::Prefill, 75), 0);
    }
}

#[test]
fn products_are_close_to_the_cpus() {
    for format in PACKED.into_iter().chain(DENSE) {
        let (rows, cols) = (17, ragged(format));
        let matrix = matrix(format, rows, cols);
        let x = floats(6, cols);
        let want = matrix.forward(&x, &Team::new(1)).unwrap();
        let got = Case::new(&matrix, &x, Kind::Decode, 80).run();
        for (got, want) in got.iter().zip(want) {
            assert!((got - want).abs() < 1e-4, "{format:?}: {got} for {want}");
        }
    }
}

#[test]
fn a_bias_and_what_stands_there_are_added_after_the_sum() {
    for (format, kernel) in [
        (GgmlDType::Q4_1, (Kind::Decode, 80)),
        (GgmlDType::Q6K, (Kind::Prefill, 80)),
        (GgmlDType::Q5_0, (Kind::Prefill, 75)),
        (GgmlDType::BF16, (Kind::Prefill, 75)),
    ] {
        let (rows, cols, tokens) = (19, 256, 3);
        let matrix = matrix(format, rows, cols);
        let (x, bias) = (floats(7, tokens * cols), floats(8, rows));
        let residual = floats(9, tokens * rows);
        let sums = reference(&matrix, &x);
        let with_bias = sums.iter().zip(bias.iter().cycle()).map(|(sum, b)| sum + b);
        let with_bias: Vec<f32> = with_bias.collect();
        let case = Case {
            bias: Some(&bias),
            ..Case::new(&matrix, &x, kernel.0, kernel.1)
        };
        assert_eq!(bits(&case.run()), bits(&with_bias), "{format:?}");
        let case = Case {
            residual: Some(&residual),
            ..case
        };
        let all: Vec<f32> = residual
            .iter()
            .zip(&with_bias)
            .map(|(r, v)| r + v)
            .collect();
        assert_eq!(bits(&case.run()), bits(&all), "{format:?}");
    }
}

#[test]
fn the_rest_of_the_first_token_makes_fifteen_bits_of_eight_and_touches_no_other() {
    for kernel in [(Kind::Decode, 75), (Kind::Prefill, 75), (Kind::Prefill, 80)] {
        let (rows, cols, tokens) = (17, 512, 5);
        let matrix = matrix(GgmlDType::Q5K, rows, cols);
        let x = floats(10, tokens * cols);
        let once = Case::new(&matrix, &x, kernel.0, kernel.1);
        let twice = Case {
            has_rest: true,
            order: ORDERS[2],
            ..once
        };
        let (once, twice) = (once.run(), twice.run());
        assert_eq!(bits(&once[rows..]), bits(&twice[rows..]));
        let mut weights = Vec::new();
        let ids: Vec<u32> = (0..rows as u32).collect();
        matrix.embedding(&ids, &mut weights).unwrap();
        let error = |got: &[f32]| {
            let rows = weights.chunks_exact(cols).zip(got);
            let errors = rows.map(|(w, got)| {
                let products = w.iter().zip(&x).map(|(w, x)| f64::from(*w) * f64::from(*x));
                (products.sum::<f64>() - f64::from(*got)).abs()
            });
            errors.fold(0.0, f64::max)
        };
        let (once, twice) = (error(&once[..rows]), error(&twice[..rows]));
        assert!(twice < once / 50.0, "{kernel:?}: {twice} of {once}");
    }
}

/// Quants `[32]`, scale and sums of a group, as the CPU has them.
fn quantized_group(x: &[f32]) -> ([i8; 32], f32, [i32; 2]) {
    let mut quants = [0; 32];
    assert_eq!(x.len(), 32);
    // SAFETY: baseline instructions; 32 floats and quants are there.
    let (scale, sums) = unsafe { Scalar::quantize(x.as_ptr(), quants.as_mut_ptr()) };
    (quants, scale, sums)
}

#[test]
fn activations_are_rounded_to_the_bits_of_the_cpus_with_what_is_left_of_the_first() {
    for (tokens, groups, magnitude) in [(1, 1, 1.0), (3, 33, 1e4), (4, 8, 1e-20), (5, 2, 1e-38)] {
        let cols = groups * 32;
        let mut x: Vec<f32> = floats(1, tokens * cols);
        x.iter_mut().for_each(|v| *v *= magnitude);
        // Ties, zeros, and a group with a NaN.
        x[..4].copy_from_slice(&[127.0, 0.5, 1.5, -2.5]);
        x[(tokens - 1) * cols + 7] = f32::NAN;
        for has_rest in [false, true] {
            let mut memory = Memory::new();
            let order = ORDERS[groups % 3];
            let (of, [quants, parts]) = quantized(&mut memory, &x, cols, has_rest, order);
            let quants = memory.bytes(quants).to_vec();
            let parts = memory.read_floats(parts);
            let stride = parts.len() / groups / 3;
            assert!(stride.is_multiple_of(4) && stride > of.tokens - 1);
            for (token, g) in (0..stride).flat_map(|t| (0..groups).map(move |g| (t, g))) {
                let part = |plane: usize| parts[(g * 3 + plane) * stride + token];
                let row = if token == tokens { 0 } else { token };
                if token >= tokens + usize::from(has_rest) {
                    assert_eq!([part(0), part(1), part(2)], [0.0; 3]);
                    continue;
                }
                let mut values = x[row * cols + g * 32..][..32].to_vec();
                let (mut wanted, mut scale, mut sums) = quantized_group(&values);
                if token == tokens {
                    let rounded = wanted.map(|quant| scale * f32::from(quant));
                    values.iter_mut().zip(rounded).for_each(|(v, r)| *v -= r);
                    (wanted, scale, sums) = quantized_group(&values);
                }
                let got = &quants[token * cols + g * 32..][..32];
                assert_eq!(got, wanted.map(|quant| quant as u8), "{token} {g}");
                let all = (sums[0] + sums[1]) as f32;
                assert_eq!([part(1), part(2)], [all, sums[0] as f32]);
                assert!(part(0).to_bits() == scale.to_bits() || part(0).is_nan() && scale.is_nan());
            }
        }
    }
}

#[test]
fn embeddings_have_the_bits_of_the_cpus_and_rows_that_are_none_are_nan() {
    for (i, format) in PACKED.into_iter().chain(DENSE).enumerate() {
        let (rows, cols) = (37, 512 + format.block_size());
        let matrix = matrix(format, rows, cols);
        let ids = [36, 0, 17, 36];
        let mut want = Vec::new();
        matrix.embedding(&ids, &mut want).unwrap();
        let targets: &[u32] = if DENSE.contains(&format) {
            &[75]
        } else {
            &[75, 80]
        };
        for &target in targets {
            let mut memory = Memory::new();
            let weights = upload(&mut memory, &matrix);
            let given = memory.words("ids", &[&ids[..], &[37]].concat());
            let out = memory.uninitialised("out", 5 * cols * 4);
            let (given, to) = (memory.address(given), memory.address(out));
            let launch = weights.embedding(given, to, 5).unwrap();
            run(&launch, &mut memory, target, ORDERS[i % 3]);
            assert!(memory.is_written(out));
            let got = memory.read_floats(out);
            assert_eq!(bits(&got[..4 * cols]), bits(&want), "{format:?}");
            assert!(got[4 * cols..].iter().all(|value| value.is_nan()));
        }
    }
}

#[test]
fn products_that_do_not_fit_are_errors_before_anything_runs() {
    let weights = |format, cols| Weights {
        format,
        rows: 32,
        cols,
        quants: 0,
        scales: 0,
    };
    let of = |cols| Quantized {
        quants: 0,
        parts: 0,
        tokens: 2,
        cols,
        has_rest: false,
    };
    let out = Output {
        rows: Rows {
            address: 0,
            stride: 32,
        },
        bias: 0,
        is_added: false,
    };
    let quantized = Input::Quantized(of(256));
    assert!(weights(GgmlDType::Q4K, 256).decode(quantized, out).is_ok());
    assert!(weights(GgmlDType::Q4K, 512).decode(quantized, out).is_err());
    assert!(weights(GgmlDType::F16, 256).decode(quantized, out).is_err());
    assert!(weights(GgmlDType::Q8K, 256).decode(quantized, out).is_err());
    let floats = Input::Floats(0, 2);
    assert!(weights(GgmlDType::F16, 256).decode(floats, out).is_ok());
    assert!(weights(GgmlDType::F16, 250).decode(floats, out).is_err());
    assert!(weights(GgmlDType::Q4K, 256).decode(floats, out).is_err());
    let half_unit = Input::Quantized(of(128));
    assert!(weights(GgmlDType::Q8_0, 128).decode(half_unit, out).is_ok());
    assert!(weights(GgmlDType::Q4K, 128).decode(half_unit, out).is_err());
    assert!(
        weights(GgmlDType::F16, 256)
            .decode(Input::Floats(0, 0), out)
            .is_err()
    );
    let many = Input::Floats(0, 70_000);
    assert!(weights(GgmlDType::F16, 256).decode(many, out).is_err());
    assert!(of(33).quantize(0).is_err());
    assert!(weights(GgmlDType::Q4K, 256).embedding(0, 0, 0).is_err());
    assert!(
        weights(GgmlDType::Q4K, 256)
            .rest(quantized, out)
            .unwrap()
            .is_none()
    );
}

#[test]
fn tensor_cores_multiply_what_is_prefilled_where_the_device_has_them() {
    let x = floats(1, 256);
    let kernel = |format, kind, target| {
        let matrix = matrix(format, 16, 256);
        let launches = Case::new(&matrix, &x, kind, target).prepared().launches;
        launches[0].kernel.clone()
    };
    for (format, name) in [
        (GgmlDType::Q4K, "q4k"),
        (GgmlDType::F16, "f16"),
        (GgmlDType::BF16, "bf16"),
    ] {
        let kernel = |kind, target| kernel(format, kind, target);
        assert_eq!(kernel(Kind::Prefill, 80), format!("product_prefill_{name}"));
        assert_eq!(
            kernel(Kind::Prefill, 120),
            format!("product_prefill_{name}")
        );
        assert_eq!(kernel(Kind::Prefill, 75), format!("product_plain_{name}"));
        assert_eq!(kernel(Kind::Decode, 120), format!("product_decode_{name}"));
    }
    let of_32_bits = kernel(GgmlDType::F32, Kind::Prefill, 120);
    assert_eq!(of_32_bits, "product_plain_f32");
}

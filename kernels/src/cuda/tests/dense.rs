//! Weights of 16 bits on tensor cores: how far a product is from that of the numbers themselves, and what it depends on.

use candle_core::quantized::GgmlDType;

use super::device::ORDERS;
use super::weights::{Case, Kind, matrix, matrix_of};
use crate::QuantizedMatrix;
use crate::random::{bits, floats};

const FORMATS: [GgmlDType; 2] = [GgmlDType::F16, GgmlDType::BF16];
/// Columns that share a scale, and whose products a tensor core adds up.
const GROUP: usize = 32;

fn case<'a>(matrix: &'a QuantizedMatrix, x: &'a [f32]) -> Case<'a> {
    Case::new(matrix, x, Kind::Prefill, 80)
}

/// The product of a row `[cols]` of weights and one of activations, and how far the kernel may be off, both in f64.
///
/// The bound is that of `product_dense_mma.cu` with 7 in the place of 136: the interpreter adds up a product of matrices exactly
/// and rounds it once, where a tensor core may cut each term. Two such roundings, 2⁻²² for the parts and a little for the smaller
/// parts remain, and half of the smallest f32 for each group, below which nothing is kept.
fn element(w: &[f32], x: &[f32]) -> (f64, f64) {
    let (mut sum, mut most_off) = (0.0, 0.0);
    let factor = (7.0 + x.len().div_ceil(GROUP) as f64) * 2f64.powi(-24);
    for (w, x) in w.chunks(GROUP).zip(x.chunks(GROUP)) {
        let largest = x.iter().fold(0f64, |most, x| most.max(f64::from(x.abs())));
        for (w, x) in w.iter().zip(x) {
            let product = f64::from(*w) * f64::from(*x);
            sum += product;
            most_off += factor * product.abs();
            most_off += f64::from(w.abs()) * (2f64.powi(-39) * largest + 2f64.powi(-151));
        }
        most_off += 2f64.powi(-150);
    }
    (sum, most_off)
}

/// Runs the product and compares each element.
fn check(matrix: &QuantizedMatrix, x: &[f32], order: usize) {
    let (rows, cols) = (matrix.rows(), matrix.cols());
    let mut weights = Vec::new();
    let ids: Vec<u32> = (0..rows as u32).collect();
    matrix.embedding(&ids, &mut weights).unwrap();
    let case = Case {
        order: ORDERS[order % 3],
        ..case(matrix, x)
    };
    let got = case.run();
    assert_eq!(got.len(), x.len() / cols * rows);
    for (i, got) in got.into_iter().enumerate() {
        let (token, row) = (i / rows, i % rows);
        let (want, most_off) = element(&weights[row * cols..][..cols], &x[token * cols..][..cols]);
        let off = (f64::from(got) - want).abs();
        assert!(
            off <= most_off,
            "{matrix:?} row {row} token {token}: {got} for {want}, off {off} of {most_off}"
        );
    }
}

#[test]
fn a_product_is_that_of_the_numbers_to_the_bits_of_f32_at_ragged_sizes() {
    let shapes = [
        (1, 4, 1),
        (5, 36, 3),
        (21, 532, 17),
        (70, 64, 65),
        (64, 32, 64),
        (33, 100, 33),
    ];
    for (i, format) in FORMATS.into_iter().enumerate() {
        for (j, (rows, cols, tokens)) in shapes.into_iter().enumerate() {
            let matrix = matrix(format, rows, cols);
            check(&matrix, &floats(3 + j as u64, tokens * cols), i + j);
        }
    }
}

#[test]
fn activations_of_any_magnitude_beside_any_other_keep_their_bits() {
    let (rows, cols) = (17, 68);
    for (i, format) in FORMATS.into_iter().enumerate() {
        let weights = matrix(format, rows, cols);
        for magnitude in [1e3, 7e4, 3e38, 1e-6, 1e-20, 1e-36, 1e-43, 0.0] {
            let mut x = floats(5, 2 * cols);
            x.iter_mut().for_each(|x| *x *= magnitude);
            // One alone, so that no sum of the largest is infinite.
            if magnitude > 1e30 {
                (0..2 * cols)
                    .filter(|i| i % cols != 7)
                    .for_each(|i| x[i] = 0.0);
            }
            check(&weights, &x, i);
        }
        // Each column 2³ times the one before, and back.
        let mut x = floats(6, 2 * cols);
        for (i, x) in x.iter_mut().enumerate() {
            *x *= 2f32.powi(3 * (i % 40) as i32 - 60);
        }
        check(&weights, &x, i + 1);
    }
}

#[test]
fn the_smallest_and_the_largest_weights_are_multiplied_as_they_are() {
    let (rows, cols) = (17, 36);
    for (format, magnitudes) in [
        (GgmlDType::F16, [6e-8, 3e-5, 65504.0]),
        (GgmlDType::BF16, [1e-39, 1e-30, 1e36]),
    ] {
        for (i, magnitude) in magnitudes.into_iter().enumerate() {
            let mut weights = floats(7, rows * cols);
            weights.iter_mut().for_each(|w| *w *= magnitude);
            weights[3] = magnitude;
            let matrix = matrix_of(format, cols, weights);
            check(&matrix, &floats(8, 3 * cols), i);
        }
    }
}

#[test]
fn an_activation_times_one_is_itself_whatever_is_beside_it() {
    let cols = 2 * GROUP;
    let mut identity = vec![0.0; cols * cols];
    (0..cols).for_each(|i| identity[i * cols + i] = 1.0);
    // Tokens of any magnitude, and groups in which each is half of the one before.
    let mut x = floats(9, 5 * cols);
    for (i, x) in x.iter_mut().enumerate() {
        *x *= 2f32.powi((i / cols) as i32 * 40 - 80 - (i % GROUP) as i32);
    }
    let exact = case(&matrix_of(GgmlDType::BF16, cols, identity.clone()), &x).run();
    assert_eq!(bits(&exact), bits(&x));
    let near = case(&matrix_of(GgmlDType::F16, cols, identity), &x).run();
    for (near, x) in near.chunks(GROUP).zip(x.chunks(GROUP)) {
        let largest = x.iter().fold(0f32, |most, x| most.max(x.abs()));
        for (near, x) in near.iter().zip(x) {
            let most_off = (x.abs() * 2f32.powi(-22)).max(largest * 2f32.powi(-39));
            assert!((near - x).abs() <= most_off, "{near} for {x}");
        }
    }
}

#[test]
fn a_token_has_the_same_bits_in_any_call() {
    let (rows, cols, tokens) = (40, 84, 67);
    for (i, format) in FORMATS.into_iter().enumerate() {
        let matrix = matrix(format, rows, cols);
        // Neighbours of quite another magnitude.
        let mut x = floats(10, tokens * cols);
        for (i, x) in x.iter_mut().enumerate() {
            *x *= 2f32.powi((i / cols * 29 % 60) as i32 - 30);
        }
        let whole = case(&matrix, &x).run();
        for range in [0..1, 0..3, 5..38, 40..57, 63..67, 66..67] {
            let part = Case {
                order: ORDERS[(i + range.start) % 3],
                ..case(&matrix, &x[range.start * cols..range.end * cols])
            };
            let want = &whole[range.start * rows..range.end * rows];
            assert_eq!(bits(&part.run()), bits(want), "{format:?} {range:?}");
        }
    }
}

#[test]
fn an_activation_that_is_no_number_spoils_its_own_token_only() {
    let (rows, cols, tokens) = (18, 40, 20);
    for format in FORMATS {
        let matrix = matrix(format, rows, cols);
        let mut x = floats(11, tokens * cols);
        let want = case(&matrix, &x).run();
        x[2 * cols + 35] = f32::NAN;
        x[9 * cols] = f32::INFINITY;
        x[17 * cols + 20] = f32::NEG_INFINITY;
        let got = case(&matrix, &x).run();
        for token in 0..tokens {
            let of = token * rows..(token + 1) * rows;
            match token {
                2 | 9 | 17 => assert!(got[of].iter().all(|value| value.is_nan())),
                _ => assert_eq!(bits(&got[of.clone()]), bits(&want[of])),
            }
        }
    }
}

#[test]
fn a_bias_and_what_stands_there_are_added_after_the_sum_on_tensor_cores() {
    let (rows, cols, tokens) = (19, 64, 18);
    for format in FORMATS {
        let matrix = matrix(format, rows, cols);
        let x = floats(7, tokens * cols);
        let (bias, residual) = (floats(8, rows), floats(9, tokens * rows));
        let sums = case(&matrix, &x).run();
        let with_bias = sums.iter().zip(bias.iter().cycle()).map(|(sum, b)| sum + b);
        let all: Vec<f32> = residual.iter().zip(with_bias).map(|(r, v)| r + v).collect();
        let case = Case {
            bias: Some(&bias),
            residual: Some(&residual),
            ..case(&matrix, &x)
        };
        assert_eq!(bits(&case.run()), bits(&all), "{format:?}");
    }
}

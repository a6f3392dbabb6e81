use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};

use super::activations::Activations;
use super::*;
use crate::lanes::GROUP;
use crate::random::{bits, floats};

const ALL: [GgmlDType; 13] = [
    GgmlDType::F32,
    GgmlDType::F16,
    GgmlDType::BF16,
    GgmlDType::Q4_0,
    GgmlDType::Q4_1,
    GgmlDType::Q5_0,
    GgmlDType::Q5_1,
    GgmlDType::Q8_0,
    GgmlDType::Q2K,
    GgmlDType::Q3K,
    GgmlDType::Q4K,
    GgmlDType::Q5K,
    GgmlDType::Q6K,
];

fn quantize(dtype: GgmlDType, rows: usize, cols: usize) -> QTensor {
    let weights = Tensor::from_vec(floats(9, rows * cols), (rows, cols), &Device::Cpu).unwrap();
    QTensor::quantize(&weights, dtype).unwrap()
}

fn bytes(dtype: GgmlDType, rows: usize, cols: usize) -> Vec<u8> {
    quantize(dtype, rows, cols).data().unwrap().into_owned()
}

fn matrix(dtype: GgmlDType, rows: usize, cols: usize) -> QuantizedMatrix {
    let bytes = bytes(dtype, rows, cols);
    QuantizedMatrix::new(
        dtype,
        rows,
        cols,
        &bytes,
        &Team::new(1),
        &mut Arena::default(),
    )
    .unwrap()
}

#[test]
fn the_bytes_foretold_are_the_bytes_taken() {
    for dtype in ALL {
        for (rows, cols) in [(1, 256), (16, 512), (37, 768)] {
            let taken = matrix(dtype, rows, cols).num_bytes();
            assert_eq!(
                QuantizedMatrix::bytes_for(dtype, rows, cols),
                taken,
                "{dtype:?} {rows} x {cols}"
            );
        }
    }
}

/// The matrix as floats `[rows, cols]`.
fn dequantized(matrix: &QuantizedMatrix) -> Vec<f32> {
    let ids: Vec<u32> = (0..matrix.rows() as u32).collect();
    let mut out = Vec::new();
    matrix.embedding(&ids, &mut out).unwrap();
    out
}

/// The product of the dequantized weights and `x`, in f64.
fn float_product(matrix: &QuantizedMatrix, x: &[f32]) -> Vec<f64> {
    let weights = dequantized(matrix);
    let rows = || weights.chunks_exact(matrix.cols());
    x.chunks_exact(matrix.cols())
        .flat_map(|x| {
            rows().map(|w| {
                let products = x.iter().zip(w).map(|(a, b)| f64::from(*a) * f64::from(*b));
                products.sum::<f64>()
            })
        })
        .collect()
}

/// Root mean square of the difference, relative to that of `want`.
fn relative_error(got: &[f32], want: &[f64]) -> f64 {
    let square = |sum: f64, v: f64| sum + v * v;
    let pairs = got.iter().zip(want);
    let difference = pairs.map(|(g, w)| f64::from(*g) - w).fold(0.0, square);
    (difference / want.iter().copied().fold(0.0, square)).sqrt()
}

/// The activations that products see: rounded to int8 in groups.
fn rounded(x: &[f32], cols: usize) -> Vec<f32> {
    x.chunks_exact(cols)
        .flat_map(|x| {
            let mut quantized = Activations::default();
            quantized.quantize(Path::Scalar, x, cols, Rounding::Once);
            (0..cols)
                .map(|i| f32::from(quantized.quants[i]) * quantized.scales[i / GROUP])
                .collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn an_embedding_has_the_bits_of_the_librarys_dequantized_rows() {
    for dtype in ALL {
        let (rows, cols) = (19, 512);
        let want = quantize(dtype, rows, cols)
            .dequantize(&Device::Cpu)
            .unwrap();
        let want: Vec<Vec<f32>> = want.to_vec2().unwrap();
        let matrix = matrix(dtype, rows, cols);
        let mut got = vec![1.0];
        matrix.embedding(&[18, 0, 18], &mut got).unwrap();
        assert_eq!(got[0], 1.0);
        for (got, id) in got[1..].chunks_exact(cols).zip([18, 0, 18]) {
            assert_eq!(bits(got), bits(&want[id]), "{dtype:?}");
        }
        assert!(matrix.embedding(&[19], &mut got).is_err());
    }
}

#[test]
fn every_format_is_close_to_the_product_of_its_dequantized_weights() {
    for dtype in ALL {
        let matrix = matrix(dtype, 37, 512);
        let x = floats(1, 5 * 512);
        let got = matrix.forward(&x, &Team::new(1)).unwrap();
        let error = relative_error(&got, &float_product(&matrix, &x));
        // Activations are rounded to 1/127 of their group's largest; floats are not rounded.
        let tolerance = match dtype {
            GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16 => 1e-6,
            _ => 1e-2,
        };
        assert!(error < tolerance, "{dtype:?}: {error}");
    }
}

#[test]
fn rounding_the_activations_is_the_only_error_that_quantized_products_add() {
    for dtype in ALL {
        for (n, rows, cols) in [(1, 1, 256), (5, 17, 512), (66, 9, 768), (3, 48, 1536)] {
            let matrix = matrix(dtype, rows, cols);
            let x = floats(2, n * cols);
            let seen = match matrix.takes_quantized() {
                true => rounded(&x, cols),
                false => x.clone(),
            };
            let want = float_product(&matrix, &seen);
            let got = matrix.forward(&x, &Team::new(1)).unwrap();
            for (got, want) in got.iter().zip(want) {
                let error = (f64::from(*got) - want).abs();
                let tolerance = 2e-5 * want.abs().max(1.0);
                assert!(
                    error < tolerance,
                    "{dtype:?} {n} {rows} {cols}: {got}, not {want}"
                );
            }
        }
    }
}

#[test]
fn a_first_token_rounded_twice_is_as_good_as_floats_and_the_others_keep_their_bits() {
    for dtype in ALL {
        let (rows, cols) = (37, 512);
        let matrix = matrix(dtype, rows, cols);
        let x = floats(7, 21 * cols);
        let once = matrix.forward(&x, &Team::new(1)).unwrap();
        for path in Path::available() {
            let twice = matrix
                .product(&x, &Team::on(path, 2), Rounding::FirstTwice)
                .unwrap();
            let want = float_product(&matrix, &x[..cols]);
            let error = relative_error(&twice[..rows], &want);
            assert!(error < 1e-4, "{dtype:?} {path:?}: {error}");
            assert_eq!(
                bits(&twice[rows..]),
                bits(&once[rows..]),
                "{dtype:?} {path:?}"
            );
        }
    }
}

#[test]
fn formats_of_32_weights_take_any_number_of_groups() {
    let formats = [
        GgmlDType::Q4_0,
        GgmlDType::Q4_1,
        GgmlDType::Q5_0,
        GgmlDType::Q5_1,
        GgmlDType::Q8_0,
    ];
    for dtype in formats {
        for groups in 1..8 {
            let (rows, cols) = (3, 32 * groups);
            let matrix = matrix(dtype, rows, cols);
            let x = floats(2, 2 * cols);
            let want = float_product(&matrix, &rounded(&x, cols));
            let got = matrix.forward(&x, &Team::new(2)).unwrap();
            assert!(relative_error(&got, &want) < 1e-6, "{dtype:?} {cols}");
        }
    }
}

#[test]
fn extreme_quants_do_not_overflow() {
    for dtype in ALL.into_iter().filter(|dtype| dtype.block_size() > 1) {
        let cols = 256;
        for fill in [0x80, 0x7f, 0xff, 0x00] {
            let mut bytes = bytes(dtype, 2, cols);
            for block in bytes.chunks_exact_mut(dtype.type_size()) {
                // Every quant is the same extreme; the scales of 256 weights, where they stand last, stay small.
                let end = block.len() - if dtype.block_size() == 256 { 4 } else { 0 };
                let start = if dtype.block_size() == 256 { 4 } else { 2 };
                block[start..end].fill(fill);
                if dtype.block_size() == 32 {
                    block[..2].copy_from_slice(&[0x00, 0x3c]);
                    if matches!(dtype, GgmlDType::Q4_1 | GgmlDType::Q5_1) {
                        block[2..4].fill(0);
                    }
                }
            }
            let matrix =
                QuantizedMatrix::new(dtype, 2, cols, &bytes, &Team::new(1), &mut Arena::default())
                    .unwrap();
            for sign in [1.0, -1.0] {
                let x = vec![127f32 * sign; cols];
                let want = float_product(&matrix, &x);
                for path in Path::available() {
                    let got = matrix.forward(&x, &Team::on(path, 1)).unwrap();
                    for (got, want) in got.iter().zip(&want) {
                        let error = (f64::from(*got) - want).abs();
                        assert!(
                            error <= 1e-5 * want.abs(),
                            "{dtype:?} {fill}: {got}, not {want}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_on_every_path() {
    for dtype in ALL {
        for (n, rows, cols) in [(1, 17, 512), (23, 40, 256)] {
            let matrix = matrix(dtype, rows, cols);
            let x = floats(6, n * cols);
            let want = matrix.forward(&x, &Team::on(Path::Scalar, 1)).unwrap();
            for path in Path::available() {
                let got = matrix.forward(&x, &Team::on(path, 1)).unwrap();
                assert_eq!(bits(&got), bits(&want), "{dtype:?} on {path:?}");
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_in_any_chunk() {
    let team = Team::new(1);
    for dtype in ALL {
        let (rows, cols) = (101, 512);
        let matrix = matrix(dtype, rows, cols);
        let x = floats(3, 100 * cols);
        let whole = bits(&matrix.forward(&x, &team).unwrap());
        for n in [1, 3, 64, 65] {
            let chunks = x
                .chunks(n * cols)
                .flat_map(|x| matrix.forward(x, &team).unwrap());
            let joined: Vec<f32> = chunks.collect();
            assert!(bits(&joined) == whole, "{dtype:?} in chunks of {n}");
        }
    }
}

#[test]
fn a_row_has_the_same_bits_with_any_number_of_threads() {
    let teams: Vec<Team> = (1..=8).map(Team::new).collect();
    for dtype in ALL {
        let matrix = matrix(dtype, 133, 768);
        for n in [1, 3, 65] {
            let x = floats(4, n * 768);
            let want = bits(&matrix.forward(&x, &teams[0]).unwrap());
            for team in &teams {
                let got = bits(&matrix.forward(&x, team).unwrap());
                assert!(got == want, "{dtype:?}, {n} tokens, {team:?}");
            }
        }
    }
}

#[test]
fn a_poisoned_token_stays_alone_and_poisoned() {
    for dtype in ALL {
        let matrix = matrix(dtype, 7, 256);
        let clean = floats(5, 20 * 256);
        let want = matrix.forward(&clean, &Team::new(1)).unwrap();
        let mut x = clean.clone();
        x[3 * 256 + 100] = f32::NAN;
        for path in Path::available() {
            let got = matrix.forward(&x, &Team::on(path, 1)).unwrap();
            for (token, (got, want)) in got.chunks(7).zip(want.chunks(7)).enumerate() {
                if token == 3 {
                    assert!(got.iter().all(|v| v.is_nan()), "{dtype:?} {path:?}");
                } else {
                    assert_eq!(bits(got), bits(want), "{dtype:?} {path:?}");
                }
            }
        }
    }
}

#[test]
fn unaligned_bytes_give_the_same_matrix() {
    for dtype in ALL {
        let bytes = bytes(dtype, 3, 256);
        let mut shifted = vec![0u8; bytes.len() + 1];
        shifted[1..].copy_from_slice(&bytes);
        let team = Team::new(1);
        let a = QuantizedMatrix::new(dtype, 3, 256, &bytes, &team, &mut Arena::default()).unwrap();
        let b = QuantizedMatrix::new(dtype, 3, 256, &shifted[1..], &team, &mut Arena::default())
            .unwrap();
        assert_eq!(bits(&dequantized(&a)), bits(&dequantized(&b)));
    }
}

#[test]
fn packed_weights_take_little_more_than_those_of_the_file() {
    for dtype in ALL {
        let (rows, cols) = (64, 1024);
        let (packed, file) = (
            matrix(dtype, rows, cols).num_bytes(),
            bytes(dtype, rows, cols).len(),
        );
        assert!(packed * 100 <= file * 106, "{dtype:?}: {packed} of {file}");
    }
}

#[test]
fn what_does_not_fit_is_an_error_not_a_panic() {
    let team = Team::new(1);
    for dtype in ALL {
        let good = bytes(dtype, 2, 256);
        let new = |rows, bytes: &[u8]| {
            QuantizedMatrix::new(dtype, rows, 256, bytes, &team, &mut Arena::default())
        };
        assert!(new(2, &good[1..]).is_err());
        assert!(new(3, &good).is_err());
        assert!(new(0, &[]).is_err());
        assert!(new(usize::MAX, &good).is_err());
        let matrix = new(2, &good).unwrap();
        assert!(matrix.forward(&[0.0; 255], &team).is_err());
        assert!(matrix.forward(&[], &team).unwrap().is_empty());
    }
    let odd = QuantizedMatrix::new(
        GgmlDType::Q4_1,
        2,
        48,
        &[0; 60],
        &team,
        &mut Arena::default(),
    );
    assert!(odd.is_err());
    for dtype in [GgmlDType::Q8_1, GgmlDType::Q8K] {
        let bytes = vec![0; dtype.type_size() * 256 / dtype.block_size()];
        assert!(QuantizedMatrix::new(dtype, 1, 256, &bytes, &team, &mut Arena::default()).is_err());
    }
}

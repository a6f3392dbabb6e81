use super::activations::{Activations, GROUP};
use super::*;
use crate::random::{bits, floats, in_pools, tensor, values};
use candle_core::quantized::QTensor;

const ALL: [GgmlDType; 15] = [
    GgmlDType::F32,
    GgmlDType::F16,
    GgmlDType::BF16,
    GgmlDType::Q4_0,
    GgmlDType::Q4_1,
    GgmlDType::Q5_0,
    GgmlDType::Q5_1,
    GgmlDType::Q8_0,
    GgmlDType::Q8_1,
    GgmlDType::Q2K,
    GgmlDType::Q3K,
    GgmlDType::Q4K,
    GgmlDType::Q5K,
    GgmlDType::Q6K,
    GgmlDType::Q8K,
];
const OWN: [GgmlDType; 3] = [GgmlDType::Q4_0, GgmlDType::Q4_1, GgmlDType::Q8_0];

fn bytes(dtype: GgmlDType, rows: usize, cols: usize) -> Vec<u8> {
    let weights = tensor(9, &[rows, cols]);
    let weights = QTensor::quantize(&weights, dtype).unwrap();
    weights.data().unwrap().into_owned()
}

fn matrix(dtype: GgmlDType, rows: usize, cols: usize) -> QuantizedMatrix {
    QuantizedMatrix::new(dtype, rows, cols, &bytes(dtype, rows, cols)).unwrap()
}

/// The product of the dequantized weights and `x`, in f64.
fn float_product(matrix: &QuantizedMatrix, x: &[f32]) -> Vec<f64> {
    let weights = values(&matrix.dequantize().unwrap());
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

#[test]
fn every_format_is_close_to_the_product_of_its_dequantized_weights() {
    for dtype in ALL {
        let matrix = matrix(dtype, 37, 512);
        let x = tensor(1, &[5, 512]);
        let got = matrix.forward(&x).unwrap();
        assert_eq!(got.dims(), [5, 37]);
        let error = relative_error(&values(&got), &float_product(&matrix, &values(&x)));
        // Activations are rounded to 1/127 of their group's largest, or to the weights' own 16 bits.
        let tolerance = match dtype {
            GgmlDType::F32 => 1e-6,
            GgmlDType::F16 => 1e-3,
            GgmlDType::BF16 => 5e-3,
            _ => 1e-2,
        };
        assert!(error < tolerance, "{dtype:?}: {error}");
    }
}

#[test]
fn own_products_equal_the_integer_reference_at_ragged_sizes() {
    for dtype in OWN {
        for (n, rows, cols) in [
            (1, 1, 32),
            (2, 3, 64),
            (5, 7, 288),
            (66, 9, 576),
            (3, 2, 1536),
        ] {
            // In debug builds the general path insists on an even number of blocks.
            if path() == Path::Scalar && !(cols / GROUP).is_multiple_of(2) {
                continue;
            }
            let matrix = matrix(dtype, rows, cols);
            let x = floats(2, n * cols);
            // The same products of quantized activations, exact.
            let quantized = Activations::new(&x, cols);
            let rounded: Vec<f32> = (0..n * cols)
                .map(|i| {
                    let at = i / cols * quantized.stride + i % cols / GROUP;
                    f32::from(quantized.quants[i]) * quantized.scales[at]
                })
                .collect();
            let want = float_product(&matrix, &rounded);
            let got = matrix.forward(&Tensor::from_vec(x, (n, cols), &Device::Cpu).unwrap());
            for (got, want) in values(&got.unwrap()).iter().zip(want) {
                let error = (f64::from(*got) - want).abs();
                let tolerance = match path() {
                    Path::Avx2 => 2e-5 * want.abs().max(1.0),
                    // The general path rounds the activations' scales to f16.
                    Path::Scalar => 1e-2 * want.abs().max(3.0),
                };
                assert!(
                    error < tolerance,
                    "{dtype:?} {n} {rows} {cols}: {got}, not {want}"
                );
            }
        }
    }
}

#[test]
fn extreme_quants_do_not_overflow() {
    for dtype in OWN {
        let mut bytes = vec![0x80u8; bytes(dtype, 2, 64).len()];
        let block = dtype.type_size();
        for block in bytes.chunks_exact_mut(block) {
            // Scale 1; a minimum of 0 where there is one.
            block[..2].copy_from_slice(&[0x00, 0x3c]);
            if dtype == GgmlDType::Q4_1 {
                block[2..4].fill(0);
            }
        }
        for fill in [0x80, 0x7f, 0xff, 0x00] {
            for block in bytes.chunks_exact_mut(block) {
                let start = if dtype == GgmlDType::Q4_1 { 4 } else { 2 };
                block[start..].fill(fill);
            }
            let matrix = QuantizedMatrix::new(dtype, 2, 64, &bytes).unwrap();
            for sign in [1.0, -1.0] {
                let x = Tensor::full(127f32 * sign, (1, 64), &Device::Cpu).unwrap();
                let want = float_product(&matrix, &values(&x));
                let got = values(&matrix.forward(&x).unwrap());
                assert!(
                    got.iter().zip(want).all(|(g, w)| f64::from(*g) == w),
                    "{dtype:?} {fill}"
                );
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_in_any_chunk() {
    for dtype in ALL {
        let matrix = matrix(dtype, 101, 512);
        let x = tensor(3, &[200, 512]);
        let whole = bits(&matrix.forward(&x).unwrap());
        for n in [1, 3, 64, 65, 200] {
            let chunks: Vec<Tensor> = (0..200)
                .step_by(n)
                .map(|start| x.narrow(0, start, n.min(200 - start)).unwrap())
                .map(|chunk| matrix.forward(&chunk).unwrap())
                .collect();
            let joined = bits(&Tensor::cat(&chunks, 0).unwrap());
            assert!(joined == whole, "{dtype:?} in chunks of {n}");
        }
    }
}

#[test]
fn a_row_has_the_same_bits_with_any_number_of_threads() {
    for dtype in [
        GgmlDType::Q4_0,
        GgmlDType::Q4_1,
        GgmlDType::Q8_0,
        GgmlDType::Q6K,
    ] {
        let matrix = matrix(dtype, 333, 768);
        for n in [1, 3, 65] {
            let x = tensor(4, &[n, 768]);
            let want = bits(&matrix.forward(&x).unwrap());
            in_pools(|threads| {
                let got = bits(&matrix.forward(&x).unwrap());
                assert!(got == want, "{dtype:?}, {n} tokens, {threads} threads");
            });
        }
    }
}

#[test]
fn a_poisoned_row_stays_alone() {
    for dtype in ALL {
        let matrix = matrix(dtype, 7, 256);
        let clean = tensor(5, &[6, 256]);
        let poison = Tensor::full(f32::NAN, (1, 256), &Device::Cpu).unwrap();
        let x = Tensor::cat(&[&clean.narrow(0, 0, 2).unwrap(), &poison, &clean], 0).unwrap();
        let (got, want) = (matrix.forward(&x).unwrap(), matrix.forward(&clean).unwrap());
        assert_eq!(bits(&got.narrow(0, 3, 6).unwrap()), bits(&want));
        assert_eq!(
            bits(&got.narrow(0, 0, 2).unwrap()),
            bits(&want.narrow(0, 0, 2).unwrap())
        );
    }
}

#[test]
fn an_embedding_is_the_dequantized_rows() {
    for dtype in ALL {
        let matrix = matrix(dtype, 9, 256);
        let all = matrix.dequantize().unwrap();
        let rows = matrix.embedding(&[8, 0, 8]).unwrap();
        assert_eq!(rows.dims(), [3, 256]);
        for (i, id) in [8, 0, 8].into_iter().enumerate() {
            let (got, want) = (rows.narrow(0, i, 1).unwrap(), all.narrow(0, id, 1).unwrap());
            assert_eq!(bits(&got), bits(&want));
        }
        assert!(matrix.embedding(&[9]).is_err());
    }
}

#[test]
fn unaligned_bytes_give_the_same_matrix() {
    for dtype in ALL {
        let bytes = bytes(dtype, 3, 256);
        let mut shifted = vec![0u8; bytes.len() + 8];
        let start = 8 - shifted.as_ptr() as usize % 8 + 1;
        shifted.resize(bytes.len() + start, 0);
        shifted[start..].copy_from_slice(&bytes);
        let a = QuantizedMatrix::new(dtype, 3, 256, &bytes).unwrap();
        let b = QuantizedMatrix::new(dtype, 3, 256, &shifted[start..]).unwrap();
        assert_eq!(
            bits(&a.dequantize().unwrap()),
            bits(&b.dequantize().unwrap())
        );
    }
}

#[test]
fn what_does_not_fit_is_an_error_not_a_panic() {
    for dtype in ALL {
        let good = bytes(dtype, 2, 256);
        assert!(QuantizedMatrix::new(dtype, 2, 256, &good[1..]).is_err());
        assert!(QuantizedMatrix::new(dtype, 3, 256, &good).is_err());
        assert!(QuantizedMatrix::new(dtype, 0, 256, &[]).is_err());
        assert!(QuantizedMatrix::new(dtype, usize::MAX, 256, &good).is_err());
        let matrix = QuantizedMatrix::new(dtype, 2, 256, &good).unwrap();
        assert!(matrix.forward(&tensor(6, &[1, 255])).is_err());
        assert!(matrix.forward(&tensor(7, &[256])).is_err());
        let none = Tensor::zeros((0, 256), candle_core::DType::F32, &Device::Cpu).unwrap();
        assert_eq!(matrix.forward(&none).unwrap().dims(), [0, 2]);
    }
    assert!(QuantizedMatrix::new(GgmlDType::Q4_1, 2, 48, &[0; 60]).is_err());
}

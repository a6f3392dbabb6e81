//! Weights in the device's memory, what the kernels make of them, and a scalar reference over the packed bytes.

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use half::{bf16, f16};
use ptx_interpreter::{Buffer, Memory, Order};

use super::device::run;
use crate::cuda::{Input, Launch, Output, Quantized, Rows, Weights};
use crate::lanes::{Lanes, Scalar};
use crate::random::floats;
use crate::{Arena, QuantizedMatrix, Team};

pub(super) const PACKED: [GgmlDType; 10] = [
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
pub(super) const DENSE: [GgmlDType; 3] = [GgmlDType::F32, GgmlDType::F16, GgmlDType::BF16];

/// Elements from one token's results to the next beyond those that a matrix has.
const PADDING: usize = 3;

/// Random weights.
pub(super) fn matrix(format: GgmlDType, rows: usize, cols: usize) -> QuantizedMatrix {
    matrix_of(format, cols, floats(9, rows * cols))
}

/// These weights `[rows, cols]`.
pub(super) fn matrix_of(format: GgmlDType, cols: usize, weights: Vec<f32>) -> QuantizedMatrix {
    let rows = weights.len() / cols;
    let weights = Tensor::from_vec(weights, (rows, cols), &Device::Cpu).unwrap();
    let file = QTensor::quantize(&weights, format).unwrap();
    let (team, mut arena) = (Team::new(1), Arena::default());
    QuantizedMatrix::new(format, rows, cols, &file.data().unwrap(), &team, &mut arena).unwrap()
}

/// Which kernel multiplies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Decode,
    Prefill,
}

/// A product in a memory of its own.
#[derive(Clone, Copy)]
pub(super) struct Case<'a> {
    pub(super) matrix: &'a QuantizedMatrix,
    /// `[tokens, cols]`
    pub(super) x: &'a [f32],
    pub(super) kind: Kind,
    pub(super) target: u32,
    pub(super) order: Order,
    /// For each row.
    pub(super) bias: Option<&'a [f32]>,
    /// What the result is added to, `[tokens, rows]`.
    pub(super) residual: Option<&'a [f32]>,
    pub(super) has_rest: bool,
}

/// A case's memory with its activations quantized, what is then to be launched, and the output.
pub(super) struct Prepared {
    pub(super) memory: Memory,
    pub(super) launches: Vec<Launch>,
    pub(super) out: Buffer,
}

/// The matrix in a device's memory.
pub(super) fn upload(memory: &mut Memory, matrix: &QuantizedMatrix) -> Weights {
    let (quants, scales) = matrix.bytes();
    let [quants, scales] = [("quants", quants), ("scales", scales)]
        .map(|(name, bytes)| memory.buffer(name, bytes.to_vec()));
    Weights {
        format: matrix.dtype(),
        rows: matrix.rows(),
        cols: matrix.cols(),
        quants: memory.address(quants),
        scales: memory.address(scales),
    }
}

/// `x` `[tokens, cols]` quantized on the device.
pub(super) fn quantized(
    memory: &mut Memory,
    x: &[f32],
    cols: usize,
    has_rest: bool,
    order: Order,
) -> (Quantized, [Buffer; 2]) {
    let tokens = x.len() / cols;
    let buffers = Quantized::bytes_for(tokens, cols, has_rest)
        .map(|bytes| memory.uninitialised("quantized", bytes));
    let [quants, parts] = buffers.map(|buffer| memory.address(buffer));
    let quantized = Quantized {
        quants,
        parts,
        tokens,
        cols,
        has_rest,
    };
    let x = memory.floats("x", x);
    let launch = quantized.quantize(memory.address(x)).unwrap();
    run(&launch, memory, 75, order);
    assert!(buffers.iter().all(|buffer| memory.is_written(*buffer)));
    (quantized, buffers)
}

impl<'a> Case<'a> {
    pub(super) fn new(matrix: &'a QuantizedMatrix, x: &'a [f32], kind: Kind, target: u32) -> Self {
        Case {
            matrix,
            x,
            kind,
            target,
            order: Order::Forward,
            bias: None,
            residual: None,
            has_rest: false,
        }
    }

    fn stride(&self) -> usize {
        self.matrix.rows() + PADDING
    }

    pub(super) fn prepared(&self) -> Prepared {
        let mut memory = Memory::new();
        let (rows, cols) = (self.matrix.rows(), self.matrix.cols());
        let weights = upload(&mut memory, self.matrix);
        let tokens = self.x.len() / cols;
        let x = match weights.takes_quantized() {
            true => {
                let order = self.order;
                Input::Quantized(quantized(&mut memory, self.x, cols, self.has_rest, order).0)
            }
            false => {
                let x = memory.floats("x", self.x);
                Input::Floats(memory.address(x), tokens)
            }
        };
        let out = match self.residual {
            None => memory.uninitialised("out", tokens * self.stride() * 4),
            Some(residual) => {
                let rows = residual.chunks_exact(rows);
                let padded = rows.flat_map(|row| [row, &[f32::NAN; PADDING]].concat());
                memory.floats("out", &padded.collect::<Vec<_>>())
            }
        };
        let bias = self.bias.map_or(0, |bias| {
            let bias = memory.floats("bias", bias);
            memory.address(bias)
        });
        let output = Output {
            rows: Rows {
                address: memory.address(out),
                stride: self.stride(),
            },
            bias,
            is_added: self.residual.is_some(),
        };
        let product = match self.kind {
            Kind::Decode => weights.decode(x, output),
            Kind::Prefill => weights.prefill(x, output, self.target),
        };
        let mut launches = vec![product.unwrap()];
        launches.extend(weights.rest(x, output).unwrap());
        Prepared {
            memory,
            launches,
            out,
        }
    }

    /// The result `[tokens, rows]`.
    pub(super) fn run(&self) -> Vec<f32> {
        let mut prepared = self.prepared();
        for launch in &prepared.launches {
            run(launch, &mut prepared.memory, self.target, self.order);
        }
        let got = prepared.memory.read_floats(prepared.out);
        let rows = got.chunks_exact(self.stride());
        rows.flat_map(|row| {
            let (row, padding) = row.split_at(self.matrix.rows());
            assert!(padding.iter().all(|value| value.is_nan()), "padding");
            row.to_vec()
        })
        .collect()
    }
}

/// How the weights of a format lie; see `quantized::packed` and `quantized::format`.
struct Layout<'a> {
    format: GgmlDType,
    bits: usize,
    offset: i32,
    halves: usize,
    groups: usize,
    quants: &'a [u8],
    scales: &'a [u8],
}

impl<'a> Layout<'a> {
    fn of(matrix: &'a QuantizedMatrix) -> Self {
        let (bits, offset, halves) = match matrix.dtype() {
            GgmlDType::Q4_0 => (4, 8, 1),
            GgmlDType::Q4_1 | GgmlDType::Q4K => (4, 0, 1),
            GgmlDType::Q5_0 => (5, 16, 1),
            GgmlDType::Q5_1 | GgmlDType::Q5K => (5, 0, 1),
            GgmlDType::Q8_0 => (8, 128, 1),
            GgmlDType::Q2K => (2, 0, 2),
            GgmlDType::Q3K => (3, 4, 2),
            _ => (6, 32, 2),
        };
        let (quants, scales) = matrix.bytes();
        Self {
            format: matrix.dtype(),
            bits,
            offset,
            halves,
            groups: matrix.cols() / 32,
            quants,
            scales,
        }
    }

    /// Weight `i` of a row's group, without its offset.
    fn quant(&self, row: usize, group: usize, i: usize) -> i32 {
        let group_bytes = 64 * self.bits;
        let lines = &self.quants[(row / 16 * self.groups + group) * group_bytes..][..group_bytes];
        let (j, byte) = (i / 4, i % 4);
        let at = |line: usize| lines[64 * line + row % 16 * 4 + byte];
        let quant = match self.bits {
            8 => at(j),
            2 => at(j / 4) >> (2 * (j % 4)) & 3,
            3 => at(j / 4) >> (2 * (j % 4)) & 3 | (at(2) >> j & 1) << 2,
            _ => at(j % 4) >> (4 * (j / 4)) & 15,
        };
        let upper = match self.bits {
            5 => (at(4) >> j & 1) << 4,
            6 => (at(4 + j / 4) >> (2 * (j % 4)) & 3) << 4,
            _ => 0,
        };
        i32::from(quant | upper)
    }

    /// The scale and the minimum of a half of a row's group.
    fn scale(&self, row: usize, group: usize, half: usize) -> (f32, Option<f32>) {
        use GgmlDType::*;
        let (bytes, per_unit) = match self.format {
            Q4_0 | Q5_0 | Q8_0 => (32, 1),
            Q4_1 | Q5_1 => (64, 1),
            Q3K | Q6K => (32 + 256, 8),
            _ => (64 + 256, 8),
        };
        let unit = row / 16 * (self.groups / per_unit) + group / per_unit;
        let unit = &self.scales[unit * bytes..][..bytes];
        let lane = row % 16;
        let f16_at = |at: usize| f16::from_le_bytes([unit[at], unit[at + 1]]).to_f32();
        let (first, second) = (
            f16_at(2 * lane),
            (bytes & 64 != 0).then(|| f16_at(32 + 2 * lane)),
        );
        let small = |at: usize| unit[bytes - 256 + group % 8 * 32 + 16 * at + lane];
        match self.format {
            Q3K | Q6K => (first * f32::from(small(half) as i8), None),
            Q4K | Q5K => (
                first * f32::from(small(0)),
                second.map(|second| second * f32::from(small(1))),
            ),
            Q2K => (
                first * f32::from(small(half) & 15),
                second.map(|second| second * f32::from(small(half) >> 4)),
            ),
            _ => (first, second),
        }
    }

    /// One chain of sums.
    fn segment(&self, row: usize, groups: std::ops::Range<usize>, x: &[f32]) -> f32 {
        let mut sum = 0f32;
        for group in groups {
            let mut quants = [0i8; 32];
            // SAFETY: baseline instructions; 32 floats and quants are there.
            let (x_scale, sums) =
                unsafe { Scalar::quantize(x[group * 32..][..32].as_ptr(), quants.as_mut_ptr()) };
            for half in 0..self.halves {
                let range = 32 / self.halves * half..32 / self.halves * (half + 1);
                let products = range.map(|i| self.quant(row, group, i) * i32::from(quants[i]));
                let x_sum = match self.halves {
                    1 => sums[0] + sums[1],
                    _ => sums[half],
                };
                let dot = products.sum::<i32>() - self.offset * x_sum;
                let (scale, minimum) = self.scale(row, group, half);
                sum = (dot as f32).mul_add(scale * x_scale, sum);
                if let Some(minimum) = minimum {
                    sum = minimum.mul_add(x_scale * x_sum as f32, sum);
                }
            }
        }
        sum
    }
}

/// One chain of sums of dense weights.
fn dense_segment(
    matrix: &QuantizedMatrix,
    row: usize,
    columns: std::ops::Range<usize>,
    x: &[f32],
) -> f32 {
    let bytes = matrix.bytes().0;
    columns.fold(0f32, |sum, column| {
        let at = (row / 16 * matrix.cols() + column) * 16 + row % 16;
        let pair = || [bytes[2 * at], bytes[2 * at + 1]];
        let weight = match matrix.dtype() {
            GgmlDType::F32 => f32::from_le_bytes(*bytes[4 * at..].first_chunk().unwrap()),
            GgmlDType::F16 => f16::from_le_bytes(pair()).to_f32(),
            _ => bf16::from_le_bytes(pair()).to_f32(),
        };
        weight.mul_add(x[column], sum)
    })
}

/// The product `[tokens, rows]` in the order that the kernels state.
pub(super) fn reference(matrix: &QuantizedMatrix, x: &[f32]) -> Vec<f32> {
    let is_dense = DENSE.contains(&matrix.dtype());
    let layout = Layout::of(matrix);
    let cols = matrix.cols();
    let element = |x: &[f32], row: usize| {
        let segments = (0..cols).step_by(256).map(|first| {
            let end = (first + 256).min(cols);
            match is_dense {
                true => dense_segment(matrix, row, first..end, x),
                false => layout.segment(row, first / 32..end / 32, x),
            }
        });
        segments.reduce(|total, sum| total + sum).unwrap()
    };
    let tokens = x.chunks_exact(cols);
    tokens
        .flat_map(|x| (0..matrix.rows()).map(move |row| (x, row)))
        .map(|(x, row)| element(x, row))
        .collect()
}

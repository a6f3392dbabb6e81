//! Products with weights in any GGUF format.
//!
//! Weights are repacked once, when they are loaded: sixteen rows interleaved (`packed` draws it). Quantized ones are
//! multiplied with activations rounded to int8 in groups of 32, which is the only error the product adds; weights of 16 and
//! 32 bits are multiplied as floats (`dense`).

mod activations;
mod dense;
mod format;
mod keys;
mod packed;
mod product;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::ops::Range;

use candle_core::quantized::GgmlDType;
use half::{bf16, f16};

pub(crate) use activations::{Activations, Rounding, scale_of};
pub(crate) use dense::Element;
pub(crate) use keys::{Q4Tiles, Q8Tiles};

use crate::cpu::{self, Path};
use crate::lanes::LANES;
use crate::output::{Output, Shared};
use crate::team::Team;
use crate::{Arena, Error, Result};

const OP: &str = "quantized matrix";

/// A weight matrix `[rows, cols]` in any GGUF format.
pub struct QuantizedMatrix {
    rows: usize,
    cols: usize,
    dtype: GgmlDType,
    weights: Box<dyn Weights>,
}

impl std::fmt::Debug for QuantizedMatrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (rows, cols, dtype) = (self.rows, self.cols, self.dtype);
        write!(f, "QuantizedMatrix({rows} x {cols}, {dtype:?})")
    }
}

/// Repacked weights of one format.
trait Weights: Send + Sync {
    /// Whether products read the quantized activations; else the floats.
    fn takes_quantized(&self) -> bool;
    /// Some tiles of 16 rows times all tokens.
    fn multiply(&self, path: Path, x: Input<'_>, tiles: Range<usize>, out: Output<'_>);
    fn dequantize(&self, row: usize, out: &mut [f32]);
    /// As `QuantizedMatrix::bytes`.
    fn bytes(&self) -> (&[u8], &[u8]);
}

/// Activations as both kinds of product take them.
pub(crate) struct Input<'a> {
    /// `[n, cols]`
    pub(crate) floats: &'a [f32],
    /// The same, where the matrix takes it so.
    pub(crate) quantized: &'a mut Activations,
}

impl Input<'_> {
    /// The same for one more matrix.
    pub(crate) fn again(&mut self) -> Input<'_> {
        Input {
            floats: self.floats,
            quantized: self.quantized,
        }
    }
}

impl<F: format::Format + Send + Sync> Weights for packed::Packed<F> {
    fn takes_quantized(&self) -> bool {
        true
    }

    fn multiply(&self, path: Path, x: Input<'_>, tiles: Range<usize>, out: Output<'_>) {
        x.quantized.prepare::<F>();
        let product = product::Product {
            weights: self,
            x: x.quantized,
            tiles: tiles.clone(),
            out,
            format: PhantomData::<F>,
        };
        cpu::run(path, product);
        if let Some(rest) = &mut x.quantized.rest {
            rest.prepare::<F>();
            let product = product::Product {
                weights: self,
                x: rest,
                tiles,
                out: out.adding(),
                format: PhantomData::<F>,
            };
            cpu::run(path, product);
        }
    }

    fn dequantize(&self, row: usize, out: &mut [f32]) {
        self.dequantize(row, out);
    }

    fn bytes(&self) -> (&[u8], &[u8]) {
        self.bytes()
    }
}

impl<E: Element> Weights for dense::Dense<E> {
    fn takes_quantized(&self) -> bool {
        false
    }

    fn multiply(&self, path: Path, x: Input<'_>, tiles: Range<usize>, out: Output<'_>) {
        let product = dense::Product {
            weights: self,
            x: x.floats,
            tiles,
            out,
        };
        cpu::run(path, product);
    }

    fn dequantize(&self, row: usize, out: &mut [f32]) {
        self.dequantize(row, out);
    }

    fn bytes(&self) -> (&[u8], &[u8]) {
        self.bytes()
    }
}

impl QuantizedMatrix {
    /// A matrix from the bytes of a file: rows one after the other, each in blocks of `dtype`. They are repacked by the
    /// team, into memory of the arena, so the bytes are not needed afterwards.
    pub fn new(
        dtype: GgmlDType,
        rows: usize,
        cols: usize,
        bytes: &[u8],
        team: &Team,
        arena: &mut Arena,
    ) -> Result<Self> {
        let misfit = || {
            let reason = format!("{rows} x {cols} {dtype:?} in {} bytes", bytes.len());
            Error::argument(OP, reason)
        };
        if rows == 0 || cols == 0 || !cols.is_multiple_of(dtype.block_size()) {
            return Err(misfit());
        }
        let expected = (cols / dtype.block_size())
            .checked_mul(dtype.type_size())
            .and_then(|row_bytes| row_bytes.checked_mul(rows))
            .ok_or_else(misfit)?;
        if bytes.len() != expected {
            return Err(misfit());
        }
        macro_rules! packed {
            ($format:ident) => {
                Box::new(packed::Packed::<format::$format>::new(
                    rows, cols, bytes, team, arena,
                ))
            };
        }
        let weights: Box<dyn Weights> = match dtype {
            GgmlDType::F32 => Box::new(dense::Dense::<f32>::new(rows, cols, bytes, team)),
            GgmlDType::F16 => Box::new(dense::Dense::<f16>::new(rows, cols, bytes, team)),
            GgmlDType::BF16 => Box::new(dense::Dense::<bf16>::new(rows, cols, bytes, team)),
            GgmlDType::Q4_0 => packed!(Q4_0),
            GgmlDType::Q4_1 => packed!(Q4_1),
            GgmlDType::Q5_0 => packed!(Q5_0),
            GgmlDType::Q5_1 => packed!(Q5_1),
            GgmlDType::Q8_0 => packed!(Q8_0),
            GgmlDType::Q2K => packed!(Q2K),
            GgmlDType::Q3K => packed!(Q3K),
            GgmlDType::Q4K => packed!(Q4K),
            GgmlDType::Q5K => packed!(Q5K),
            GgmlDType::Q6K => packed!(Q6K),
            GgmlDType::Q8_1 | GgmlDType::Q8K => {
                let reason = format!("{dtype:?} is a format of activations, not of weights");
                return Err(Error::argument(OP, reason));
            }
        };
        Ok(Self {
            rows,
            cols,
            dtype,
            weights,
        })
    }

    /// Rows: the width of the output.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns: the width of the input.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The format in the file.
    pub fn dtype(&self) -> GgmlDType {
        self.dtype
    }

    /// Bytes the repacked weights take.
    pub fn num_bytes(&self) -> usize {
        let (quants, scales) = self.bytes();
        quants.len() + scales.len()
    }

    /// The repacked weights: of quantized formats the quants and the scales (`packed` and `format` draw them), of others the
    /// weights `[tile][column][16]` and nothing.
    pub fn bytes(&self) -> (&[u8], &[u8]) {
        self.weights.bytes()
    }

    /// Bytes that `rows` x `cols` weights of a format will take once they are repacked: what `num_bytes` says of the loaded
    /// matrix. 0 for formats that no weights have.
    pub fn bytes_for(dtype: GgmlDType, rows: usize, cols: usize) -> usize {
        let dense = rows.next_multiple_of(LANES) * cols;
        macro_rules! packed {
            ($format:ident) => {
                packed::Packed::<format::$format>::bytes_for(rows, cols)
            };
        }
        match dtype {
            GgmlDType::F32 => dense * size_of::<f32>(),
            GgmlDType::F16 | GgmlDType::BF16 => dense * size_of::<f16>(),
            GgmlDType::Q4_0 => packed!(Q4_0),
            GgmlDType::Q4_1 => packed!(Q4_1),
            GgmlDType::Q5_0 => packed!(Q5_0),
            GgmlDType::Q5_1 => packed!(Q5_1),
            GgmlDType::Q8_0 => packed!(Q8_0),
            GgmlDType::Q2K => packed!(Q2K),
            GgmlDType::Q3K => packed!(Q3K),
            GgmlDType::Q4K => packed!(Q4K),
            GgmlDType::Q5K => packed!(Q5K),
            GgmlDType::Q6K => packed!(Q6K),
            GgmlDType::Q8_1 | GgmlDType::Q8K => 0,
        }
    }

    /// `x` `[n, cols]` times the transposed matrix: `[n, rows]`.
    pub fn forward(&self, x: &[f32], team: &Team) -> Result<Vec<f32>> {
        if !x.len().is_multiple_of(self.cols) {
            let reason = format!("{} input values for {self:?}", x.len());
            return Err(Error::argument(OP, reason));
        }
        self.product(x, team, Rounding::Once)
    }

    fn product(&self, x: &[f32], team: &Team, rounding: Rounding) -> Result<Vec<f32>> {
        let mut out = vec![0f32; x.len() / self.cols * self.rows];
        let shared = Shared::new(&mut out);
        team.run(|member| {
            let mut quantized = Activations::default();
            if self.takes_quantized() {
                quantized.quantize(member.path(), x, self.cols, rounding);
            }
            let x = Input {
                floats: x,
                quantized: &mut quantized,
            };
            let tiles = member.share(self.tiles());
            self.multiply(member.path(), x, tiles, Output::store(shared, self.rows));
        });
        Ok(out)
    }

    /// Appends the rows `ids` to `out` as floats: `[ids, cols]`.
    pub fn embedding(&self, ids: &[u32], out: &mut Vec<f32>) -> Result<()> {
        if let Some(id) = ids.iter().find(|&&id| id as usize >= self.rows) {
            return Err(Error::argument(OP, format!("no row {id} in {self:?}")));
        }
        let start = out.len();
        out.resize(start + ids.len() * self.cols, 0.0);
        for (id, out) in ids.iter().zip(out[start..].chunks_exact_mut(self.cols)) {
            self.weights.dequantize(*id as usize, out);
        }
        Ok(())
    }

    /// Whether products read the quantized activations.
    pub(crate) fn takes_quantized(&self) -> bool {
        self.weights.takes_quantized()
    }

    /// Tiles of 16 rows.
    pub(crate) fn tiles(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    /// Some tiles of rows times all tokens of `x`, whose quantized form is there if the matrix takes it.
    pub(crate) fn multiply(&self, path: Path, x: Input<'_>, tiles: Range<usize>, out: Output<'_>) {
        if !tiles.is_empty() && !x.floats.is_empty() {
            self.weights.multiply(path, x, tiles, out);
        }
    }
}

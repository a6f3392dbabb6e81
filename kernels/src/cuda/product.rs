//! Launches of the products with weights, over the very bytes that the CPU multiplies ([`QuantizedMatrix::bytes`]).
//!
//! The source of the arithmetic is `quantized_product.cuh`; its order of sums is fixed, so that every kernel, for one token or for
//! many, computes the same bits. Weights of 16 bits have two orders: that of `product_dense.cu`, and that of `product_dense_mma.cu`,
//! which prefills them on tensor cores and says how far it may be off. Which kernel runs follows from what the caller is about,
//! decoding or prefill, never from the number of tokens.
//!
//! [`QuantizedMatrix::bytes`]: crate::QuantizedMatrix::bytes

use candle_core::quantized::GgmlDType;

use super::launch::{WARP, checked, number, numbers};
use super::{Argument, Launch, Rows, Source};
use crate::lanes::{GROUP, LANES};
use crate::{Error, Result};

const OP: &str = "a product on the GPU";
/// Columns of a segment, a chain of sums.
const SEGMENT_COLS: usize = 256;
/// Segments whose sums the kernels hold at once.
const HELD_SEGMENTS: usize = 64;
/// Tokens, and rows, of a block where tensor cores multiply, and its threads.
const MATRIX: usize = 64;
const MATRIX_THREADS: u32 = 4 * WARP;
/// Groups of the activations that such a block holds twice.
const STAGE_GROUPS: usize = 4;
/// Tokens of a block that prefills without them.
const PLAIN_TOKENS: usize = 8;
/// Tokens, by whose number the kernels find the sums of quantized ones, come in fours.
const FOUR: usize = 4;
/// Numbers for each group and token beside the quants: the scale, and two sums.
const PLANES: usize = 3;
/// The least compute capability with tensor cores that multiply bytes, and bf16, as the kernels want it.
const LEAST_WITH_MATRICES: u32 = 80;

/// A matrix of weights `[rows, cols]` in the device's memory: the two parts of [`QuantizedMatrix::bytes`], the second of which
/// formats of 16 and 32 bits do not have.
///
/// [`QuantizedMatrix::bytes`]: crate::QuantizedMatrix::bytes
#[derive(Clone, Copy, Debug)]
pub struct Weights {
    /// The format in the file.
    pub format: GgmlDType,
    /// Rows: the width of the output.
    pub rows: usize,
    /// Columns: the width of the input.
    pub cols: usize,
    /// Address of the quants, or of the weights of 16 or 32 bits; a multiple of 16.
    pub quants: u64,
    /// Address of the scales, a multiple of 16.
    pub scales: u64,
}

/// Activations rounded to int8, as `quantize` leaves them.
#[derive(Clone, Copy, Debug)]
pub struct Quantized {
    /// Address of the quants `[tokens, cols]`, a multiple of 16.
    pub quants: u64,
    /// Address of the scales and the sums of quants, a multiple of 16.
    pub parts: u64,
    /// Tokens.
    pub tokens: usize,
    /// Columns, a multiple of 32.
    pub cols: usize,
    /// Whether the first token is rounded twice, as that at position 0 of a sequence must be (`Rounding` of the CPU): what
    /// rounding took off is one token more, which `Weights::rest` multiplies.
    pub has_rest: bool,
}

/// What a product multiplies. A format takes one of the two: see [`Weights::takes_quantized`].
#[derive(Clone, Copy, Debug)]
pub enum Input {
    /// Address of the floats `[tokens, cols]`, a multiple of 16, and how many tokens there are.
    Floats(u64, usize),
    /// The same, rounded.
    Quantized(Quantized),
}

/// Where a product's result goes.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// `[tokens, rows of the matrix]`
    pub rows: Rows,
    /// Address of a float for each row of the matrix, to be added; 0 for none.
    pub bias: u64,
    /// Whether the result is added to what stands there, else replaces it.
    pub is_added: bool,
}

/// What the kernels of a format are called, and where they stand.
fn names(format: GgmlDType) -> Result<(&'static str, Source)> {
    Ok(match format {
        GgmlDType::F32 => ("f32", Source::ProductDense),
        GgmlDType::F16 => ("f16", Source::ProductDense),
        GgmlDType::BF16 => ("bf16", Source::ProductDense),
        GgmlDType::Q4_0 => ("q4_0", Source::ProductQ4_0),
        GgmlDType::Q4_1 => ("q4_1", Source::ProductQ4_1),
        GgmlDType::Q5_0 => ("q5_0", Source::ProductQ5_0),
        GgmlDType::Q5_1 => ("q5_1", Source::ProductQ5_1),
        GgmlDType::Q8_0 => ("q8_0", Source::ProductQ8_0),
        GgmlDType::Q2K => ("q2k", Source::ProductQ2K),
        GgmlDType::Q3K => ("q3k", Source::ProductQ3K),
        GgmlDType::Q4K => ("q4k", Source::ProductQ4K),
        GgmlDType::Q5K => ("q5k", Source::ProductQ5K),
        GgmlDType::Q6K => ("q6k", Source::ProductQ6K),
        GgmlDType::Q8_1 | GgmlDType::Q8K => {
            let reason = format!("{format:?} is a format of activations, not of weights");
            return Err(Error::argument(OP, reason));
        }
    })
}

impl Quantized {
    /// Tokens and what stands beside them, as the kernels count them.
    fn stride(&self) -> usize {
        (self.tokens + usize::from(self.has_rest)).next_multiple_of(FOUR)
    }

    /// Bytes that `quants` and `parts` take for so many tokens of `cols` columns.
    pub fn bytes_for(tokens: usize, cols: usize, has_rest: bool) -> [usize; 2] {
        let of = Quantized {
            quants: 0,
            parts: 0,
            tokens,
            cols,
            has_rest,
        };
        let rows = tokens + usize::from(has_rest);
        let parts = cols / GROUP * PLANES * of.stride() * size_of::<f32>();
        [rows * cols, parts]
    }

    /// Quantizes `x` (an address, a multiple of 16) `[tokens, cols]`.
    ///
    /// # Errors
    /// When a size does not fit the kernel.
    pub fn quantize(&self, x: u64) -> Result<Launch> {
        const OP: &str = "quantizing activations on the GPU";
        if self.tokens == 0 || !self.cols.is_multiple_of(GROUP) {
            let reason = format!("{} tokens of {} columns", self.tokens, self.cols);
            return Err(Error::argument(OP, reason));
        }
        let [cols, tokens, stride] = numbers(OP, [self.cols, self.tokens, self.stride()])?;
        let launch = Launch {
            source: Source::Quantize,
            kernel: "quantize_activations".into(),
            grid: [(cols / GROUP as u32).div_ceil(32), stride, 1],
            threads: 256,
            shared_bytes: 0,
            arguments: vec![
                Argument::Address(x),
                Argument::Address(self.quants),
                Argument::Address(self.parts),
                Argument::U32(cols),
                Argument::U32(tokens),
                Argument::U32(stride),
                Argument::U32(u32::from(self.has_rest)),
            ],
        };
        checked(OP, launch)
    }
}

impl Weights {
    /// Whether products read the quantized activations; else the floats.
    pub fn takes_quantized(&self) -> bool {
        !matches!(
            self.format,
            GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16
        )
    }

    /// The arguments of a product of the first `tokens` tokens of `x`.
    fn arguments(&self, x: Input, tokens: usize, out: Output) -> Result<Vec<Argument>> {
        let [rows, cols, num_tokens, out_stride] =
            numbers(OP, [self.rows, self.cols, tokens, out.rows.stride])?;
        let is_whole = self.cols.is_multiple_of(self.format.block_size());
        if self.rows == 0 || self.cols == 0 || tokens == 0 || !is_whole {
            let reason = format!("{tokens} tokens times {self:?}");
            return Err(Error::argument(OP, reason));
        }
        let mut arguments = vec![Argument::Address(self.quants)];
        let mut stride = None;
        match x {
            Input::Quantized(x) if self.takes_quantized() && x.cols == self.cols => {
                let addresses = [self.scales, x.quants, x.parts];
                arguments.extend(addresses.map(Argument::Address));
                stride = Some(Argument::U32(number(OP, x.stride())?));
            }
            Input::Floats(x, _) if !self.takes_quantized() && self.cols.is_multiple_of(4) => {
                arguments.push(Argument::Address(x));
            }
            _ => {
                let reason = format!("{x:?} times {self:?}");
                return Err(Error::argument(OP, reason));
            }
        }
        arguments.extend([out.rows.address, out.bias].map(Argument::Address));
        arguments.extend([rows, cols, num_tokens].map(Argument::U32));
        arguments.extend(stride);
        arguments.push(Argument::U32(out_stride));
        arguments.push(Argument::U32(u32::from(out.is_added)));
        Ok(arguments)
    }

    /// A launch of a kernel that takes `of` tokens a block, a lane for each row of a tile.
    fn by_lanes(
        &self,
        kind: &str,
        of: usize,
        x: Input,
        tokens: usize,
        out: Output,
    ) -> Result<Launch> {
        let (name, source) = names(self.format)?;
        let segments = self.cols.div_ceil(SEGMENT_COLS);
        // Half a warp a segment; at least a thread for each result.
        let warps = segments.div_ceil(2).clamp(of.div_ceil(2), 8);
        let sums = segments.min(HELD_SEGMENTS) * of * LANES;
        let launch = Launch {
            source,
            kernel: format!("product_{kind}_{name}"),
            grid: [
                number(OP, self.rows.div_ceil(LANES))?,
                number(OP, tokens.div_ceil(of))?,
                1,
            ],
            threads: number(OP, warps)? * WARP,
            shared_bytes: number(OP, sums * size_of::<f32>())?,
            arguments: self.arguments(x, tokens, out)?,
        };
        checked(OP, launch)
    }

    /// The product with a few tokens, as decoding wants it: each reads all weights.
    ///
    /// # Errors
    /// When a size does not fit the kernel, or `x` is not what the format takes.
    pub fn decode(&self, x: Input, out: Output) -> Result<Launch> {
        self.by_lanes("decode", 1, x, x.tokens(), out)
    }

    /// The product with many tokens on a device of this compute capability (75 for 7.5).
    ///
    /// Tensor cores multiply packed weights to the bits of `decode`, and those of 16 bits to an error of at most
    /// (136 + cols / 32) 2⁻²⁴ of the sum of |w x| (`product_dense_mma.cu` derives it). Weights of 32 bits, and older devices, do
    /// without.
    ///
    /// # Errors
    /// As `decode`.
    pub fn prefill(&self, x: Input, out: Output, compute_capability: u32) -> Result<Launch> {
        let tokens = x.tokens();
        if self.format == GgmlDType::F32 || compute_capability < LEAST_WITH_MATRICES {
            return self.by_lanes("plain", PLAIN_TOKENS, x, tokens, out);
        }
        let (name, source) = names(self.format)?;
        let source = match source {
            Source::ProductDense => Source::ProductDenseMma,
            source => source,
        };
        let launch = Launch {
            source,
            kernel: format!("product_prefill_{name}"),
            grid: [
                number(OP, tokens.div_ceil(MATRIX))?,
                number(OP, self.rows.div_ceil(MATRIX))?,
                1,
            ],
            threads: MATRIX_THREADS,
            shared_bytes: 2 * self.buffer_bytes(),
            arguments: self.arguments(x, tokens, out)?,
        };
        checked(OP, launch)
    }

    /// Bytes of a stage in shared memory (`Buffer` of the kernels): of activations, and of weights that are not packed.
    fn buffer_bytes(&self) -> u32 {
        let floats = MATRIX * size_of::<f32>();
        let bytes = match self.format {
            GgmlDType::F16 | GgmlDType::BF16 => {
                let parts = if self.format == GgmlDType::F16 { 2 } else { 3 };
                let row = GROUP * size_of::<u16>();
                MATRIX * row + parts * MATRIX * (row + 16) + floats
            }
            _ => {
                let planes = match self.format {
                    GgmlDType::Q2K => 3,
                    GgmlDType::Q4_1 | GgmlDType::Q5_1 | GgmlDType::Q4K | GgmlDType::Q5K => 2,
                    _ => 1,
                };
                MATRIX * (STAGE_GROUPS * GROUP + 16) + planes * STAGE_GROUPS * floats
            }
        };
        bytes as u32
    }

    /// Adds what rounding took off the first token of `x`, multiplied, to the first row of the output: to be run after the
    /// product of `x`. None where nothing was kept of it, or nothing is rounded.
    ///
    /// # Errors
    /// As `decode`.
    pub fn rest(&self, x: Input, out: Output) -> Result<Option<Launch>> {
        let Input::Quantized(x @ Quantized { has_rest: true, .. }) = x else {
            return Ok(None);
        };
        let rest = Quantized {
            quants: x.quants + (x.tokens * x.cols) as u64,
            parts: x.parts + (x.tokens * size_of::<f32>()) as u64,
            ..x
        };
        let out = Output {
            bias: 0,
            is_added: true,
            ..out
        };
        self.by_lanes("decode", 1, Input::Quantized(rest), 1, out)
            .map(Some)
    }

    /// The rows that `ids` (an address, of `n` u32) says as floats `[n, cols]` at `out`, with the bits of the CPU's; NaN where
    /// there is no such row.
    ///
    /// # Errors
    /// When a size does not fit the kernel.
    pub fn embedding(&self, ids: u64, out: u64, n: usize) -> Result<Launch> {
        const THREADS: u32 = 256;
        let (name, source) = names(self.format)?;
        let [rows, cols] = numbers(OP, [self.rows, self.cols])?;
        let mut arguments = vec![Argument::Address(self.quants)];
        let mut columns = 1;
        if self.takes_quantized() {
            arguments.push(Argument::Address(self.scales));
            columns = 4;
        }
        arguments.extend([ids, out].map(Argument::Address));
        arguments.extend([rows, cols].map(Argument::U32));
        let launch = Launch {
            source,
            kernel: format!("embedding_{name}"),
            grid: [(cols / columns).div_ceil(THREADS), number(OP, n)?, 1],
            threads: THREADS,
            shared_bytes: 0,
            arguments,
        };
        checked(OP, launch)
    }
}

impl Input {
    /// Tokens.
    fn tokens(&self) -> usize {
        match self {
            Self::Floats(_, tokens) => *tokens,
            Self::Quantized(x) => x.tokens,
        }
    }
}

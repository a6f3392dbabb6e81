//! Products with quantized weights.
use candle_core::{Tensor, quantized::GgmlDType};
use crate::Result;
/// A weight matrix.
pub struct QuantizedMatrix { rows: usize, cols: usize, dtype: GgmlDType }
impl QuantizedMatrix {
    /// From the bytes of a file.
    pub fn new(dtype: GgmlDType, rows: usize, cols: usize, bytes: &[u8]) -> Result<Self> { let _ = bytes; Ok(Self { rows, cols, dtype }) }
    /// Rows.
    pub fn rows(&self) -> usize { self.rows }
    /// Columns.
    pub fn cols(&self) -> usize { self.cols }
    /// Format.
    pub fn dtype(&self) -> GgmlDType { self.dtype }
    /// `[n, cols]` to `[n, rows]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> { let _ = x; todo!() }
    /// Rows `ids`, as f32 `[n, cols]`.
    pub fn embedding(&self, ids: &[u32]) -> Result<Tensor> { let _ = ids; todo!() }
    /// All rows as f32 `[rows, cols]`.
    pub fn dequantize(&self) -> Result<Tensor> { todo!() }
}

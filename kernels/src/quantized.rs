//! Products with quantized weights, as they come from the file.
//!
//! The general path is the tensor library's dot product of one row and one activation vector, which depends on nothing
//! else; its repacked and tiled products depend on how many tokens there are, so they are not used. `Q4_0`, `Q4_1` and
//! `Q8_0` have a path of our own on x86-64 with AVX2: activations are quantized to int8 in groups of 32, integers are
//! multiplied per group, groups are added up in order.

mod activations;
#[cfg(target_arch = "x86_64")]
mod avx2;

use std::borrow::Cow;

use candle_core::quantized::{GgmlDType, QuantizedType};
use candle_core::{CpuStorage, CustomOp1, Device, Layout, Shape, Tensor};

use crate::cpu::{Path, path};
use crate::input::{f32_input, f32_slice};
use crate::{Error, Result};

const OP: &str = "quantized matrix";

/// A weight matrix `[rows, cols]` in any GGUF quantization.
pub struct QuantizedMatrix {
    rows: usize,
    cols: usize,
    blocks: Box<dyn QuantizedType>,
}

impl std::fmt::Debug for QuantizedMatrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "QuantizedMatrix({} x {}, {:?})",
            self.rows,
            self.cols,
            self.dtype()
        )
    }
}

impl QuantizedMatrix {
    /// A matrix from the bytes of a file: rows one after the other, each in blocks of `dtype`. The bytes are copied.
    pub fn new(dtype: GgmlDType, rows: usize, cols: usize, bytes: &[u8]) -> Result<Self> {
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
        let blocks = with_alignment(bytes, |bytes| dtype.from_data(Cow::Borrowed(bytes)));
        Ok(Self { rows, cols, blocks })
    }

    /// Rows: the width of the output.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns: the width of the input.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The format of the blocks.
    pub fn dtype(&self) -> GgmlDType {
        self.blocks.dtype()
    }

    /// `x` `[n, cols]` times the transposed matrix: `[n, rows]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = f32_input(OP, x)?;
        let (_, width) = x.dims2()?;
        if width != self.cols {
            let reason = format!("input {:?} for {self:?}", x.dims());
            return Err(Error::argument(OP, reason));
        }
        Ok(x.apply_op1_no_bwd(self)?)
    }

    /// The rows `ids` as f32 `[n, cols]`.
    pub fn embedding(&self, ids: &[u32]) -> Result<Tensor> {
        let CpuStorage::F32(values) = self.blocks.embedding(ids, self.rows, self.cols)? else {
            return Err(Error::argument(OP, "rows that are not f32"));
        };
        Ok(Tensor::from_vec(
            values,
            (ids.len(), self.cols),
            &Device::Cpu,
        )?)
    }

    /// All rows as f32 `[rows, cols]`.
    pub fn dequantize(&self) -> Result<Tensor> {
        let CpuStorage::F32(values) = self.blocks.dequantize(self.rows * self.cols)? else {
            return Err(Error::argument(OP, "values that are not f32"));
        };
        Ok(Tensor::from_vec(
            values,
            (self.rows, self.cols),
            &Device::Cpu,
        )?)
    }

    #[cfg(target_arch = "x86_64")]
    fn bytes(&self) -> &[u8] {
        // SAFETY: the blocks are one vector of plain data of that many bytes, which `self` owns and never changes.
        unsafe {
            std::slice::from_raw_parts(self.blocks.as_ptr(), self.blocks.storage_size_in_bytes())
        }
    }
}

impl CustomOp1 for QuantizedMatrix {
    fn name(&self) -> &'static str {
        OP
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let (n, _) = layout.shape().dims2()?;
        let x = f32_slice(x, layout)?;
        let mut out = vec![0f32; n * self.rows];
        match (path(), self.dtype()) {
            _ if n == 0 => {}
            #[cfg(target_arch = "x86_64")]
            (Path::Avx2, GgmlDType::Q4_0) => {
                avx2::product::<{ avx2::Q4_0 }>(self.bytes(), self.cols, x, &mut out)
            }
            #[cfg(target_arch = "x86_64")]
            (Path::Avx2, GgmlDType::Q4_1) => {
                avx2::product::<{ avx2::Q4_1 }>(self.bytes(), self.cols, x, &mut out)
            }
            #[cfg(target_arch = "x86_64")]
            (Path::Avx2, GgmlDType::Q8_0) => {
                avx2::product::<{ avx2::Q8_0 }>(self.bytes(), self.cols, x, &mut out)
            }
            _ => self
                .blocks
                .matmul_t((n, self.cols, self.rows), x, &mut out)?,
        }
        Ok((CpuStorage::F32(out), Shape::from((n, self.rows))))
    }
}

/// Calls `f` with bytes aligned for any block, copied only if they are not.
fn with_alignment<T>(bytes: &[u8], f: impl FnOnce(&[u8]) -> T) -> T {
    const ALIGNMENT: usize = 8;
    if (bytes.as_ptr() as usize).is_multiple_of(ALIGNMENT) {
        return f(bytes);
    }
    let mut copy = vec![0u8; bytes.len() + ALIGNMENT];
    let start = (ALIGNMENT - copy.as_ptr() as usize % ALIGNMENT) % ALIGNMENT;
    copy[start..start + bytes.len()].copy_from_slice(bytes);
    f(&copy[start..start + bytes.len()])
}

#[cfg(test)]
mod tests;

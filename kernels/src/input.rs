//! Checks of the tensors an operation is given, shared by all operations.

use candle_core::{CpuStorage, DType, Layout, Tensor};
use half::f16;

use crate::{Error, Result};

/// `x` as a contiguous f32 tensor on the CPU; an error names the operation.
pub(crate) fn f32_input(op: &'static str, x: &Tensor) -> Result<Tensor> {
    if !x.device().is_cpu() {
        return Err(Error::device(op, x.device()));
    }
    if x.dtype() != DType::F32 {
        return Err(Error::DType {
            op,
            expected: DType::F32,
            got: x.dtype(),
        });
    }
    Ok(x.contiguous()?)
}

/// The values of a contiguous f32 tensor.
pub(crate) fn f32_slice<'a>(s: &'a CpuStorage, l: &Layout) -> candle_core::Result<&'a [f32]> {
    let (start, end) = contiguous(l)?;
    Ok(&s.as_slice::<f32>()?[start..end])
}

/// The values of a contiguous f16 tensor.
pub(crate) fn f16_slice<'a>(s: &'a CpuStorage, l: &Layout) -> candle_core::Result<&'a [f16]> {
    let (start, end) = contiguous(l)?;
    Ok(&s.as_slice::<f16>()?[start..end])
}

/// The values of a contiguous f16 tensor, for writing.
pub(crate) fn f16_slice_mut<'a>(
    s: &'a mut CpuStorage,
    l: &Layout,
) -> candle_core::Result<&'a mut [f16]> {
    let (start, end) = contiguous(l)?;
    match s {
        CpuStorage::F16(values) => Ok(&mut values[start..end]),
        _ => candle_core::bail!("expected f16 values"),
    }
}

fn contiguous(l: &Layout) -> candle_core::Result<(usize, usize)> {
    match l.contiguous_offsets() {
        Some(range) => Ok(range),
        None => candle_core::bail!("expected a contiguous tensor, got {l:?}"),
    }
}

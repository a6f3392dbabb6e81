//! Writing the keys and values of new tokens into their blocks.

use candle_core::{CpuStorage, InplaceOp3, Layout, Tensor};
use half::f16;

use crate::input::{f16_slice_mut, f32_input, f32_slice};
use crate::{BLOCK_TOKENS, Error, KvLayout, KvPool, Result};

const OP: &str = "kv write";
const MAX: f32 = 65_504.0;

/// Writes `k` and `v` `[n, kv_heads, head_dim]` of the tokens at positions `offset..offset + n` into the slots that
/// `table` names. Values beyond the range of f16 become its largest ones, so that what is read back is finite.
pub fn kv_write(
    pool: &KvPool,
    layer: usize,
    k: &Tensor,
    v: &Tensor,
    table: &[u32],
    offset: usize,
) -> Result<()> {
    let (k, v) = (f32_input(OP, k)?, f32_input(OP, v)?);
    let layout = *pool.layout();
    let (n, kv_heads, head_dim) = k.dims3()?;
    if v.dims() != k.dims() || (kv_heads, head_dim) != (layout.num_kv_heads, layout.head_dim) {
        let reason = format!("keys {:?}, values {:?}, {layout:?}", k.dims(), v.dims());
        return Err(Error::argument(OP, reason));
    }
    let end = offset
        .checked_add(n)
        .ok_or_else(|| Error::argument(OP, format!("{n} tokens at {offset}")))?;
    pool.check_table(OP, layer, table, end)?;
    if n == 0 {
        return Ok(());
    }
    let op = KvWrite {
        layout,
        layer,
        table,
        offset,
    };
    Ok(pool.tensor().inplace_op3(&k, &v, &op)?)
}

struct KvWrite<'a> {
    layout: KvLayout,
    layer: usize,
    table: &'a [u32],
    offset: usize,
}

impl InplaceOp3 for KvWrite<'_> {
    fn name(&self) -> &'static str {
        OP
    }

    fn cpu_fwd(
        &self,
        pool: &mut CpuStorage,
        pool_layout: &Layout,
        k: &CpuStorage,
        k_layout: &Layout,
        v: &CpuStorage,
        v_layout: &Layout,
    ) -> candle_core::Result<()> {
        let pool = f16_slice_mut(pool, pool_layout)?;
        let (k, v) = (f32_slice(k, k_layout)?, f32_slice(v, v_layout)?);
        let row = self.layout.row_elems();
        for (i, (k, v)) in k.chunks_exact(row).zip(v.chunks_exact(row)).enumerate() {
            let position = self.offset + i;
            let slot = self.table[position / BLOCK_TOKENS];
            let at = position % BLOCK_TOKENS * row;
            let key = self.layout.key_slab(slot, self.layer) + at;
            let value = self.layout.value_slab(slot, self.layer) + at;
            narrow(k, &mut pool[key..key + row]);
            narrow(v, &mut pool[value..value + row]);
        }
        Ok(())
    }
}

/// f32 to f16, to nearest, saturating; NaN stays NaN.
fn narrow(x: &[f32], out: &mut [f16]) {
    #[cfg(target_arch = "x86_64")]
    if crate::cpu::path() == crate::cpu::Path::Avx2 {
        // SAFETY: the machine has the features.
        return unsafe { narrow_avx2(x, out) };
    }
    narrow_reference(x, out);
}

fn narrow_reference(x: &[f32], out: &mut [f16]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = f16::from_f32(x.clamp(-MAX, MAX));
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn narrow_avx2(x: &[f32], out: &mut [f16]) {
    use std::arch::x86_64::*;
    let ((x8, x_rest), (out8, out_rest)) = (x.as_chunks::<8>(), out.as_chunks_mut::<8>());
    let max = _mm256_set1_ps(MAX);
    let min = _mm256_set1_ps(-MAX);
    for (x, out) in x8.iter().zip(out8) {
        // SAFETY: eight floats are read, eight halves are written.
        unsafe {
            let value = _mm256_loadu_ps(x.as_ptr());
            // The value second: that operand is the result when it is NaN.
            let value = _mm256_max_ps(min, _mm256_min_ps(max, value));
            let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value);
            _mm_storeu_si128(out.as_mut_ptr().cast(), halves);
        }
    }
    narrow_reference(x_rest, out_rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{floats, tensor, values};
    use candle_core::Device;

    fn pool_values(pool: &KvPool) -> Vec<f16> {
        pool.tensor().flatten_all().unwrap().to_vec1().unwrap()
    }

    #[test]
    fn each_row_lands_in_its_block_and_nothing_else_changes() {
        let layout = KvLayout {
            num_layers: 2,
            num_kv_heads: 3,
            head_dim: 10,
        };
        for (offset, n) in [
            (0, 1),
            (63, 2),
            (0, 64),
            (1, 64),
            (64, 65),
            (127, 1),
            (5, 0),
        ] {
            let pool = KvPool::new(layout, 5, &Device::Cpu).unwrap();
            for slot in 0..5 {
                pool.write_slot(slot, &vec![0xff; layout.slot_bytes()])
                    .unwrap();
            }
            let (k, v) = (tensor(1, &[n, 3, 10]), tensor(2, &[n, 3, 10]));
            let table = [3, 0, 2];
            kv_write(&pool, 1, &k, &v, &table, offset).unwrap();
            let mut want = vec![f16::from_bits(0xffff); 5 * layout.slot_elems()];
            for (x, slab) in [(&k, 2), (&v, 3)] {
                for (i, value) in values(x).into_iter().enumerate() {
                    let (position, element) = (offset + i / 30, i % 30);
                    let slot = table[position / 64] as usize;
                    let row = slot * layout.slot_elems() + slab * layout.slab_elems();
                    want[row + position % 64 * 30 + element] = f16::from_f32(value);
                }
            }
            let same = pool_values(&pool)
                .iter()
                .map(|x| x.to_bits())
                .eq(want.iter().map(|x| x.to_bits()));
            assert!(same, "offset {offset}, {n} tokens");
        }
    }

    #[test]
    fn narrowing_equals_the_reference_and_saturates() {
        let mut x: Vec<f32> = floats(3, 1000).iter().map(|v| v * 70_000.0).collect();
        x.extend(floats(4, 1000).iter().map(|v| v * 1e-5));
        x.extend([f32::INFINITY, f32::NEG_INFINITY, 65_519.0, 65_520.0, -0.0]);
        let (mut got, mut want) = (vec![f16::NAN; x.len()], vec![f16::NAN; x.len()]);
        narrow(&x, &mut got);
        narrow_reference(&x, &mut want);
        assert!(
            got.iter()
                .zip(&want)
                .all(|(a, b)| a.to_bits() == b.to_bits())
        );
        assert!(got.iter().all(|v| v.is_finite()));
        let mut nan = [f16::ZERO; 8];
        narrow(&[f32::NAN; 8], &mut nan);
        assert!(nan.iter().all(|v| v.is_nan()));
    }

    #[test]
    fn a_table_too_short_or_foreign_is_an_error() {
        let layout = KvLayout {
            num_layers: 1,
            num_kv_heads: 1,
            head_dim: 8,
        };
        let pool = KvPool::new(layout, 2, &Device::Cpu).unwrap();
        let x = tensor(5, &[2, 1, 8]);
        assert!(kv_write(&pool, 0, &x, &x, &[0], 62).is_ok());
        assert!(kv_write(&pool, 0, &x, &x, &[0], 63).is_err());
        assert!(kv_write(&pool, 0, &x, &x, &[2], 0).is_err());
        assert!(kv_write(&pool, 1, &x, &x, &[0], 0).is_err());
        assert!(kv_write(&pool, 0, &x, &x, &[0], usize::MAX).is_err());
        assert!(kv_write(&pool, 0, &tensor(6, &[2, 2, 8]), &x, &[0], 0).is_err());
    }
}

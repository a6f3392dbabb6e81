//! The pool of KV slots: one tensor, equal slots, no bookkeeping (who holds which slot is the caller's business).

use std::sync::{Mutex, PoisonError};

use candle_core::{CpuStorage, Device, InplaceOp1, Layout, Tensor};
use half::f16;
use half::vec::HalfBitsVecExt;

use crate::output::Shared;
use crate::{BLOCK_TOKENS, Error, KvLayout, Result, large_pages};

/// A pool of equal slots in one f16 tensor `[num_slots, slot_elems]`.
#[derive(Debug)]
pub struct KvPool {
    layout: KvLayout,
    num_slots: usize,
    tensor: Tensor,
}

impl KvPool {
    /// A pool of zeroed slots. On the CPU they are zero pages of the operating system, which take memory when first written.
    pub fn new(layout: KvLayout, num_slots: usize, device: &Device) -> Result<Self> {
        const OP: &str = "kv pool";
        if !device.is_cpu() {
            return Err(Error::device(OP, device));
        }
        let elems = num_slots
            .checked_mul(layout.slot_elems())
            .filter(|&n| n > 0 && n <= isize::MAX as usize / 2 && num_slots <= u32::MAX as usize)
            .ok_or_else(|| {
                Error::argument(OP, format!("cannot hold {num_slots} slots of {layout:?}"))
            })?;
        // `vec![0u16; n]` asks the allocator for zeroed memory; zeroed f16 values would be written one by one.
        let values: Vec<f16> = vec![0u16; elems].reinterpret_into();
        large_pages::advise(&values);
        let tensor = Tensor::from_vec(values, (num_slots, layout.slot_elems()), device)?;
        Ok(Self {
            layout,
            num_slots,
            tensor,
        })
    }

    /// Geometry of the slots.
    pub fn layout(&self) -> &KvLayout {
        &self.layout
    }

    /// Number of slots.
    pub fn num_slots(&self) -> usize {
        self.num_slots
    }

    /// The memory: f16 `[num_slots, slot_elems]`.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// Copies a whole slot out, as the bytes every tier holds.
    pub fn read_slot(&self, slot: u32, out: &mut [u8]) -> Result<()> {
        const OP: &str = "read slot";
        self.check_slot(OP, slot)?;
        self.check_bytes(OP, out.len())?;
        let (storage, layout) = self.tensor.storage_and_layout();
        let candle_core::Storage::Cpu(storage) = &*storage else {
            return Err(Error::device(OP, self.tensor.device()));
        };
        let start = slot as usize * self.layout.slot_elems();
        let values = &f16_slice(storage, layout)?[start..start + self.layout.slot_elems()];
        for (bytes, value) in out.chunks_exact_mut(2).zip(values) {
            bytes.copy_from_slice(&value.to_le_bytes());
        }
        Ok(())
    }

    /// Fills a whole slot from the bytes `read_slot` gave.
    pub fn write_slot(&self, slot: u32, bytes: &[u8]) -> Result<()> {
        const OP: &str = "write slot";
        self.check_slot(OP, slot)?;
        self.check_bytes(OP, bytes.len())?;
        let start = slot as usize * self.layout.slot_elems();
        Ok(self.tensor.inplace_op1(&WriteSlot { start, bytes })?)
    }

    /// Copies the first `num_tokens` rows of every slab from one slot to another; the other rows stay as they are.
    pub fn copy_slot(&self, from: u32, to: u32, num_tokens: usize) -> Result<()> {
        const OP: &str = "copy slot";
        self.check_slot(OP, from)?;
        self.check_slot(OP, to)?;
        if num_tokens > BLOCK_TOKENS {
            let reason = format!("{num_tokens} tokens do not fit a block of {BLOCK_TOKENS}");
            return Err(Error::argument(OP, reason));
        }
        Ok(self.tensor.inplace_op1(&CopySlot {
            layout: self.layout,
            from,
            to,
            num_tokens,
        })?)
    }

    /// Calls `f` with the memory of all slots, for threads that write different rows at once.
    pub(crate) fn with_memory<T>(&self, f: impl Fn(Shared<'_, f16>) -> T) -> Result<T> {
        let access = Access {
            f,
            result: Mutex::new(None),
        };
        self.tensor.inplace_op1(&access)?;
        let result = access.result.into_inner();
        let result = result.unwrap_or_else(PoisonError::into_inner);
        Ok(result.expect("the operation ran"))
    }

    /// An error unless `table` names a slot of this pool for each of the tokens `0..num_tokens`.
    pub(crate) fn check_table(
        &self,
        op: &'static str,
        layer: usize,
        table: &[u32],
        num_tokens: usize,
    ) -> Result<()> {
        if layer >= self.layout.num_layers {
            let reason = format!("no layer {layer} of {}", self.layout.num_layers);
            return Err(Error::argument(op, reason));
        }
        let num_blocks = num_tokens.div_ceil(BLOCK_TOKENS);
        if table.len() < num_blocks {
            let reason = format!("{num_tokens} tokens in a table of {} blocks", table.len());
            return Err(Error::argument(op, reason));
        }
        table[..num_blocks]
            .iter()
            .try_for_each(|&slot| self.check_slot(op, slot))
    }

    fn check_slot(&self, op: &'static str, slot: u32) -> Result<()> {
        if (slot as usize) < self.num_slots {
            return Ok(());
        }
        let reason = format!("no slot {slot} in a pool of {}", self.num_slots);
        Err(Error::argument(op, reason))
    }

    fn check_bytes(&self, op: &'static str, len: usize) -> Result<()> {
        if len == self.layout.slot_bytes() {
            return Ok(());
        }
        let reason = format!("{len} bytes for a slot of {}", self.layout.slot_bytes());
        Err(Error::argument(op, reason))
    }
}

struct Access<F, T> {
    f: F,
    result: Mutex<Option<T>>,
}

impl<T, F: Fn(Shared<'_, f16>) -> T> InplaceOp1 for Access<F, T> {
    fn name(&self) -> &'static str {
        "kv memory"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        let result = (self.f)(Shared::new(f16_slice_mut(storage, layout)?));
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        Ok(())
    }
}

/// The values of a contiguous f16 tensor.
fn f16_slice<'a>(s: &'a CpuStorage, l: &Layout) -> candle_core::Result<&'a [f16]> {
    let (start, end) = contiguous(l)?;
    Ok(&s.as_slice::<f16>()?[start..end])
}

/// The values of a contiguous f16 tensor, for writing.
fn f16_slice_mut<'a>(s: &'a mut CpuStorage, l: &Layout) -> candle_core::Result<&'a mut [f16]> {
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

struct WriteSlot<'a> {
    start: usize,
    bytes: &'a [u8],
}

impl InplaceOp1 for WriteSlot<'_> {
    fn name(&self) -> &'static str {
        "write slot"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        let values = &mut f16_slice_mut(storage, layout)?[self.start..];
        for (value, bytes) in values.iter_mut().zip(self.bytes.chunks_exact(2)) {
            *value = f16::from_le_bytes([bytes[0], bytes[1]]);
        }
        Ok(())
    }
}

struct CopySlot {
    layout: KvLayout,
    from: u32,
    to: u32,
    num_tokens: usize,
}

impl InplaceOp1 for CopySlot {
    fn name(&self) -> &'static str {
        "copy slot"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        let values = f16_slice_mut(storage, layout)?;
        let len = self.num_tokens * self.layout.row_elems();
        let (from, to) = (
            self.layout.key_slab(self.from, 0),
            self.layout.key_slab(self.to, 0),
        );
        for slab in 0..self.layout.num_slabs() {
            let start = slab * self.layout.slab_elems();
            values.copy_within(from + start..from + start + len, to + start);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: KvLayout = KvLayout {
        num_layers: 2,
        num_kv_heads: 1,
        head_dim: 8,
    };

    fn slot(pool: &KvPool, slot: u32) -> Vec<u8> {
        let mut bytes = vec![0xaa; LAYOUT.slot_bytes()];
        pool.read_slot(slot, &mut bytes).unwrap();
        bytes
    }

    fn pattern(seed: u8) -> Vec<u8> {
        (0..LAYOUT.slot_bytes())
            .map(|i| (i as u8).wrapping_mul(37).wrapping_add(seed))
            .collect()
    }

    #[test]
    fn a_slot_comes_back_byte_for_byte_and_its_neighbours_stay() {
        let pool = KvPool::new(LAYOUT, 3, &Device::Cpu).unwrap();
        pool.write_slot(1, &pattern(5)).unwrap();
        assert_eq!(slot(&pool, 0), vec![0; LAYOUT.slot_bytes()]);
        assert_eq!(slot(&pool, 1), pattern(5));
        assert_eq!(slot(&pool, 2), vec![0; LAYOUT.slot_bytes()]);
    }

    #[test]
    fn a_copy_takes_the_first_rows_of_each_slab_and_no_more() {
        let pool = KvPool::new(LAYOUT, 2, &Device::Cpu).unwrap();
        pool.write_slot(0, &pattern(1)).unwrap();
        pool.write_slot(1, &pattern(2)).unwrap();
        pool.copy_slot(0, 1, 5).unwrap();
        let (source, kept, copied) = (pattern(1), pattern(2), slot(&pool, 1));
        for slab in 0..LAYOUT.num_slabs() {
            let start = slab * LAYOUT.slab_bytes();
            let (cut, end) = (
                start + 5 * 2 * LAYOUT.row_elems(),
                start + LAYOUT.slab_bytes(),
            );
            assert_eq!(copied[start..cut], source[start..cut]);
            assert_eq!(copied[cut..end], kept[cut..end]);
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error_not_a_panic() {
        let pool = KvPool::new(LAYOUT, 2, &Device::Cpu).unwrap();
        assert!(pool.write_slot(2, &pattern(0)).is_err());
        assert!(pool.write_slot(0, &[0; 3]).is_err());
        assert!(pool.read_slot(0, &mut [0; 3]).is_err());
        assert!(pool.copy_slot(0, 1, 65).is_err());
        assert!(KvPool::new(LAYOUT, 0, &Device::Cpu).is_err());
        assert!(KvPool::new(LAYOUT, usize::MAX, &Device::Cpu).is_err());
    }
}

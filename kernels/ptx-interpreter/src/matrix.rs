//! Matrix products and loads of a warp, with fragments as the PTX manual draws them.

use half::{bf16, f16};

use crate::Fault;
use crate::block::WARP;
use crate::op::Instruction;
use crate::types::Type;
use crate::warp::Lanes;

/// `d[16][8] = a[16][16] * b[16][8] + c[16][8]`, 16-bit factors and f32 sums. Products are exact; a sum is rounded to f32 once
/// after all 16 are added in f64, where a tensor core may drop bits far below the largest term.
pub(crate) fn multiply(lanes: &mut Lanes, ty: Type, list: u32) {
    let slots = &lanes.block.kernel.lists[list as usize..][..14];
    let value = |bits: u64| match ty {
        Type::F16 => f16::from_bits(bits as u16).to_f32(),
        _ => bf16::from_bits(bits as u16).to_f32(),
    };
    let (mut a, mut b, mut c) = ([[0f32; 16]; 16], [[0f32; 8]; 16], [[0f32; 8]; 16]);
    for lane in 0..WARP {
        let (group, part) = (lane / 4, lane % 4);
        for (i, &slot) in slots[4..8].iter().enumerate() {
            let bits = lanes.get(lane, slot);
            let (row, column) = (group + i % 2 * 8, part * 2 + i / 2 * 8);
            a[row][column] = value(bits);
            a[row][column + 1] = value(bits >> 16);
        }
        for (i, &slot) in slots[8..10].iter().enumerate() {
            let bits = lanes.get(lane, slot);
            let row = part * 2 + i * 8;
            b[row][group] = value(bits);
            b[row + 1][group] = value(bits >> 16);
        }
        for (i, &slot) in slots[10..14].iter().enumerate() {
            let value = f32::from_bits(lanes.get(lane, slot) as u32);
            c[group + i / 2 * 8][part * 2 + i % 2] = value;
        }
    }
    for row in 0..16 {
        let mut sums = c[row].map(f64::from);
        for k in 0..16 {
            let factor = f64::from(a[row][k]);
            for (sum, b) in sums.iter_mut().zip(b[k]) {
                *sum += factor * f64::from(b);
            }
        }
        c[row] = sums.map(|sum| sum as f32);
    }
    for lane in 0..WARP {
        let (group, part) = (lane / 4, lane % 4);
        for (i, &slot) in slots[..4].iter().enumerate() {
            let value = c[group + i / 2 * 8][part * 2 + i % 2];
            lanes.set(lane, slot, u64::from(value.to_bits()));
        }
    }
}

/// Loads 8×8 matrices of 16 bits. Lane `8 i + r` says where row r of matrix i is; each lane gets two neighbours of row
/// `lane / 4`, or of that column.
pub(crate) fn load(
    lanes: &mut Lanes,
    instruction: &Instruction,
    count: u8,
    is_transposed: bool,
) -> Result<(), (usize, Fault)> {
    let slots = &lanes.block.kernel.lists[instruction.list as usize..];
    let [_, base, offset, ..] = instruction.args;
    for (matrix, &slot) in slots[..usize::from(count)].iter().enumerate() {
        let mut rows = [[0u16; 8]; 8];
        for (row, values) in rows.iter_mut().enumerate() {
            let lane = matrix * 8 + row;
            let address = lanes.get(lane, base).wrapping_add(lanes.get(lane, offset));
            let mut bytes = [0; 16];
            let now = lanes.block.now(lanes.warp * WARP + lane);
            let read = lanes
                .block
                .shared
                .read(now, address & 0xffff_ffff, &mut bytes);
            read.map_err(|fault| (lane, fault))?;
            for (value, bytes) in values.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *value = u16::from_le_bytes(*bytes);
            }
        }
        for lane in 0..WARP {
            let (i, j) = (lane / 4, lane % 4 * 2);
            let (low, high) = match is_transposed {
                false => (rows[i][j], rows[i][j + 1]),
                true => (rows[j][i], rows[j + 1][i]),
            };
            lanes.set(lane, slot, u64::from(low) | u64::from(high) << 16);
        }
    }
    Ok(())
}

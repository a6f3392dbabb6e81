//! What a tile holds (`layout` draws it).

use half::{bf16, f16};

use crate::kv_format::KvDtype;
use crate::lanes::GROUP;
use crate::layout::{KvLayout, Side, TILE_TOKENS};

/// What a tile holds of token `lane`, `[head_dim]`; as it was rounded, so rotated where the format is.
pub(crate) fn read(layout: &KvLayout, side: Side, tile: &[u8], lane: usize) -> Vec<f32> {
    let (dim, groups) = (layout.head_dim, layout.head_dim / GROUP);
    let half = |at: usize| u16::from_le_bytes([tile[2 * at], tile[2 * at + 1]]);
    let is_key = side == Side::Key;
    let scale = |d: usize| {
        let at = match side {
            Side::Key => d / GROUP * TILE_TOKENS + lane,
            Side::Value => lane * groups + d / GROUP,
        };
        f16::from_bits(half(layout.quant_bytes(side) / 2 + at)).to_f32()
    };
    let element = |d: usize| match layout.dtype(side) {
        KvDtype::F16 | KvDtype::Bf16 => {
            let bits = half(if is_key {
                d * TILE_TOKENS + lane
            } else {
                lane * dim + d
            });
            match layout.dtype(side) {
                KvDtype::F16 => f16::from_bits(bits).to_f32(),
                _ => bf16::from_bits(bits).to_f32(),
            }
        }
        KvDtype::Q8 if is_key => {
            scale(d) * (f32::from(tile[(d / 4 * TILE_TOKENS + lane) * 4 + d % 4]) - 128.0)
        }
        KvDtype::Q8 => scale(d) * f32::from(tile[lane * dim + d] as i8),
        KvDtype::Q4 => {
            let (g, i) = (d / GROUP, d % GROUP);
            let byte = match side {
                Side::Key => tile[((4 * g + i % 16 / 4) * TILE_TOKENS + lane) * 4 + i % 4],
                Side::Value => tile[(lane * groups + g) * 16 + i % 16],
            };
            let quant = if i < 16 { byte & 15 } else { byte >> 4 };
            scale(d) * (f32::from(quant) - 8.0)
        }
    };
    (0..dim).map(element).collect()
}

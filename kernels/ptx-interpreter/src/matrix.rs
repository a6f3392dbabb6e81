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

/// `d[16][8] = a[16][K] * b[K][8] + c[16][8]` of bytes, with sums that wrap; K is 16 (`is_half`) or 32.
pub(crate) fn multiply_bytes(lanes: &mut Lanes, is_half: bool, signs: (bool, bool), list: u32) {
    // Registers of a and of b for each lane.
    let (of_a, of_b) = if is_half { (2, 1) } else { (4, 2) };
    let slots = &lanes.block.kernel.lists[list as usize..][..8 + of_a + of_b];
    let (d, slots) = slots.split_at(4);
    let (a_slots, slots) = slots.split_at(of_a);
    let (b_slots, c_slots) = slots.split_at(of_b);
    let value = |byte: u8, is_signed: bool| match is_signed {
        true => i32::from(byte as i8),
        false => i32::from(byte),
    };
    let (mut a, mut b) = ([[0; 32]; 16], [[0; 32]; 8]);
    for lane in 0..WARP {
        let (group, part) = (lane / 4, lane % 4);
        for (i, &slot) in a_slots.iter().enumerate() {
            let to = &mut a[group + i % 2 * 8][i / 2 * 16 + part * 4..][..4];
            let bytes = (lanes.get(lane, slot) as u32).to_le_bytes();
            to.copy_from_slice(&bytes.map(|byte| value(byte, signs.0)));
        }
        for (i, &slot) in b_slots.iter().enumerate() {
            let to = &mut b[group][i * 16 + part * 4..][..4];
            let bytes = (lanes.get(lane, slot) as u32).to_le_bytes();
            to.copy_from_slice(&bytes.map(|byte| value(byte, signs.1)));
        }
    }
    for lane in 0..WARP {
        let sums: [i32; 4] = std::array::from_fn(|i| {
            let (row, column) = (lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2);
            let products = a[row].iter().zip(&b[column]).map(|(a, b)| a * b);
            // No sum of 32 products of bytes exceeds 32 bits.
            let sum: i32 = products.sum();
            sum.wrapping_add(lanes.get(lane, c_slots[i]) as i32)
        });
        for (&slot, sum) in d.iter().zip(sums) {
            lanes.set(lane, slot, u64::from(sum as u32));
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

#[cfg(test)]
mod tests {
    use crate::{Argument, Error, Launch, Memory, Module, Order};

    /// `d = a b + c` by one warp, of bytes `[16][columns]` and `[8][columns]`, in fragments as they lie.
    fn product(shape: &str, types: &str) -> String {
        let is_half = shape == "m16n8k16";
        let (row, a, b) = match is_half {
            true => (16, "%r10, %r11", "%r14"),
            false => (32, "%r10, %r11, %r12, %r13", "%r14, %r15"),
        };
        let second = match is_half {
            true => "",
            false => {
                "ld.global.u32 %r12, [%rd5+16]; ld.global.u32 %r13, [%rd5+272]; ld.global.u32 %r15, [%rd6+16];"
            }
        };
        format!(
            ".version 9.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd)
{{
    .reg .b32 %r<40>; .reg .b64 %rd<20>;
    ld.param.u64 %rd0, [pa]; ld.param.u64 %rd1, [pb]; ld.param.u64 %rd2, [pc]; ld.param.u64 %rd3, [pd];
    mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 2; and.b32 %r2, %r0, 3;
    // Row lane / 4, bytes 4 (lane % 4) and on.
    mul.lo.u32 %r3, %r1, {row}; shl.b32 %r4, %r2, 2; add.s32 %r3, %r3, %r4;
    cvt.u64.u32 %rd4, %r3; add.s64 %rd5, %rd0, %rd4; add.s64 %rd6, %rd1, %rd4;
    ld.global.u32 %r10, [%rd5]; ld.global.u32 %r11, [%rd5+{below}]; ld.global.u32 %r14, [%rd6]; {second}
    // c: row lane / 4, columns 2 (lane % 4) and the next.
    shl.b32 %r16, %r1, 5; shl.b32 %r17, %r2, 3; add.s32 %r16, %r16, %r17; cvt.u64.u32 %rd7, %r16;
    add.s64 %rd8, %rd2, %rd7; add.s64 %rd9, %rd3, %rd7;
    ld.global.v2.u32 {{%r20, %r21}}, [%rd8]; ld.global.v2.u32 {{%r22, %r23}}, [%rd8+256];
    mma.sync.aligned.{shape}.row.col.{types} {{%r24, %r25, %r26, %r27}}, {{{a}}}, {{{b}}}, {{%r20, %r21, %r22, %r23}};
    st.global.v2.u32 [%rd9], {{%r24, %r25}}; st.global.v2.u32 [%rd9+256], {{%r26, %r27}};
    ret;
}}
",
            below = 8 * row
        )
    }

    #[test]
    fn a_product_of_bytes_is_the_product_with_either_sign_and_its_sums_wrap() {
        for (shape, columns) in [("m16n8k16", 16), ("m16n8k32", 32)] {
            for (a_type, b_type) in [("u8", "s8"), ("s8", "s8"), ("s8", "u8"), ("u8", "u8")] {
                let types = format!("s32.{a_type}.{b_type}.s32");
                let module = Module::parse(&product(shape, &types)).unwrap();
                let bytes = |n: usize, by: usize| -> Vec<u8> {
                    (0..n).map(|i| (i * by % 256) as u8).collect()
                };
                let (a, b) = (bytes(16 * columns, 37), bytes(8 * columns, 91));
                let c: Vec<u32> = (0..128).map(|i| i32::MAX as u32 - 64 + i).collect();
                let mut memory = Memory::new();
                let arguments = [
                    memory.buffer("a", a.clone()),
                    memory.buffer("b", b.clone()),
                    memory.words("c", &c),
                    memory.uninitialised("d", 512),
                ];
                let launch = Launch {
                    grid: [1; 3],
                    block: [32, 1, 1],
                    shared_bytes: 0,
                    arguments: &arguments.map(Argument::Buffer),
                    order: Order::Backward,
                };
                module.run("k", &launch, &mut memory).unwrap();
                let value = |byte: u8, ty: &str| match ty {
                    "s8" => i32::from(byte as i8),
                    _ => i32::from(byte),
                };
                let got = memory.read_words(arguments[3]);
                for (i, (got, c)) in got.iter().zip(c).enumerate() {
                    let (row, column) = (i / 8, i % 8);
                    let products = (0..columns).map(|k| {
                        value(a[row * columns + k], a_type) * value(b[column * columns + k], b_type)
                    });
                    let want = products.sum::<i32>().wrapping_add(c as i32) as u32;
                    assert_eq!(*got, want, "{shape} {types} {row} {column}");
                }
            }
        }
    }

    #[test]
    fn other_products_of_bytes_are_refused() {
        let known = product("m16n8k32", "s32.u8.s8.s32");
        for (from, to) in [
            ("m16n8k32", "m8n8k16"),
            ("m16n8k32", "m16n8k16"),
            ("s32.u8", "s32.u4"),
            ("row.col", "col.col"),
            (
                "aligned.m16n8k32.row.col",
                "aligned.m16n8k32.row.col.satfinite",
            ),
        ] {
            let text = known.replace(from, to);
            assert!(
                matches!(Module::parse(&text), Err(Error::Parse { .. })),
                "{to}"
            );
        }
    }
}

//! Matrices and asynchronous copies.

use crate::support::{fault, words};
use half::{bf16, f16};
use ptx_interpreter::{Argument, Error, Fault, Launch, Memory, Module, Order};

/// `d = a b + c` by one warp: a `[16, 16]` and b `[16, 8]` come through shared memory, c `[16, 8]` in registers. Parameters: a, b, c, d.
fn product(ty: &str, load_b: &str) -> String {
    format!(
        ".version 9.0
.target sm_80
.address_size 64
.shared .align 16 .b8 a[512];
.visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd)
{{
    .reg .b32 %r<40>; .reg .f32 %f<10>; .reg .b64 %rd<20>;
    .shared .align 16 .b8 a[512];
    .shared .align 16 .b8 b[256];
    ld.param.u64 %rd0, [pa]; ld.param.u64 %rd1, [pb]; ld.param.u64 %rd2, [pc]; ld.param.u64 %rd3, [pd];
    mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 4; cvt.u64.u32 %rd4, %r1;
    mov.u32 %r2, a; add.s32 %r2, %r2, %r1; add.s64 %rd5, %rd0, %rd4;
    cp.async.cg.shared.global [%r2], [%rd5], 16;
    cp.async.commit_group;
    shl.b32 %r3, %r0, 3; cvt.u64.u32 %rd6, %r3; add.s64 %rd6, %rd1, %rd6; mov.u32 %r4, b; add.s32 %r4, %r4, %r3;
    cp.async.ca.shared.global [%r4], [%rd6], 8;
    cp.async.commit_group;
    cp.async.wait_group 0;
    bar.sync 0;
    // Rows of a: lanes 0..16 its left half, 16..32 its right one.
    and.b32 %r5, %r0, 15; shl.b32 %r5, %r5, 5; shr.u32 %r6, %r0, 4; shl.b32 %r6, %r6, 4; add.s32 %r5, %r5, %r6;
    mov.u32 %r7, a; add.s32 %r7, %r7, %r5;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r10, %r11, %r12, %r13}}, [%r7];
    and.b32 %r8, %r0, 15; shl.b32 %r8, %r8, 4; mov.u32 %r9, b; add.s32 %r9, %r9, %r8;
    {load_b}
    // c: row lane / 4, columns lane % 4 * 2 and the next; 8 rows below.
    shr.u32 %r16, %r0, 2; shl.b32 %r16, %r16, 5; and.b32 %r17, %r0, 3; shl.b32 %r17, %r17, 3; add.s32 %r16, %r16, %r17;
    cvt.u64.u32 %rd7, %r16; add.s64 %rd8, %rd2, %rd7; add.s64 %rd9, %rd3, %rd7;
    ld.global.v2.f32 {{%f0, %f1}}, [%rd8]; ld.global.v2.f32 {{%f2, %f3}}, [%rd8+256];
    mma.sync.aligned.m16n8k16.row.col.f32.{ty}.{ty}.f32 {{%f4, %f5, %f6, %f7}}, {{%r10, %r11, %r12, %r13}}, {{%r14, %r15}}, {{%f0, %f1, %f2, %f3}};
    st.global.v2.f32 [%rd9], {{%f4, %f5}}; st.global.v2.f32 [%rd9+256], {{%f6, %f7}};
    ret;
}}
"
    )
    .replacen(".shared .align 16 .b8 a[512];\n", "", 1)
}

const TRANSPOSED: &str = "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r14, %r15}, [%r9];";

#[test]
fn a_product_of_loaded_matrices_is_the_product_in_both_formats() {
    for (ty, narrow, wide) in [
        (
            "f16",
            (|x| f16::from_f32(x).to_bits()) as fn(f32) -> u16,
            (|x| f16::from_bits(x).to_f32()) as fn(u16) -> f32,
        ),
        (
            "bf16",
            |x| bf16::from_f32(x).to_bits(),
            |x| bf16::from_bits(x).to_f32(),
        ),
    ] {
        let module = Module::parse(&product(ty, TRANSPOSED)).unwrap();
        let values = |n: usize, by: usize| {
            (0..n)
                .map(|i| narrow(((i * by) % 23) as f32 / 7.0 - 1.5))
                .collect::<Vec<_>>()
        };
        let bytes = |x: &[u16]| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        let (a, b) = (values(256, 5), values(128, 11));
        let c: Vec<f32> = (0..128).map(|i| i as f32).collect();
        let mut memory = Memory::new();
        let arguments = [
            memory.buffer("a", bytes(&a)),
            memory.buffer("b", bytes(&b)),
            memory.floats("c", &c),
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
        let got = memory.read_floats(arguments[3]);
        for row in 0..16 {
            for column in 0..8 {
                let terms = (0..16)
                    .map(|k| f64::from(wide(a[row * 16 + k])) * f64::from(wide(b[k * 8 + column])));
                let want = (f64::from(c[row * 8 + column]) + terms.sum::<f64>()) as f32;
                assert_eq!(got[row * 8 + column], want, "{ty} {row} {column}");
            }
        }
    }
}

const COPY: &str = "mov.u32 %r2, dynamic; shl.b32 %r3, %r0, 2; add.s32 %r2, %r2, %r3;
    st.global.u32 [%rd1], %r0;
    cp.async.ca.shared.global [%r2], [%rd1], 4;
    cp.async.commit_group;
    cp.async.wait_group 0;
    ld.shared.u32 %r1, [%r2]; add.s32 %r1, %r1, 1; st.global.u32 [%rd1], %r1;";

#[test]
fn copied_data_arrive_at_the_wait_and_not_before() {
    assert_eq!(words(32, "", COPY).unwrap()[3], 4);
    let early = COPY.replace("cp.async.wait_group 0;", "");
    assert!(matches!(fault(32, "", &early), Fault::Pending { .. }));
    let late = COPY.replace("wait_group 0", "wait_group 1");
    assert!(matches!(fault(32, "", &late), Fault::Pending { .. }));
    let open = COPY.replace("cp.async.commit_group;", "");
    assert!(matches!(fault(32, "", &open), Fault::Pending { .. }));
    let all = open.replace("wait_group 0", "wait_all");
    assert_eq!(words(32, "", &all).unwrap()[3], 4);
}

#[test]
fn a_copy_of_nothing_is_zeros_and_reads_nothing() {
    let none = COPY.replace("[%rd1], 4;", "[%rd1+4096], 4, 0;");
    assert_eq!(words(32, "", &none).unwrap(), [1; 32]);
}

#[test]
fn other_shapes_of_matrices_are_refused() {
    let text = product("f16", TRANSPOSED).replace("m16n8k16", "m16n8k8");
    assert!(matches!(Module::parse(&text), Err(Error::Parse { .. })));
}

//! Each group of opcodes, from text.

use crate::support::{float, kernel, word, words};
use ptx_interpreter::{Error, Module};

#[test]
fn integers_wrap_at_their_width_and_keep_their_sign() {
    assert_eq!(word("mov.u32 %r2, -1; add.s32 %r1, %r2, 3;"), 2);
    assert_eq!(word("mov.u32 %r2, -7; div.s32 %r1, %r2, 2;"), -3i32 as u32);
    assert_eq!(word("mov.u32 %r2, -7; rem.s32 %r1, %r2, 4;"), -3i32 as u32);
    assert_eq!(word("mov.u32 %r2, -7; shr.s32 %r1, %r2, 1;"), -4i32 as u32);
    assert_eq!(word("mov.u32 %r2, -7; shr.u32 %r1, %r2, 28;"), 15);
    assert_eq!(word("mov.u32 %r2, -7; max.s32 %r1, %r2, 2;"), 2);
    assert_eq!(word("mov.u32 %r2, -7; max.u32 %r1, %r2, 2;"), -7i32 as u32);
    assert_eq!(
        word("mov.u32 %r2, -1; mul.hi.u32 %r1, %r2, %r2;"),
        0xffff_fffe
    );
    assert_eq!(word("mov.u32 %r2, 5; mad.lo.s32 %r1, %r2, -3, 20;"), 5);
    assert_eq!(word("mov.u32 %r2, 0x00f0; clz.b32 %r1, %r2;"), 24);
    assert_eq!(word("mov.u32 %r2, 0x00f0; popc.b32 %r1, %r2;"), 4);
    assert_eq!(
        word("mov.u32 %r2, 0x00f0; bfind.shiftamt.u32 %r1, %r2;"),
        24
    );
    assert_eq!(
        word("mov.u32 %r2, 0; bfind.shiftamt.u32 %r1, %r2;"),
        u32::MAX
    );
    assert_eq!(word("mov.u32 %r2, 1; brev.b32 %r1, %r2;"), 1 << 31);
    let short = "mov.u16 %rs1, 65535; add.s16 %rs1, %rs1, 2; cvt.u32.u16 %r1, %rs1;";
    assert_eq!(word(short), 1);
    assert_eq!(
        word("mov.u16 %rs1, -2; cvt.s32.s16 %r1, %rs1;"),
        -2i32 as u32
    );
    let wide =
        "mov.u32 %r2, -3; mul.wide.s32 %rd2, %r2, 5; shr.s64 %rd2, %rd2, 1; cvt.u32.u64 %r1, %rd2;";
    assert_eq!(word(wide), -8i32 as u32);
}

#[test]
fn bits_are_cut_joined_and_permuted() {
    assert_eq!(word("mov.u32 %r2, 0xabcd; bfe.u32 %r1, %r2, 4, 8;"), 0xbc);
    assert_eq!(
        word("mov.u32 %r2, 5; mov.u32 %r3, 0; bfi.b32 %r1, %r2, %r3, 8, 4;"),
        0x500
    );
    assert_eq!(
        word("mov.u32 %r2, 0x03020100; prmt.b32 %r1, %r2, 0, 0x0123;"),
        0x0001_0203
    );
    assert_eq!(
        word("mov.u32 %r2, 0xff; lop3.b32 %r1, %r2, 0x0f, 0xf0, 0x96;"),
        0
    );
    assert_eq!(
        word("mov.u32 %r2, 0x12345678; shf.l.wrap.b32 %r1, %r2, %r2, 8;"),
        0x3456_7812
    );
    assert_eq!(
        word("mov.b32 %r2, 0x40003; mov.b32 {%rs1, %rs2}, %r2; mov.b32 %r1, {%rs2, %rs1};"),
        0x3_0004
    );
    let dot = "mov.u32 %r2, 0x01ff0203; mov.u32 %r3, 0x01010101; mov.u32 %r4, 100; dp4a.s32.s32 %r1, %r2, %r3, %r4;";
    assert_eq!(word(dot), 105);
}

#[test]
fn floats_round_as_ieee_says() {
    assert_eq!(
        float("mov.f32 %f2, 0f3F800001; fma.rn.f32 %f1, %f2, %f2, 0fBF800002;"),
        2f32.powi(-46)
    );
    assert_eq!(
        float("mov.f32 %f2, 0f40400000; div.rn.f32 %f1, 0f3F800000, %f2;"),
        1.0 / 3.0
    );
    assert_eq!(
        float("mov.f32 %f2, 0f40000000; sqrt.rn.f32 %f1, %f2;"),
        2f32.sqrt()
    );
    assert_eq!(
        float("mov.f32 %f2, 0f40000000; rsqrt.approx.ftz.f32 %f1, %f2;"),
        0.5f32.sqrt()
    );
    assert_eq!(
        float("mov.f32 %f2, 0fC0400000; ex2.approx.ftz.f32 %f1, %f2;"),
        0.125
    );
    assert_eq!(
        float("mov.f32 %f2, 0f41000000; lg2.approx.f32 %f1, %f2;"),
        3.0
    );
    assert_eq!(
        float("mov.f32 %f2, 0f00000001; mul.rn.ftz.f32 %f1, %f2, 0f4B800000;"),
        0.0
    );
    assert_eq!(
        float("mov.f32 %f2, 0fBF800000; abs.f32 %f3, %f2; neg.f32 %f1, %f3;"),
        -1.0
    );
    let double = "mov.f32 %f2, 0f3DCCCCCD; cvt.f64.f32 %fd1, %f2; add.rn.f64 %fd1, %fd1, %fd1; cvt.rn.f32.f64 %f1, %fd1;";
    assert_eq!(float(double), 0.2);
}

#[test]
fn halves_convert_and_compute_in_both_formats() {
    let pair = "mov.f32 %f2, 0f3F800000; mov.f32 %f3, 0f40000000; cvt.rn.f16x2.f32 %r1, %f3, %f2;";
    assert_eq!(word(pair), 0x4000_3c00);
    let pair = "mov.f32 %f2, 0f3F800000; mov.f32 %f3, 0f40000000; cvt.rn.bf16x2.f32 %r1, %f3, %f2;";
    assert_eq!(word(pair), 0x4000_3f80);
    let sum = "mov.b32 %r2, 0x40003c00; fma.rn.f16x2 %r1, %r2, %r2, %r2;";
    assert_eq!(word(sum), 0x4600_4000);
    let wide = "mov.u16 %rs1, 0x3555; cvt.f32.f16 %f1, %rs1;";
    assert_eq!(float(wide), half::f16::from_bits(0x3555).to_f32());
    let narrow = "mov.f32 %f2, 0f477FF000; cvt.rn.f16.f32 %rs1, %f2; cvt.u32.u16 %r1, %rs1;";
    assert_eq!(word(narrow), 0x7c00);
}

#[test]
fn comparisons_choose_and_guard() {
    let body = "mov.u32 %r2, -1; setp.lt.s32 %p1, %r2, 0; setp.lt.u32 %p2|%p3, %r2, 5;
        selp.b32 %r1, 1, 0, %p1; @%p2 add.s32 %r1, %r1, 10; @%p3 add.s32 %r1, %r1, 100;
        @!%p2 add.s32 %r1, %r1, 1000; setp.eq.and.s32 %p4, %r2, -1, !%p2; @%p4 add.s32 %r1, %r1, 20;";
    assert_eq!(word(body), 1121);
    let nan = "mov.f32 %f2, 0f7FC00000; setp.lt.f32 %p1, %f2, %f2; setp.geu.f32 %p2, %f2, %f2;
        selp.u32 %r2, 1, 0, %p1; selp.u32 %r3, 2, 0, %p2; or.b32 %r1, %r2, %r3;";
    assert_eq!(word(nan), 2);
}

#[test]
fn loops_branch_and_blocks_of_braces_are_nothing() {
    let body = "mov.u32 %r1, 0; mov.u32 %r2, 0;
    $L_1:
        add.s32 %r1, %r1, %r2; add.s32 %r2, %r2, 1; { setp.lt.s32 %p1, %r2, 10; }
        @%p1 bra $L_1; bra.uni $L_2; mov.u32 %r1, 0;
    $L_2: ";
    assert_eq!(word(body), 45);
}

#[test]
fn vectors_local_and_generic_memory_hold_what_was_written() {
    let body = "mov.u64 %rd2, depot; cvta.local.u64 %rd3, %rd2; mov.u32 %r2, 7; mov.u32 %r3, 9;
        st.local.v2.u32 [%rd2+8], {%r2, %r3}; ld.u32 %r4, [%rd3+12]; ld.local.s8 %r5, [%rd2+8];
        mad.lo.u32 %r6, %r5, 10, %r4; st.global.u32 [%rd1], %r6;";
    let got = words(32, ".local .align 16 .b8 depot[16];", body).unwrap();
    assert_eq!(got, [79; 32]);
}

#[test]
fn loads_extend_the_sign_to_the_register() {
    let body = "st.global.u32 [%rd1], 0; mov.u16 %rs1, -3; st.global.u16 [%rd1], %rs1;
        ld.global.s16 %rd2, [%rd1]; shr.u64 %rd2, %rd2, 32; cvt.u32.u64 %r1, %rd2;";
    assert_eq!(word(body), u32::MAX);
    let body = "st.global.u32 [%rd1], -3; ld.global.u16 %r1, [%rd1];";
    assert_eq!(word(body), 0xfffd);
}

#[test]
fn atomic_sums_count_every_thread() {
    let body =
        "mov.u32 %r2, dynamic; setp.ne.s32 %p1, %r0, 0; @%p1 bra $L; st.shared.u32 [%r2], 100;
        $L: bar.sync 0; atom.shared.add.u32 %r3, [%r2], 2; bar.sync 0;
        ld.shared.u32 %r1, [%r2]; st.global.u32 [%rd1], %r1;";
    assert_eq!(words(64, "", body).unwrap(), [228; 64]);
}

#[test]
fn shuffles_votes_and_reductions_see_every_lane() {
    let store = "st.global.u32 [%rd1], %r1;";
    let run = |body: &str| words(32, "", &format!("{body} {store}")).unwrap();
    let lanes = |f: fn(u32) -> u32| (0..32).map(f).collect::<Vec<_>>();
    assert_eq!(
        run("shfl.sync.bfly.b32 %r1|%p1, %r0, 5, 31, -1;"),
        lanes(|i| i ^ 5)
    );
    assert_eq!(
        run("shfl.sync.down.b32 %r1|%p1, %r0, 4, 31, -1;"),
        lanes(|i| if i < 28 { i + 4 } else { i })
    );
    assert_eq!(
        run("shfl.sync.up.b32 %r1|%p1, %r0, 4, 0, -1;"),
        lanes(|i| if i >= 4 { i - 4 } else { i })
    );
    assert_eq!(
        run("shfl.sync.idx.b32 %r1, %r0, 3, 6175, -1;"),
        lanes(|i| i / 8 * 8 + 3)
    );
    assert_eq!(
        run("setp.lt.u32 %p1, %r0, 3; vote.sync.ballot.b32 %r1, %p1, -1;"),
        [7; 32]
    );
    assert_eq!(
        run("setp.lt.u32 %p1, %r0, 3; vote.sync.any.pred %p2, %p1, -1; selp.u32 %r1, 1, 0, %p2;"),
        [1; 32]
    );
    assert_eq!(run("redux.sync.add.u32 %r1, %r0, -1;"), [496; 32]);
    assert_eq!(run("redux.sync.max.s32 %r1, %r0, -1;"), [31; 32]);
}

#[test]
fn unknown_opcodes_and_loose_arithmetic_are_refused() {
    for body in [
        "sin.approx.f32 %f1, %f2;",
        "add.f32 %f1, %f2, %f3;",
        "mul.f32 %f1, %f2, %f3;",
        "mul.rz.f32 %f1, %f2, %f3;",
        "add.b32 %r1, %r2, %r3;",
        "ld.volatile.global.u32 %r1, [%rd1];",
        "atom.global.add.f32 %f1, [%rd1], %f2;",
        "cvt.f16.f32 %rs1, %f1;",
        "cvt.rn.f32.f16 %f1, %rs1;",
        "bar.sync 1;",
        "bra nowhere;",
        "add.s32 %r1, %r2, %q7;",
        "add.s32 %r1, %r2;",
        "add.s32 %r1, %r2, %r3, %r4;",
        "ld.global.v2.u32 {%r1}, [%rd1];",
    ] {
        let parsed = Module::parse(&kernel("", body));
        assert!(
            matches!(parsed, Err(Error::Parse { line: 20.., .. })),
            "{body}"
        );
    }
}

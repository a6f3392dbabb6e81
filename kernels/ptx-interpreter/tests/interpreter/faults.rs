//! What a kernel must not do.

use crate::support::{fault, kernel, words};
use ptx_interpreter::{Argument, Error, Fault, Launch, Memory, Module, Order};

/// Each thread writes its word of shared memory and reads its neighbour's, 32 threads on.
const EXCHANGE: &str = "mov.u32 %r2, dynamic; shl.b32 %r3, %r0, 2; add.s32 %r4, %r2, %r3;
    st.shared.u32 [%r4], %r0;
    bar.sync 0;
    add.s32 %r5, %r0, 32; and.b32 %r5, %r5, 63; shl.b32 %r5, %r5, 2; add.s32 %r5, %r2, %r5;
    ld.shared.u32 %r1, [%r5]; st.global.u32 [%rd1], %r1;";

#[test]
fn a_barrier_makes_an_exchange_right_and_its_absence_is_a_fault_in_every_order() {
    let got = words(64, "", EXCHANGE).unwrap();
    assert!((0..64).all(|i| got[i] == (i as u32 + 32) % 64));
    let broken = EXCHANGE.replace("bar.sync 0;", "");
    let module = Module::parse(&kernel("", &broken)).unwrap();
    for order in [Order::Forward, Order::Backward, Order::Random(3)] {
        let mut memory = Memory::new();
        let out = memory.uninitialised("out", 256);
        let launch = Launch {
            grid: [1; 3],
            block: [64, 1, 1],
            shared_bytes: 256,
            arguments: &[Argument::Buffer(out)],
            order,
        };
        let result = module.run("k", &launch, &mut memory);
        let Err(Error::Fault { fault, line, .. }) = result else {
            panic!("{order:?}");
        };
        assert!(
            matches!(fault, Fault::Race { .. } | Fault::Uninitialised { .. }),
            "{fault}"
        );
        assert!(line > 20);
    }
}

#[test]
fn a_warp_barrier_orders_its_warp_only() {
    let near = EXCHANGE.replace("32; and.b32 %r5, %r5, 63", "1; and.b32 %r5, %r5, 31");
    let warp = near.replace("bar.sync 0;", "bar.warp.sync -1;");
    assert_eq!(words(32, "", &warp).unwrap()[31], 0);
    assert!(matches!(
        fault(32, "", &near.replace("bar.sync 0;", "")),
        Fault::Race { .. } | Fault::Uninitialised { .. }
    ));
    let far = EXCHANGE.replace("bar.sync 0;", "bar.warp.sync -1;");
    assert!(matches!(
        fault(64, "", &far),
        Fault::Race { .. } | Fault::Uninitialised { .. }
    ));
}

#[test]
fn a_shuffle_orders_no_memory() {
    let near = EXCHANGE.replace("32; and.b32 %r5, %r5, 63", "1; and.b32 %r5, %r5, 31");
    let shuffle = near.replace("bar.sync 0;", "shfl.sync.idx.b32 %r1, %r0, 0, 31, -1;");
    assert!(matches!(fault(32, "", &shuffle), Fault::Race { .. }));
}

#[test]
fn an_access_may_not_reach_over_the_end_of_a_buffer() {
    let module = Module::parse(&kernel("", "ld.global.u32 %r1, [%rd0+4];")).unwrap();
    let run = |len| {
        let mut memory = Memory::new();
        let buffer = memory.buffer("six bytes", vec![0; len]);
        let launch = Launch {
            grid: [1; 3],
            block: [32, 1, 1],
            shared_bytes: 0,
            arguments: &[Argument::Buffer(buffer)],
            order: Order::Forward,
        };
        module.run("k", &launch, &mut memory)
    };
    assert!(run(8).is_ok());
    assert!(matches!(
        run(6),
        Err(Error::Fault {
            fault: Fault::OutOfBounds { .. },
            ..
        })
    ));
}

#[test]
fn bounds_alignment_and_initialisation_are_exact() {
    let outside = |body: &str| matches!(fault(32, "", body), Fault::OutOfBounds { .. });
    assert!(outside("st.global.u32 [%rd0+128], %r0;"));
    assert!(outside("st.global.v2.u32 [%rd0+128], {%r0, %r0};"));
    assert!(outside("st.global.u32 [%rd0+-4], %r0;"));
    assert!(outside(
        "mov.u32 %r2, dynamic; st.shared.u32 [%r2+128], %r0;"
    ));
    assert!(outside("ld.param.u64 %rd2, [k_param_0+8];"));
    let odd = |body: &str| matches!(fault(32, "", body), Fault::Misaligned { .. });
    assert!(odd("st.global.v2.u32 [%rd0+4], {%r0, %r0};"));
    assert!(odd("st.global.u16 [%rd0+1], %rs0;"));
    let unread =
        |declared, body: &str| matches!(fault(32, declared, body), Fault::Uninitialised { .. });
    assert!(unread("", "ld.global.u32 %r1, [%rd1];"));
    assert!(unread(
        "",
        "mov.u32 %r2, dynamic; ld.shared.u32 %r1, [%r2];"
    ));
    assert!(unread(
        ".local .align 4 .b8 own[4];",
        "mov.u64 %rd2, own; ld.local.u32 %r1, [%rd2];"
    ));
    assert!(unread(
        ".shared .align 4 .b8 own[4];",
        "mov.u32 %r2, own; ld.shared.u32 %r1, [%r2];"
    ));
}

#[test]
fn global_memory_is_written_by_one_thread_and_read_by_no_other_block() {
    assert!(matches!(
        fault(64, "", "st.global.u32 [%rd0], %r0;"),
        Fault::GlobalRace { .. }
    ));
    let body = "mov.u32 %r2, %ctaid.x; mul.wide.u32 %rd2, %r2, 128; add.s64 %rd1, %rd1, %rd2;
        ld.global.u32 %r3, [%rd1]; st.global.u32 [%rd1], %r3; setp.eq.s32 %p1, %r2, 1; @%p1 ld.global.u32 %r3, [%rd0];";
    let module = Module::parse(&kernel("", body)).unwrap();
    let run = |blocks, order| {
        let mut memory = Memory::new();
        let out = memory.buffer("out", vec![0; 256]);
        let launch = Launch {
            grid: [blocks, 1, 1],
            block: [32, 1, 1],
            shared_bytes: 0,
            arguments: &[Argument::Buffer(out)],
            order,
        };
        module.run("k", &launch, &mut memory)?;
        // Another launch comes after this one.
        module.run("k", &launch, &mut memory)
    };
    assert!(run(1, Order::Forward).is_ok());
    let result = run(2, Order::Forward);
    assert!(matches!(
        result,
        Err(Error::Fault {
            fault: Fault::GlobalRace { block: 0, .. },
            ..
        })
    ));
}

#[test]
fn barriers_that_not_all_reach_are_faults() {
    let divergent =
        |threads, body: &str| matches!(fault(threads, "", body), Fault::DivergentBarrier { .. });
    assert!(divergent(
        32,
        "setp.lt.u32 %p1, %r0, 7; @%p1 bra $L; bar.sync 0; $L: ret;"
    ));
    assert!(divergent(
        64,
        "setp.lt.u32 %p1, %r0, 32; @%p1 bra $L; bar.sync 0; ret; $L: bar.sync 0;"
    ));
}

#[test]
fn operations_of_a_warp_with_lanes_missing_are_faults() {
    let body =
        "setp.lt.u32 %p1, %r0, 7; @%p1 bra $L; shfl.sync.idx.b32 %r1, %r0, 0, 31, -1; $L: ret;";
    assert!(matches!(
        fault(32, "", body),
        Fault::DivergentWarp { other: 0..7, .. }
    ));
    let body = "shfl.sync.idx.b32 %r1, %r0, 0, 31, 2;";
    assert!(matches!(fault(32, "", body), Fault::Undefined(_)));
    let deadlock =
        "setp.lt.u32 %p1, %r0, 7; @%p1 bra $L; bar.warp.sync -1; ret; $L: bar.warp.sync -1;";
    assert!(matches!(
        fault(32, "", deadlock),
        Fault::DivergentWarp { .. }
    ));
}

#[test]
fn a_kernel_without_an_end_is_a_fault() {
    assert!(matches!(fault(32, "", "$L: bra $L;"), Fault::Endless(_)));
}

#[test]
fn launches_that_do_not_fit_are_refused() {
    let module = Module::parse(&kernel("", "")).unwrap();
    let mut memory = Memory::new();
    let out = memory.buffer("out", vec![0; 4]);
    let right = Launch {
        grid: [1; 3],
        block: [32, 1, 1],
        shared_bytes: 0,
        arguments: &[Argument::Buffer(out)],
        order: Order::Forward,
    };
    module.run("k", &right, &mut memory).unwrap();
    let refused = |name: &str, launch: Launch| {
        let result = module.run(name, &launch, &mut memory.clone());
        matches!(result, Err(Error::Launch(_)))
    };
    assert!(refused("l", right));
    assert!(refused(
        "k",
        Launch {
            block: [33, 1, 1],
            ..right
        }
    ));
    assert!(refused(
        "k",
        Launch {
            grid: [0, 1, 1],
            ..right
        }
    ));
    assert!(refused(
        "k",
        Launch {
            arguments: &[],
            ..right
        }
    ));
    assert!(refused(
        "k",
        Launch {
            arguments: &[Argument::U32(1)],
            ..right
        }
    ));
}

#[test]
fn a_fault_names_the_instruction_the_thread_and_the_block() {
    let module = Module::parse(&kernel("", "mov.u32 %r2, %ctaid.x; add.s32 %r2, %r2, %r0;\n setp.eq.s32 %p1, %r2, 33; @%p1\t st.global.u32 [%rd0+400], %r0;")).unwrap();
    let mut memory = Memory::new();
    let out = memory.buffer("out", vec![0; 4]);
    let launch = Launch {
        grid: [3, 1, 1],
        block: [32, 1, 1],
        shared_bytes: 0,
        arguments: &[Argument::Buffer(out)],
        order: Order::Forward,
    };
    let error = module.run("k", &launch, &mut memory).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("thread 31 of block [2, 0, 0]"), "{text}");
    assert!(
        text.contains("@%p1 st.global.u32 [%rd0+400], %r0"),
        "{text}"
    );
    assert!(text.contains("the 4 bytes of out"), "{text}");
}

//! Kernels, copies and the host follow each other as the calls do, whichever of them runs as early as it may.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::opened::{in_both_orders, noise};
use crate::cuda::{Buffer, Device, add_rms_norm};
use crate::{BLOCK_TOKENS, KvFormat, KvLayout, KvPool, Part};

const LEN: usize = 64;

fn layout(num_layers: usize) -> KvLayout {
    KvLayout {
        num_layers,
        num_kv_heads: 1,
        head_dim: 32,
        format: KvFormat::F16,
    }
}

/// A pool on a device whose slots all have memory.
fn pool(device: &Arc<Device>, layout: KvLayout, num_slots: usize) -> KvPool {
    let pool = KvPool::on(Arc::clone(device), layout.num_layers, layout, num_slots).unwrap();
    (0..num_slots as u32).for_each(|slot| pool.reserve(slot).unwrap());
    pool
}

/// A pool beside a device, of one slot with these bytes.
fn beside(device: &Arc<Device>, layout: KvLayout, bytes: &[u8]) -> KvPool {
    let pool = KvPool::beside(Arc::clone(device), layout, 1).unwrap();
    pool.reserve(0).unwrap();
    pool.write_slot(0, bytes).unwrap();
    pool
}

fn slot(pool: &KvPool, slot: u32) -> Vec<u8> {
    let mut bytes = vec![1; pool.layout().slot_bytes()];
    pool.read_slot(slot, &mut bytes).unwrap();
    bytes
}

fn bytes(buffer: &Buffer) -> Vec<u8> {
    let mut bytes = vec![0; buffer.len()];
    buffer.read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_kernel_reads_what_was_written_before_it_was_launched_and_nothing_that_is_written_after() {
    for device in in_both_orders() {
        let x = Buffer::of(&device, &[1; LEN]).unwrap();
        let out = Buffer::new(&device, LEN).unwrap();
        x.write(0, &[2; LEN]).unwrap();
        device.copy(x.address(), out.address(), LEN).unwrap();
        x.write(0, &[3; LEN]).unwrap();
        assert_eq!(bytes(&out), [2; LEN]);
        assert_eq!(bytes(&x), [3; LEN]);
    }
}

#[test]
fn what_is_written_after_a_kernel_stays() {
    for device in in_both_orders() {
        let x = Buffer::new(&device, LEN).unwrap();
        x.clear(0, LEN).unwrap();
        x.write(0, &[4; LEN]).unwrap();
        assert_eq!(bytes(&x), [4; LEN]);
    }
}

#[test]
fn a_slot_that_is_filled_keeps_what_kernels_before_read_and_wrote() {
    for device in in_both_orders() {
        let layout = layout(2);
        let pool = pool(&device, layout, 2);
        let (old, new) = (noise(1, layout.slot_bytes()), noise(2, layout.slot_bytes()));
        pool.write_slot(0, &old).unwrap();
        pool.copy_slot(0, 1, BLOCK_TOKENS).unwrap();
        let host = beside(&device, layout, &new);
        for _ in 0..2 {
            let take = |parts: Vec<Vec<Part>>| {
                let mut parts = parts.into_iter().flatten();
                parts.try_for_each(|part| part.take(&host, 0))
            };
            pool.fill(&[0], 1, take).unwrap().unwrap();
            assert!(slot(&pool, 1) == old && slot(&pool, 0) == new);
            // What zeroes the slot is no later than what fills it.
            pool.clear_slot(0).unwrap();
        }
    }
}

#[test]
fn bytes_are_taken_from_a_slot_before_filling_ends_also_when_who_fills_panics() {
    for device in in_both_orders() {
        let layout = layout(3);
        let pool = pool(&device, layout, 1);
        let payload = noise(3, layout.slot_bytes());
        for panics in [false, true] {
            pool.clear_slot(0).unwrap();
            let host = beside(&device, layout, &payload);
            let take = |parts: Vec<Vec<Part>>| {
                for part in parts.into_iter().flatten() {
                    part.take(&host, 0).unwrap();
                }
                assert!(!panics, "on purpose");
            };
            let filled = catch_unwind(AssertUnwindSafe(|| pool.fill(&[0], 1, take)));
            assert_eq!(filled.is_err(), panics);
            host.clear_slot(0).unwrap();
            assert!(slot(&pool, 0) == payload, "panics: {panics}");
        }
    }
}

#[test]
fn a_layer_waits_for_the_copies_of_its_own_parts_and_for_no_later_ones() {
    let [device, _] = in_both_orders();
    let layout = layout(2);
    let (pool, half) = (pool(&device, layout, 1), layout.layer_bytes());
    let (first, later) = (noise(7, layout.slot_bytes()), noise(8, layout.slot_bytes()));
    let host = beside(&device, layout, &first);
    let seen = Buffer::new(&device, half).unwrap();
    let address = pool.on_device().unwrap().address(0).unwrap();
    let take = |parts: Vec<Vec<Part>>| {
        for part in parts.into_iter().flatten() {
            part.take(&host, 0).unwrap();
        }
        let filling = pool.filling().unwrap();
        assert!(filling.wait(1), "all is on its way");
        filling.follow(0).unwrap();
        device.copy(address, seen.address(), half).unwrap();
        device.synchronize().unwrap();
        // What is copied late finds other bytes. On a real device it may be there by now.
        if std::env::var_os("REPRISE_TEST_GPU").is_none() {
            host.write_part(0, half, &later[half..]).unwrap();
        }
        filling.follow(1).unwrap();
    };
    pool.fill(&[0], 1, take).unwrap();
    assert_eq!(bytes(&seen), first[..half]);
    if std::env::var_os("REPRISE_TEST_GPU").is_none() {
        assert_eq!(slot(&pool, 0)[half..], later[half..]);
    }
}

#[test]
fn parts_that_go_one_after_the_other_through_the_same_places_all_arrive() {
    for device in in_both_orders() {
        let layout = layout(10);
        let pool = pool(&device, layout, 2);
        let payloads = [4, 5].map(|seed| noise(seed, layout.slot_bytes()));
        let fill = |parts: Vec<Vec<Part>>| {
            for (parts, payload) in parts.into_iter().zip(&payloads) {
                let pieces = payload.chunks(layout.layer_bytes());
                for (mut part, bytes) in parts.into_iter().zip(pieces) {
                    part.as_mut().copy_from_slice(bytes);
                    part.ready();
                }
            }
        };
        pool.fill(&[0, 1], 1, fill).unwrap();
        assert!(slot(&pool, 0) == payloads[0] && slot(&pool, 1) == payloads[1]);
    }
}

#[test]
fn a_slot_that_is_taken_from_the_device_is_what_kernels_left_and_there_at_once() {
    for device in in_both_orders() {
        let layout = layout(2);
        let pool = pool(&device, layout, 2);
        let payload = noise(6, layout.slot_bytes());
        pool.write_slot(0, &payload).unwrap();
        pool.copy_slot(0, 1, BLOCK_TOKENS).unwrap();
        let host = beside(&device, layout, &vec![0; layout.slot_bytes()]);
        host.take_slot(0, &pool, 1).unwrap();
        pool.clear_slot(1).unwrap();
        assert!(slot(&host, 0) == payload);
    }
}

#[test]
fn threads_share_a_device_also_while_one_records() {
    for device in in_both_orders() {
        let weights = Buffer::floats(&device, &[1.0; LEN]).unwrap();
        let work = &|seed: u8| {
            let ones = Buffer::floats(&device, &[1.0; LEN]).unwrap();
            let norm = Buffer::new(&device, 4 * LEN).unwrap();
            let (from, to) = (ones.address(), norm.address());
            let launch = add_rms_norm(from, 0, weights.address(), to, (1, LEN), 0.0).unwrap();
            let (x, out) = (
                Buffer::new(&device, LEN).unwrap(),
                Buffer::new(&device, LEN).unwrap(),
            );
            for i in 0..50 {
                let payload = [seed + i; LEN];
                x.write(0, &payload).unwrap();
                device.copy(x.address(), out.address(), LEN).unwrap();
                if seed == 0 {
                    let graph = device.record(&vec![launch.clone(); 20]).unwrap();
                    device.replay(graph).unwrap();
                    device.forget(graph);
                }
                assert_eq!(bytes(&out), payload);
            }
            if seed == 0 {
                assert_eq!(bytes(&norm)[..4], 1f32.to_le_bytes());
            }
        };
        std::thread::scope(|scope| {
            for seed in [0, 100, 200] {
                scope.spawn(move || work(seed));
            }
        });
    }
}

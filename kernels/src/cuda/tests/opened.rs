//! An open device: the same calls as on a GPU, over a driver whose device is the interpreter.

use std::sync::{Arc, OnceLock};

use crate::cpu::Path;
use crate::cuda::{Buffer, Device, add_rms_norm, devices};
use crate::layout::tests::formats;
use crate::random::floats;
use crate::{BLOCK_TOKENS, Error, KvFormat, KvLayout, KvPool, Part};

/// A device where kernels run as early as they may and copies as late, and one where it is the other way round.
pub(super) fn in_both_orders() -> [Arc<Device>; 2] {
    static DEVICES: OnceLock<[Arc<Device>; 2]> = OnceLock::new();
    let open = || Device::open(0).expect("its device");
    DEVICES
        .get_or_init(|| ptx_driver::in_both_orders(open))
        .clone()
}

fn device() -> Arc<Device> {
    let [device, _] = in_both_orders();
    device
}

/// Each of these on both devices.
fn on_both<T: Clone>(cases: impl IntoIterator<Item = T>) -> impl Iterator<Item = (Arc<Device>, T)> {
    let of = |case: T| in_both_orders().map(|device| (device, case.clone()));
    cases.into_iter().flat_map(of)
}

pub(super) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let floats = floats(seed, len.div_ceil(2));
    let bytes = floats
        .iter()
        .flat_map(|x| [x.to_bits() as u8, (x.to_bits() >> 8) as u8]);
    bytes.take(len).collect()
}

#[test]
fn a_device_is_described_and_opened_and_one_that_is_not_there_is_refused() {
    let device = device();
    assert_eq!(device.info().compute_capability, 80);
    assert_eq!(devices().unwrap(), [device.info().clone()]);
    assert!(Device::open(1).is_err());
    let memory = device.memory().unwrap();
    assert!(memory.free_bytes <= memory.total_bytes && memory.total_bytes == 1 << 30);
}

#[test]
fn bytes_come_back_as_they_went_in_pieces_or_whole() {
    for (device, len) in on_both([1, 5, 4 << 20, (8 << 20) + 3]) {
        let bytes = noise(len as u64, len);
        let buffer = Buffer::of(&device, &bytes).unwrap();
        let mut out = vec![0; len];
        buffer.read(0, &mut out).unwrap();
        assert!(out == bytes, "{len} bytes");
        buffer.write(len / 2, &[7]).unwrap();
        buffer.read(len / 2, &mut out[..1]).unwrap();
        assert_eq!(out[0], 7);
        assert!(buffer.read(len, &mut out[..1]).is_err());
    }
}

#[test]
fn memory_that_is_not_there_is_an_error_and_what_is_dropped_is_given_back() {
    let device = device();
    match Buffer::new(&device, 2 << 30) {
        Err(Error::Memory { bytes }) => assert_eq!(bytes, 2 << 30),
        other => panic!("{other:?}"),
    }
    // Much more than there is, one after the other.
    for _ in 0..4 {
        Buffer::new(&device, 300 << 20).unwrap();
    }
}

#[test]
fn a_kernel_that_is_launched_computes_what_the_cpu_computes() {
    let device = device();
    let (rows, width) = (3, 65);
    let (x, weight) = (floats(1, rows * width), floats(2, width));
    let [at, weights] = [&x, &weight].map(|values| Buffer::floats(&device, values).unwrap());
    let out = Buffer::new(&device, x.len() * 4).unwrap();
    let shape = (rows, width);
    let launch = add_rms_norm(
        at.address(),
        0,
        weights.address(),
        out.address(),
        shape,
        1e-5,
    );
    device.launch(&launch.unwrap()).unwrap();
    device.synchronize().unwrap();
    let mut bytes = vec![0; x.len() * 4];
    out.read(0, &mut bytes).unwrap();
    let mut want = x;
    crate::rms_norm(Path::best(), &mut want, &weight, 1e-5);
    for (got, want) in bytes.as_chunks::<4>().0.iter().zip(want) {
        assert!((f32::from_le_bytes(*got) - want).abs() < 1e-6);
    }
}

#[test]
fn a_pool_on_the_device_does_what_one_on_the_host_does() {
    for (device, format) in on_both(formats()) {
        let layout = KvLayout {
            num_layers: 2,
            num_kv_heads: 3,
            head_dim: 32,
            format,
        };
        let pools = [
            KvPool::new(layout, 3).unwrap(),
            KvPool::on(Arc::clone(&device), 2, layout, 3).unwrap(),
            KvPool::on(Arc::clone(&device), 1, layout, 3).unwrap(),
        ];
        for num_tokens in [0, 1, 15, 16, 37, 63, BLOCK_TOKENS] {
            let slots = pools.each_ref().map(|pool| {
                let len = pool.layout().slot_bytes();
                (0..3).for_each(|slot| pool.reserve(slot).unwrap());
                pool.write_slot(0, &noise(1, len)).unwrap();
                pool.write_slot(1, &noise(2, len)).unwrap();
                pool.copy_slot(0, 1, num_tokens).unwrap();
                pool.clear_slot(0).unwrap();
                let fill = |parts: Vec<Vec<Part>>| {
                    let bytes = noise(3, len);
                    let mut bytes = bytes.as_slice();
                    for mut part in parts.into_iter().flatten() {
                        let (of_part, rest) = bytes.split_at(part.as_mut().len());
                        part.as_mut().copy_from_slice(of_part);
                        bytes = rest;
                        part.ready();
                    }
                };
                pool.fill(&[2], 1, fill).unwrap();
                [0, 1, 2].map(|slot| {
                    let mut out = vec![1; len];
                    pool.read_slot(slot, &mut out).unwrap();
                    out
                })
            });
            assert!(
                slots[0] == slots[1] && slots[0] == slots[2],
                "{format} {num_tokens}"
            );
        }
        let reserved = pools.each_ref().map(KvPool::reserved_bytes);
        assert!(reserved[0] == reserved[1] && reserved[0] == reserved[2]);
        assert_eq!(
            pools.each_ref().map(KvPool::device_bytes),
            [0, reserved[0], reserved[0] / 2]
        );
        for pool in &pools {
            assert!(pool.copy_slot(0, 0, 1).is_err());
            assert!(
                pool.read_slot(3, &mut vec![0; layout.slot_bytes()])
                    .is_err()
            );
            pool.give_back(0);
            assert!(!pool.is_reserved(0) && pool.reserved_bytes() == 0);
            assert!(
                pool.read_slot(0, &mut vec![0; layout.slot_bytes()])
                    .is_err()
            );
        }
    }
}

#[test]
fn blocks_go_to_the_host_and_come_back_as_they_were() {
    let cases = [(2, KvFormat::F16), (1, KvFormat::F16), (2, KvFormat::Q8)];
    for (device, (num_layers, format)) in on_both(cases) {
        let layout = KvLayout {
            num_layers: 2,
            num_kv_heads: 3,
            head_dim: 32,
            format,
        };
        let pool = KvPool::on(Arc::clone(&device), num_layers, layout, 2).unwrap();
        // In memory that the device copies to directly, and in any other.
        for host in [
            KvPool::beside(Arc::clone(&device), layout, 3).unwrap(),
            KvPool::new(layout, 3).unwrap(),
        ] {
            (0..2).for_each(|slot| pool.reserve(slot).unwrap());
            (0..3).for_each(|slot| host.reserve(slot).unwrap());
            let bytes = noise(5, layout.slot_bytes());
            pool.write_slot(1, &bytes).unwrap();
            host.take_slot(2, &pool, 1).unwrap();
            pool.clear_slot(1).unwrap();
            let mut out = vec![1; bytes.len()];
            host.read_slot(2, &mut out).unwrap();
            assert!(out == bytes);
            let take = |parts: Vec<Vec<Part>>| {
                let parts = parts.into_iter().flatten();
                parts.map(|part| part.take(&host, 2)).all(|it| it.is_ok())
            };
            assert!(pool.fill(&[0], 1, take).unwrap());
            out.fill(1);
            pool.read_slot(0, &mut out).unwrap();
            assert!(out == bytes);
            host.read_slot(0, &mut out).unwrap();
            assert!(out.iter().all(|byte| *byte == 0), "its neighbour");
            assert!(pool.take_slot(0, &host, 2).is_err(), "not to a device");
        }
    }
}

#[test]
fn more_parts_than_there_are_places_to_land_all_arrive() {
    // Some larger than such a place.
    for (device, (num_kv_heads, head_dim)) in on_both([(1, 32), (64, 256)]) {
        let layout = KvLayout {
            num_layers: 3,
            num_kv_heads,
            head_dim,
            format: KvFormat::F16,
        };
        let pool = KvPool::on(device, 3, layout, 4).unwrap();
        pool.reserve(0).unwrap();
        let slots: Vec<u32> = (0..4).collect();
        slots.iter().for_each(|slot| pool.reserve(*slot).unwrap());
        let payloads = slots
            .iter()
            .map(|slot| noise(u64::from(*slot), layout.slot_bytes()));
        let payloads: Vec<Vec<u8>> = payloads.collect();
        // All of them are held at once; the first part of every slot is dropped.
        let fill = |parts: Vec<Vec<Part>>| {
            let mut held: Vec<Vec<Part>> = parts;
            for (parts, bytes) in held.iter_mut().zip(&payloads) {
                let pieces = bytes.chunks(layout.layer_bytes());
                for (part, bytes) in parts.iter_mut().zip(pieces) {
                    part.as_mut().copy_from_slice(bytes);
                }
            }
            let ready = held.into_iter().flat_map(|parts| parts.into_iter().skip(1));
            ready.for_each(Part::ready);
        };
        for _ in 0..2 {
            pool.fill(&slots, 1, fill).unwrap();
        }
        for (slot, bytes) in slots.iter().zip(&payloads) {
            let mut out = vec![0; bytes.len()];
            pool.read_slot(*slot, &mut out).unwrap();
            let (first, rest) = out.split_at(layout.layer_bytes());
            assert!(first.iter().all(|byte| *byte == 0), "it never arrived");
            assert!(*rest == bytes[layout.layer_bytes()..]);
        }
    }
}

use super::*;
use crate::cpu::Path;
use crate::kv_write::Rounded;
use crate::kv_write::read;
use crate::layout::tests::formats;
use crate::layout::{Side, TILE_TOKENS};
use crate::random::floats;
use crate::{KvDtype, KvFormat};

const LAYOUT: KvLayout = KvLayout {
    num_layers: 2,
    num_kv_heads: 2,
    head_dim: 32,
    format: KvFormat::Q8,
};

fn slot(pool: &KvPool, slot: u32) -> Vec<u8> {
    let mut bytes = vec![0xaa; pool.layout().slot_bytes()];
    pool.read_slot(slot, &mut bytes).unwrap();
    bytes
}

fn pattern(layout: &KvLayout, seed: u8) -> Vec<u8> {
    (0..layout.slot_bytes())
        .map(|i| (i as u8).wrapping_mul(37).wrapping_add(seed))
        .collect()
}

#[test]
fn a_slot_comes_back_byte_for_byte_and_its_neighbours_stay() {
    let pool = KvPool::reserved(LAYOUT, 3).unwrap();
    pool.write_slot(1, &pattern(&LAYOUT, 5)).unwrap();
    assert_eq!(slot(&pool, 0), vec![0; LAYOUT.slot_bytes()]);
    assert_eq!(slot(&pool, 1), pattern(&LAYOUT, 5));
    assert_eq!(slot(&pool, 2), vec![0; LAYOUT.slot_bytes()]);
    pool.clear_slot(1).unwrap();
    assert_eq!(slot(&pool, 1), vec![0; LAYOUT.slot_bytes()]);
}

#[test]
fn a_copy_takes_the_first_tokens_and_leaves_no_trace_of_others() {
    for format in formats() {
        let layout = KvLayout { format, ..LAYOUT };
        let pool = KvPool::reserved(layout, 2).unwrap();
        let mut source = vec![0x55; layout.slot_bytes()];
        let sides = [Side::Key, Side::Value];
        for (token, side) in (0..BLOCK_TOKENS).flat_map(|t| sides.map(|side| (t, side))) {
            let mut x = floats(token as u64, 32);
            let range = layout.tile(side, 1, token / TILE_TOKENS, 1);
            let place = (source[range].as_mut_ptr(), token % TILE_TOKENS);
            // SAFETY: a whole tile, and one thread.
            unsafe { Rounded::default().write(Path::best(), &layout, side, &mut x, place) };
        }
        pool.write_slot(0, &source).unwrap();
        for num_tokens in [0, 1, 15, 16, 17, 40, 64] {
            pool.write_slot(1, &pattern(&layout, 2)).unwrap();
            pool.copy_slot(0, 1, num_tokens).unwrap();
            let copy = slot(&pool, 1);
            let mut copied = 0;
            for (token, side) in (0..BLOCK_TOKENS).flat_map(|t| sides.map(|side| (t, side))) {
                let range = layout.tile(side, 1, token / TILE_TOKENS, 1);
                let lane = token % TILE_TOKENS;
                let got = read(&layout, side, &copy[range.clone()], lane);
                if token < num_tokens {
                    assert_eq!(got, read(&layout, side, &source[range], lane), "{format}");
                    copied += layout.dtype(side).bytes(32);
                }
            }
            // Whatever is not a copied token is 0: no more bytes than theirs are set.
            let set = copy.iter().filter(|byte| **byte != 0).count();
            assert!(
                set <= copied * 4,
                "{format} {num_tokens}: {set} of {copied}"
            );
            assert!(num_tokens > 0 || set == 0);
        }
    }
}

#[test]
fn memory_comes_with_the_first_use_of_a_chunk_and_goes_when_it_is_given_back() {
    let layout = KvLayout {
        num_layers: 30,
        num_kv_heads: 8,
        head_dim: 128,
        format: KvFormat::same(KvDtype::F16),
    };
    let pool = KvPool::new(layout, 7).unwrap();
    assert_eq!((pool.reserved_bytes(), pool.slots_per_chunk()), (0, 2));
    assert!(pool.clear_slot(2).is_err(), "no memory yet");
    assert!(pool.check_table("test", &[2], 1).is_err());
    pool.reserve(2).unwrap();
    assert_eq!(pool.reserved_bytes(), 2 * layout.slot_bytes());
    pool.write_slot(2, &pattern(&layout, 7)).unwrap();
    pool.reserve(3).unwrap();
    assert_eq!(slot(&pool, 2)[0], 7, "the chunk was there");
    pool.reserve(6).unwrap();
    assert_eq!(
        pool.reserved_bytes(),
        3 * layout.slot_bytes(),
        "the last chunk is shorter"
    );
    pool.give_back(1);
    assert!(pool.fill(&[2], 1, |_| ()).is_err());
    pool.reserve(2).unwrap();
    assert_eq!(slot(&pool, 2)[0], 0, "new memory is zeroed");
}

#[test]
fn what_does_not_fit_is_an_error_not_a_panic() {
    let pool = KvPool::reserved(LAYOUT, 2).unwrap();
    assert!(pool.write_slot(2, &pattern(&LAYOUT, 0)).is_err());
    assert!(pool.write_slot(0, &[0; 3]).is_err());
    assert!(pool.read_slot(0, &mut [0; 3]).is_err());
    assert!(pool.copy_slot(0, 1, 65).is_err());
    assert!(pool.copy_slot(1, 1, 6).is_err());
    assert!(pool.reserve(2).is_err());
    assert!(pool.fill(&[1, 1], 1, |_| ()).is_err());
    assert!(pool.fill(&[2], 1, |_| ()).is_err());
    assert!(pool.fill(&[1], 0, |_| ()).is_err());
    pool.give_back(9);
    assert!(KvPool::new(LAYOUT, 0).is_err());
    assert!(KvPool::new(LAYOUT, usize::MAX).is_err());
    let odd = KvLayout {
        head_dim: 40,
        ..LAYOUT
    };
    assert!(KvPool::new(odd, 1).is_err(), "no whole groups");
}

#[test]
fn slots_that_are_being_filled_are_nobody_elses_until_the_end() {
    let pool = KvPool::reserved(LAYOUT, 4).unwrap();
    let bytes = pattern(&LAYOUT, 3);
    let refuses = |pool: &KvPool| {
        let mut out = vec![0; LAYOUT.slot_bytes()];
        [
            pool.read_slot(2, &mut out).is_err(),
            pool.write_slot(2, &out).is_err(),
            pool.clear_slot(2).is_err(),
            pool.copy_slot(2, 0, 64).is_err(),
            pool.copy_slot(0, 2, 64).is_err(),
            pool.fill(&[0], 1, |_| ()).is_err(),
        ]
    };
    let told = pool.fill(&[2, 1], 1, |parts| {
        let layers = bytes.chunks_exact(LAYOUT.layer_bytes());
        for slot in parts {
            assert_eq!(slot.len(), LAYOUT.num_layers);
            for (mut part, layer) in slot.into_iter().zip(layers.clone()) {
                part.as_mut().copy_from_slice(layer);
                part.ready();
            }
        }
        // It stays: the memory of these slots is in use.
        pool.give_back(0);
        assert_eq!(slot(&pool, 3), vec![0; LAYOUT.slot_bytes()]);
        refuses(&pool)
    });
    assert_eq!(told.unwrap(), [true; 6]);
    assert_eq!((slot(&pool, 1), slot(&pool, 2)), (bytes.clone(), bytes));
    let filling = || pool.fill(&[2], 1, |_| panic!("on purpose"));
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(filling));
    assert!(caught.is_err());
    assert_eq!(refuses(&pool), [false; 6]);
}

#[test]
fn a_slot_of_another_pool_is_taken_whole_or_in_parts() {
    let pools = [(); 2].map(|()| KvPool::reserved(LAYOUT, 3).unwrap());
    let [pool, other] = &pools;
    other.write_slot(2, &pattern(&LAYOUT, 9)).unwrap();
    pool.take_slot(1, other, 2).unwrap();
    let fill = |parts: Vec<Vec<Part>>| {
        let parts = parts.into_iter().flatten();
        parts.map(|part| part.take(other, 2)).collect::<Vec<_>>()
    };
    let taken = pool.fill(&[0], 1, fill).unwrap();
    assert!(taken.iter().all(Result::is_ok) && taken.len() == 2);
    for taken in [0, 1] {
        assert_eq!(slot(pool, taken), pattern(&LAYOUT, 9));
    }
    assert_eq!(slot(pool, 2), vec![0; LAYOUT.slot_bytes()]);
    // What cannot be taken is said, and whoever waits for it is told.
    let none = |parts: Vec<Vec<Part>>| {
        let parts = parts.into_iter().flatten();
        parts.map(|part| part.take(other, 3)).collect::<Vec<_>>()
    };
    assert!(pool.fill(&[0], 1, none).unwrap().iter().all(Result::is_err));
    assert!(pool.take_slot(0, pool, 1).is_err(), "itself");
    assert!(pool.take_slot(3, other, 0).is_err() && pool.take_slot(0, other, 3).is_err());
    let wider = KvLayout {
        num_kv_heads: 3,
        ..LAYOUT
    };
    let wider = KvPool::reserved(wider, 1).unwrap();
    assert!(pool.take_slot(0, &wider, 0).is_err());
}

#[test]
fn chunks_of_a_device_leave_little_of_the_pages_that_drivers_give() {
    const MIB: usize = 1 << 20;
    // Slots of usual models: 8 heads of 128 in 32 layers as f16, q8 and q4; 28 and 36 layers as q8; one that is 3 heads of 64.
    for slot_bytes in [
        8 * MIB,
        32 * 139_264,
        32 * 73_728,
        28 * 139_264,
        36 * 139_264,
        30 * 26_112,
    ] {
        let bytes = slots_per_device_chunk(slot_bytes) * slot_bytes;
        let unused = bytes.next_multiple_of(2 * MIB) - bytes;
        assert!(unused * 50 <= bytes, "{unused} of {bytes}");
        assert!((12 * MIB..=64 * MIB).contains(&bytes), "{bytes}");
    }
    assert_eq!(slots_per_device_chunk(100 * MIB), 1, "never none");
}

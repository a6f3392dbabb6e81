//! Reading many blocks at once, without the store: exactly themselves as far as the chain is whole, whatever happens to
//! the store meanwhile.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use store::{Block, ReadOutcome, ReadPlan, SlotFormat};

use crate::cache::*;

fn buffers(format: &SlotFormat, num_blocks: usize) -> Vec<Vec<u8>> {
    vec![vec![0xEE; format.payload_bytes()]; num_blocks]
}

fn run(plan: &ReadPlan, buffers: &mut [Vec<u8>]) -> ReadOutcome {
    let whole = buffers.iter_mut().map(|bytes| vec![bytes.as_mut_slice()]);
    plan.run(whole.collect(), usize::MAX, drop)
}

fn whole(num_good: usize) -> ReadOutcome {
    ReadOutcome {
        num_good,
        reason: None,
    }
}

/// Flips a byte in the slot of the block that was put as number `slot`; `at` counts from its start.
fn flip(cache: &Cache, slot: u64, at: u64) {
    let path = &cache.pool_files()[0];
    let mut bytes = std::fs::read(path).unwrap();
    bytes[(slot * SLOT_BYTES + at) as usize] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

fn saved(len: usize) -> (Cache, Vec<Block>) {
    let mut cache = Cache::new(PLENTY);
    let blocks = sequence(&ONE, 1, len);
    cache.put_all(&ONE, &blocks);
    (cache, blocks)
}

#[test]
fn a_chain_over_several_files_comes_back_byte_for_byte() {
    let (mut cache, blocks) = saved(64 * 150 + 20);
    let plan = cache.store().plan(&ONE, &blocks).unwrap();
    let mut out = buffers(&FORMAT, blocks.len());
    assert_eq!(run(&plan, &mut out), whole(151));
    for (block, found) in blocks[..150].iter().zip(&out) {
        assert!(*found == payload(block), "{block:?}");
    }
    assert!(cache.has(&ONE, &blocks[150]), "the partial tail");
}

#[test]
fn blocks_read_in_runs_of_layers_come_back_byte_for_byte() {
    // 5.25 MiB.
    let format = SlotFormat {
        num_layers: 7,
        key_slab_bytes: 512 << 10,
        value_slab_bytes: 256 << 10,
        ..FORMAT
    };
    let mut cache = Cache::new(PLENTY);
    assert!(cache.store().open_pool(&TWO, format, "two"));
    let blocks = sequence(&TWO, 1, 64 * 3 + 17);
    let bytes = |block: &Block| -> Vec<u8> {
        let seed = u32::from(block.id.0[0]);
        (0..format.payload_bytes() as u32)
            .map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 13) as u8)
            .collect()
    };
    for block in &blocks {
        cache.store().put(&TWO, block, &bytes(block)).unwrap();
    }
    let plan = cache.store().plan(&TWO, &blocks).unwrap();
    let layers = format.layers_per_read();
    assert_eq!(
        layers, 2,
        "four reads a block, of which the last is shorter"
    );
    let mut out = buffers(&format, blocks.len());
    let parts = out
        .iter_mut()
        .map(|bytes| bytes.chunks_mut(layers * (768 << 10)).collect());
    let (done, read) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let outcome = plan.run(parts.collect(), layers, |part: &mut [u8]| {
        done.fetch_add(1, Ordering::Relaxed);
        read.fetch_add(part.len(), Ordering::Relaxed);
    });
    assert_eq!(outcome, whole(4));
    let told = (done.into_inner(), read.into_inner());
    assert_eq!(told, (4 * 4, 4 * format.payload_bytes()));
    for (block, found) in blocks[..3].iter().zip(&out) {
        assert!(*found == bytes(block));
    }
    let (expected, found) = (bytes(&blocks[3]), &out[3]);
    for (at, slab) in (0..7).flat_map(|layer| {
        let at = layer * (768 << 10);
        [(at, 512 << 10), (at + (512 << 10), 256 << 10)]
    }) {
        let valid = at..at + slab / 2; // two of four tiles
        assert!(found[valid.clone()] == expected[valid.clone()]);
        assert!(found[valid.end..at + slab].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn law_4_the_first_bad_block_ends_the_chain_and_goes_with_all_below_it() {
    // A byte of the header, of the keys of the first layer, of the values of the last.
    for at in [50, 4096 + 5, 4096 + 6143] {
        let (mut cache, blocks) = saved(64 * 20);
        flip(&cache, 15, at);
        flip(&cache, 7, at);
        let plan = cache.store().plan(&ONE, &blocks).unwrap();
        let mut out = buffers(&FORMAT, 20);
        let outcome = run(&plan, &mut out);
        assert_eq!(outcome.num_good, 7);
        assert!(outcome.reason.as_ref().unwrap().contains("checksum"));
        for (block, found) in blocks[..7].iter().zip(&out) {
            assert!(*found == payload(block));
        }
        cache.store().drop_unreadable(&plan, &outcome);
        assert_eq!(cache.store().blocks(&ONE), blocks[..7]);
    }
}

#[test]
fn law_4_only_layers_that_are_right_are_handed_on_plain_and_sealed() {
    for mut cache in [Cache::new(PLENTY), Cache::sealed(PLENTY)] {
        let blocks = sequence(&ONE, 1, 64 * 8);
        cache.put_all(&ONE, &blocks);
        // A byte of the values of the last layer.
        flip(&cache, 5, 4096 + FORMAT.payload_bytes() as u64 - 1);
        let plan = cache.store().plan(&ONE, &blocks).unwrap();
        let (layers, mut out) = (FORMAT.num_layers as usize, buffers(&FORMAT, 8));
        let parts = out.iter_mut().enumerate().map(|(block, bytes)| {
            let parts = bytes.chunks_mut(FORMAT.layer_bytes()).enumerate();
            parts.map(move |(layer, bytes)| Part {
                layer,
                block,
                bytes,
            })
        });
        let done = Mutex::new(Vec::new());
        let outcome = plan.run(parts.map(Iterator::collect).collect(), 1, |part: Part| {
            let expected = payload(&blocks[part.block]);
            let at = part.layer * FORMAT.layer_bytes();
            assert!(*part.bytes == expected[at..at + FORMAT.layer_bytes()]);
            done.lock().unwrap().push((part.layer, part.block));
        });
        assert_eq!(outcome.num_good, 5);
        let mut done = done.into_inner().unwrap();
        done.retain(|(_, block)| *block < 5);
        done.sort_unstable();
        let good = (0..layers).flat_map(|layer| (0..5).map(move |block| (layer, block)));
        assert_eq!(done, good.collect::<Vec<_>>());
    }
}

#[test]
fn law_4_a_reader_that_panics_is_a_miss_and_the_others_go_on() {
    let (mut cache, blocks) = saved(64 * 20);
    let plan = cache.store().plan(&ONE, &blocks).unwrap();
    let mut out = buffers(&FORMAT, 20);
    let parts = out.iter_mut().enumerate().map(|(block, bytes)| {
        let layer = 0;
        vec![Part {
            layer,
            block,
            bytes,
        }]
    });
    let outcome = plan.run(parts.collect(), usize::MAX, |part: Part| {
        assert!(part.block != 9, "on purpose");
    });
    assert_eq!(outcome.num_good, 9);
    assert_eq!(outcome.reason.as_deref(), Some("its reader panicked"));
    cache.store().drop_unreadable(&plan, &outcome);
    assert_eq!(cache.store().blocks(&ONE), blocks[..9]);
}

/// Some layers of a block, which know which they are.
struct Part<'a> {
    layer: usize,
    block: usize,
    bytes: &'a mut [u8],
}

impl AsMut<[u8]> for Part<'_> {
    fn as_mut(&mut self) -> &mut [u8] {
        self.bytes
    }
}

#[test]
fn law_4_a_file_that_is_gone_or_cut_ends_the_chain() {
    let (mut cache, blocks) = saved(64 * 70); // 64 slots a file
    std::fs::remove_file(&cache.pool_files()[1]).unwrap();
    let plan = cache.store().plan(&ONE, &blocks).unwrap();
    assert_eq!(run(&plan, &mut buffers(&FORMAT, 70)).num_good, 64);
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&cache.pool_files()[0])
        .unwrap();
    file.set_len(9 * SLOT_BYTES + 4096 + 17).unwrap();
    let plan = cache.store().plan(&ONE, &blocks).unwrap();
    let outcome = run(&plan, &mut buffers(&FORMAT, 70));
    assert_eq!(outcome.num_good, 9);
    cache.store().drop_unreadable(&plan, &outcome);
    assert_eq!(cache.store().blocks(&ONE), blocks[..9]);
}

#[test]
fn a_plan_ends_before_what_the_store_has_not() {
    let (mut cache, blocks) = saved(64 * 6);
    cache.store().drop_block(&ONE, &blocks[4].id);
    let plan = cache.store().plan(&ONE, &blocks).unwrap();
    assert_eq!(plan.num_blocks(), 4);
    assert_eq!(run(&plan, &mut buffers(&FORMAT, 4)), whole(4));
    let mut other = blocks.clone();
    other[2].position = 0;
    assert_eq!(cache.store().plan(&ONE, &other).unwrap().num_blocks(), 2);
    assert!(
        cache.has(&ONE, &blocks[2]),
        "a wrong question costs nothing"
    );
    assert!(cache.store().plan(&TWO, &blocks).is_none());
}

#[test]
fn law_5_a_slot_that_was_dropped_and_used_again_is_noticed_and_its_new_block_stays() {
    let (mut cache, blocks) = saved(64 * 4);
    let plan = cache.store().plan(&ONE, &blocks).unwrap();
    cache.store().drop_block(&ONE, &blocks[2].id);
    let new = sequence(&ONE, 2, 64 * 2);
    cache.put_all(&ONE, &new);
    let outcome = run(&plan, &mut buffers(&FORMAT, 4));
    assert_eq!(outcome.num_good, 2);
    assert_eq!(outcome.reason.as_deref(), Some("its position differs"));
    cache.store().drop_unreadable(&plan, &outcome);
    assert!(new.iter().all(|block| cache.has(&ONE, block)));
    assert_eq!(cache.store().stats().num_blocks, 4);
}

#[test]
fn a_block_that_was_put_again_after_a_failed_read_stays() {
    let (mut cache, blocks) = saved(64 * 4);
    flip(&cache, 2, 4096);
    let plan = cache.store().plan(&ONE, &blocks).unwrap();
    let outcome = run(&plan, &mut buffers(&FORMAT, 4));
    assert_eq!(outcome.num_good, 2);
    cache.store().drop_block(&ONE, &blocks[2].id);
    cache.put_all(&ONE, &blocks);
    cache.store().drop_unreadable(&plan, &outcome);
    assert!(blocks.iter().all(|block| cache.has(&ONE, block)));
}

#[test]
fn reading_goes_on_while_the_store_is_used() {
    let (mut cache, blocks) = saved(64 * 40);
    let plan = cache.store().plan(&ONE, &blocks).unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for _ in 0..50 {
                let mut out = buffers(&FORMAT, 40);
                assert_eq!(run(&plan, &mut out), whole(40));
                assert!(
                    blocks
                        .iter()
                        .zip(&out)
                        .all(|(block, it)| *it == payload(block))
                );
            }
        });
        for seed in 2..30 {
            let other = sequence(&ONE, seed, 64 * 3);
            cache.put_all(&ONE, &other);
            cache.store().drop_block(&ONE, &other[0].id);
        }
        reader.join().unwrap();
    });
}

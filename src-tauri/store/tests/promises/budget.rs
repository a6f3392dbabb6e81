use std::collections::{HashMap, HashSet};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use store::{Block, BlockId, BlockStore, Budget, Fingerprint};

use crate::cache::*;

/// What the store should hold: each block with the tick of its last use and its number.
#[derive(Default)]
struct Model {
    blocks: HashMap<BlockId, (Block, u64, u64)>,
    pinned: HashSet<BlockId>,
    seq: u64,
}

impl Model {
    fn evict(&mut self, spare: Option<BlockId>) -> bool {
        let parents: HashSet<BlockId> = self
            .blocks
            .values()
            .filter_map(|(block, ..)| block.parent)
            .collect();
        let victim = self
            .blocks
            .iter()
            .filter(|(id, _)| {
                !parents.contains(id) && !self.pinned.contains(id) && spare != Some(**id)
            })
            .min_by_key(|(_, (_, used, seq))| (*used, *seq))
            .map(|(id, _)| *id);
        victim.is_some_and(|id| self.blocks.remove(&id).is_some())
    }

    fn insert(&mut self, block: &Block, used: u64) {
        self.seq += 1;
        self.blocks
            .insert(block.id, (block.clone(), used, self.seq));
        self.blocks.retain(|id, (other, ..)| {
            *id == block.id
                || other.parent != block.parent
                || !block.tokens.starts_with(&other.tokens)
        });
    }

    fn ids(&self) -> HashSet<BlockId> {
        self.blocks.keys().copied().collect()
    }
}

fn ids(store: &BlockStore) -> HashSet<BlockId> {
    store.blocks(&ONE).iter().map(|block| block.id).collect()
}

#[test]
fn the_budget_is_hard_and_the_least_recently_used_tails_go() {
    const BUDGET: u64 = 900 << 10;
    let mut cache = Cache::new(BUDGET);
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut model = Model::default();
    let mut evictions = 0;
    for tick in 1..400 {
        // A turn of one of some conversations: its chain is used and grows.
        let seed = rng.random_range(0..12);
        let chain = sequence(&ONE, seed, rng.random_range(1..64 * 12));
        let here: Vec<BlockId> = chain
            .iter()
            .map(|block| block.id)
            .filter(|id| model.blocks.contains_key(id))
            .collect();
        cache.store().pin(&here);
        model.pinned = here.iter().copied().collect();
        cache.store().touch(&ONE, &here, tick);
        for id in &here {
            model.blocks.get_mut(id).unwrap().1 = tick;
        }
        for block in &chain {
            if model.blocks.contains_key(&block.id) {
                continue;
            }
            assert!(cache.put(&ONE, block).is_some_and(|bytes| bytes > 0));
            let expected = |model: &Model| {
                let mut after = Model {
                    blocks: model.blocks.clone(),
                    ..Default::default()
                };
                after.insert(block, 0);
                after.ids()
            };
            let held = ids(cache.store());
            while held != expected(&model) {
                assert!(
                    model.evict(block.parent),
                    "the store holds what the model does not"
                );
                evictions += 1;
            }
            // The store counts a new block as used at the last tick it was told.
            let now = if here.is_empty() {
                last_touch(&model)
            } else {
                tick
            };
            model.insert(block, now);
        }
        assert!(
            cache.disk_bytes() <= BUDGET,
            "{} bytes at tick {tick}",
            cache.disk_bytes()
        );
        if tick % 100 == 0 {
            for (block, ..) in model.blocks.clone().into_values() {
                assert!(cache.has(&ONE, &block));
            }
        }
    }
    assert!(evictions > 500, "{evictions}");
}

fn last_touch(model: &Model) -> u64 {
    model
        .blocks
        .values()
        .map(|(_, used, _)| *used)
        .max()
        .unwrap_or(0)
}

#[test]
fn a_pinned_chain_is_never_evicted() {
    let mut cache = Cache::new(500 << 10);
    let pinned = sequence(&ONE, 1, 64 * 8);
    cache.put_all(&ONE, &pinned);
    cache.store().pin(&[pinned[7].id]); // its last block holds the whole chain
    for seed in 2..20 {
        for block in sequence(&ONE, seed, 64 * 4) {
            cache.put(&ONE, &block);
        }
        cache.store().touch(&ONE, &[], seed);
    }
    assert!(pinned.iter().all(|block| cache.has(&ONE, block)));
    cache.store().pin(&[]);
    for block in sequence(&ONE, 30, 64 * 30) {
        cache.put(&ONE, &block);
    }
    assert!(
        !cache.has(&ONE, &pinned[7]),
        "and goes when it is not pinned any more"
    );
}

#[test]
fn a_budget_without_room_saves_nothing_and_stays_hard() {
    let mut cache = Cache::new(PLENTY);
    for bytes in [0, SLOT_BYTES - 1] {
        cache.reopen(bytes);
        assert!(!cache.store().open_pool(&ONE, FORMAT, "one"), "it says so");
        assert_eq!(cache.put(&ONE, &sequence(&ONE, 1, 64)[0]), None);
        assert!(cache.pool_files().is_empty());
    }
    let mut cache = Cache::new(400 << 10);
    let chain = sequence(&ONE, 1, 64 * 60);
    let saved = chain
        .iter()
        .take_while(|block| cache.put(&ONE, block).is_some())
        .count();
    assert!(
        (5..60).contains(&saved),
        "a chain stops where the budget ends: {saved}"
    );
    assert!(chain[..saved].iter().all(|block| cache.has(&ONE, block)));
    assert!(cache.disk_bytes() <= 400 << 10);
}

#[test]
fn unknown_files_count() {
    let mut cache = Cache::new(700 << 10);
    std::fs::write(cache.dir().join("what is this"), vec![0; 300 << 10]).unwrap();
    for block in sequence(&ONE, 1, 64 * 40) {
        cache.put(&ONE, &block);
        assert!(cache.disk_bytes() <= 700 << 10);
    }
    assert!(cache.dir().join("what is this").exists(), "and stay");
    assert!(cache.store().stats().file_bytes >= 300 << 10);
}

#[test]
fn fingerprints_that_were_not_opened_go_first() {
    let mut cache = Cache::new(PLENTY);
    assert!(cache.store().open_pool(&TWO, FORMAT, "two"));
    let (one, two) = (sequence(&ONE, 1, 64 * 10), sequence(&TWO, 1, 64 * 10));
    cache.put_all(&ONE, &one);
    cache.put_all(&TWO, &two);
    let ids: Vec<BlockId> = two.iter().map(|block| block.id).collect();
    cache.store().touch(&TWO, &ids, 1000); // used last, but of a model that is gone
    cache.reopen(750 << 10);
    assert!(cache.store().open_pool(&ONE, FORMAT, "one"));
    let known: Vec<bool> = cache
        .store()
        .stats()
        .pools
        .iter()
        .map(|pool| pool.known)
        .collect();
    assert_eq!(known, [true, false]);
    let more = sequence(&ONE, 2, 64 * 25);
    more.iter()
        .for_each(|block| assert!(cache.put(&ONE, block).is_some()));
    assert!(one.iter().chain(&more).all(|block| cache.has(&ONE, block)));
    let left = cache.store().blocks(&TWO);
    assert!(
        left.len() < 10 && left.iter().all(|block| cache.has(&TWO, block)),
        "{left:?}"
    );
    assert!(cache.disk_bytes() <= 750 << 10);
}

#[test]
fn a_change_of_model_costs_the_old_one_no_more_than_the_room_it_gives() {
    const BUDGET: u64 = 2 << 20;
    let mut cache = Cache::new(BUDGET);
    // Two chains that grow in turns, so that their slots alternate.
    let (a, b) = (sequence(&ONE, 1, 64 * 40), sequence(&ONE, 2, 64 * 40));
    for (a, b) in a.iter().zip(&b) {
        assert!(cache.put(&ONE, a).is_some() && cache.put(&ONE, b).is_some());
    }
    let b_ids: Vec<BlockId> = b.iter().map(|block| block.id).collect();
    cache.store().touch(&ONE, &b_ids, 10);
    assert!(cache.store().open_pool(&TWO, FORMAT, "two"));
    let new = sequence(&TWO, 1, 64 * 80);
    new.iter()
        .for_each(|block| assert!(cache.put(&TWO, block).is_some()));
    assert!(new.iter().chain(&b).all(|block| cache.has(
        if b_ids.contains(&block.id) {
            &ONE
        } else {
            &TWO
        },
        block
    )));
    let kept = a.iter().filter(|block| cache.has(&ONE, block)).count();
    assert!((5..40).contains(&kept), "{kept}");
    assert!(cache.disk_bytes() <= BUDGET);
}

#[test]
fn a_smaller_budget_holds_from_the_opening_on() {
    let mut cache = Cache::new(PLENTY);
    for seed in 0..20 {
        cache.put_all(&ONE, &sequence(&ONE, seed, 64 * 10));
    }
    for budget in [1 << 20, 500 << 10, 100 << 10] {
        cache.reopen(budget);
        assert!(
            cache.disk_bytes() <= budget,
            "{} of {budget}",
            cache.disk_bytes()
        );
    }
}

#[test]
fn the_default_budget_is_a_part_of_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let store = BlockStore::open(&folder.path().join("kv"), Budget::Default);
    let budget = store.stats().budget_bytes;
    assert!(budget > 0 && budget <= 20 << 30, "{budget}");
    assert!(store.blocks(&Fingerprint([1; 32])).is_empty());
}

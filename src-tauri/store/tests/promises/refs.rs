use std::collections::HashSet;

use store::{Block, GcReport};

use crate::cache::*;

#[test]
fn gc_keeps_what_refs_reach_and_sweeps_the_rest() {
    let mut cache = Cache::new(PLENTY);
    let (kept, lost) = (sequence(&ONE, 1, 64 * 4 + 5), sequence(&ONE, 2, 64 * 3));
    let branch = Block::new(&ONE, Some(&kept[1]), vec![3; 64]);
    cache.put_all(&ONE, &kept);
    cache.put_all(&ONE, &lost);
    cache.put(&ONE, &branch).unwrap();
    cache.store().set_ref("leaf", &ONE, &kept[4].id);
    cache.reopen(PLENTY); // refs are kept, and reach in pools that are not opened
    let report = cache.store().gc(&HashSet::from([lost[0].id]));
    assert_eq!(report, GcReport { swept: 3, kept: 6 });
    assert!(cache.store().open_pool(&ONE, FORMAT, "one"));
    assert!(kept.iter().all(|block| cache.has(&ONE, block)));
    assert!(cache.has(&ONE, &lost[0]) && !cache.has(&ONE, &lost[1]) && !cache.has(&ONE, &branch));
    cache.store().drop_ref("leaf");
    assert_eq!(
        cache.store().gc(&HashSet::new()),
        GcReport { swept: 6, kept: 0 }
    );
    assert!(cache.pool_files().is_empty());
}

#[test]
fn gc_leaves_what_is_pinned() {
    let mut cache = Cache::new(PLENTY);
    let blocks = sequence(&ONE, 1, 64 * 3);
    cache.put_all(&ONE, &blocks);
    cache.store().pin(&[blocks[1].id]);
    assert_eq!(
        cache.store().gc(&HashSet::new()),
        GcReport { swept: 1, kept: 2 }
    );
}

#[test]
fn a_ref_whose_block_goes_holds_the_nearest_block_above() {
    let mut cache = Cache::new(PLENTY);
    let blocks = sequence(&ONE, 1, 64 * 4);
    cache.put_all(&ONE, &blocks);
    cache.store().set_ref("leaf", &ONE, &blocks[3].id);
    cache.store().drop_block(&ONE, &blocks[2].id);
    assert_eq!(cache.store().refs()[0].block, blocks[1].id);
    cache.reopen(PLENTY);
    assert_eq!(cache.store().refs()[0].block, blocks[1].id);
    assert_eq!(cache.store().gc(&HashSet::new()).kept, 2);
    cache.store().drop_block(&ONE, &blocks[0].id);
    assert!(cache.store().refs().is_empty());
}

#[test]
fn a_leaf_holds_one_block_for_each_fingerprint() {
    let mut cache = Cache::new(PLENTY);
    assert!(cache.store().open_pool(&TWO, FORMAT, "two"));
    let (one, two) = (sequence(&ONE, 1, 128), sequence(&TWO, 1, 128));
    cache.put_all(&ONE, &one);
    cache.put_all(&TWO, &two);
    cache.store().set_ref("leaf", &ONE, &one[0].id);
    cache.store().set_ref("leaf", &ONE, &one[1].id);
    cache.store().set_ref("leaf", &TWO, &two[1].id);
    cache.store().set_ref("leaf", &TWO, &one[1].id); // not its block
    cache
        .store()
        .set_ref("other", &ONE, &sequence(&ONE, 5, 64)[0].id); // not there
    let refs = cache.store().refs();
    assert_eq!(
        refs.iter().map(|r| r.block).collect::<Vec<_>>(),
        [one[1].id, two[1].id]
    );
    cache.store().drop_ref("leaf");
    assert!(cache.store().refs().is_empty());
}

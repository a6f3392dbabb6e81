use store::{Block, BlockId, BlockStore, Budget, Fingerprint, SlotFormat};

use crate::cache::*;

#[test]
fn a_block_comes_back_byte_for_byte_after_a_restart() {
    for len in [1, 63, 64, 65, 127, 128, 129, 64 * 70] {
        let mut cache = Cache::new(PLENTY);
        let blocks = sequence(&ONE, 1, len);
        cache.put_all(&ONE, &blocks);
        assert!(blocks.iter().all(|block| cache.has(&ONE, block)));
        cache.reopen(PLENTY);
        assert!(cache.store().open_pool(&ONE, FORMAT, "one"));
        assert_eq!(
            cache.store().blocks(&ONE),
            blocks,
            "parents before children"
        );
        assert!(blocks.iter().all(|block| cache.has(&ONE, block)));
    }
}

#[test]
fn law_9_a_put_writes_its_header_and_its_valid_tiles_and_nothing_twice() {
    let mut cache = Cache::new(PLENTY);
    let blocks = sequence(&ONE, 1, 64 + 10);
    assert_eq!(
        cache.put(&ONE, &blocks[0]),
        Some(HEADER_BYTES + 64 * BYTES_PER_TOKEN)
    );
    assert_eq!(
        cache.put(&ONE, &blocks[1]),
        Some(HEADER_BYTES + 16 * BYTES_PER_TOKEN),
        "one tile"
    );
    assert!(blocks.iter().all(|block| cache.put(&ONE, block) == Some(0)));
    let stats = cache.store().stats();
    assert_eq!(
        (stats.num_blocks, stats.live_bytes),
        (2, 2 * HEADER_BYTES + 80 * BYTES_PER_TOKEN)
    );
    assert_eq!(stats.pools[0].bytes, 2 * SLOT_BYTES);
}

#[test]
fn tiles_past_a_partial_block_are_not_written() {
    for (num_tokens, num_tiles) in [(1, 1), (16, 1), (17, 2), (48, 3), (49, 4)] {
        let mut cache = Cache::new(PLENTY);
        let block = &sequence(&ONE, 1, num_tokens)[0];
        cache.put(&ONE, block).unwrap();
        let file = std::fs::read(&cache.pool_files()[0]).unwrap();
        for (at, bytes, tile) in SLABS {
            let rest = &file[4096 + at + num_tiles * tile..4096 + at + bytes];
            assert!(rest.iter().all(|byte| *byte == 0), "{num_tokens} tokens");
        }
    }
}

#[test]
fn what_another_block_left_in_a_slot_does_not_come_back_with_the_next() {
    let mut cache = Cache::new(PLENTY);
    let (old, new) = (sequence(&ONE, 1, 64), sequence(&ONE, 2, 20));
    cache.put_all(&ONE, &sequence(&ONE, 3, 64)); // keeps the file
    cache.put_all(&ONE, &old);
    cache.put_all(&ONE, &sequence(&ONE, 4, 64)); // keeps the slot in it
    cache.store().drop_block(&ONE, &old[0].id);
    cache.put_all(&ONE, &new);
    assert_eq!(cache.store().stats().pools[0].bytes, 3 * SLOT_BYTES);
    assert!(cache.has(&ONE, &new[0]), "and the rest of it is zero");
}

#[test]
fn a_longer_tail_takes_the_place_of_the_one_it_continues() {
    let mut cache = Cache::new(PLENTY);
    let (short, long) = (sequence(&ONE, 1, 64 + 10), sequence(&ONE, 1, 64 + 30));
    let other = Block::new(&ONE, Some(&short[0]), vec![7; 5]);
    cache.put_all(&ONE, &short);
    cache.put(&ONE, &other).unwrap();
    cache.store().set_ref("leaf", &ONE, &short[1].id);
    cache.put(&ONE, &long[1]).unwrap();
    assert!(!cache.has(&ONE, &short[1]));
    assert!(cache.has(&ONE, &long[1]) && cache.has(&ONE, &other));
    assert_eq!(
        cache.store().refs()[0].block,
        long[1].id,
        "the ref goes over"
    );
    let root = sequence(&ONE, 9, 20);
    cache.put_all(&ONE, &root[..1]);
    cache.put_all(&ONE, &sequence(&ONE, 9, 64));
    assert!(!cache.has(&ONE, &root[0]), "also without a parent");
    assert_eq!(cache.store().stats().num_blocks, 4);
}

#[test]
fn law_5_a_block_never_crosses_fingerprints() {
    let mut cache = Cache::new(PLENTY);
    assert!(cache.store().open_pool(&TWO, FORMAT, "two"));
    let blocks = sequence(&ONE, 1, 128);
    cache.put_all(&ONE, &blocks);
    assert!(!blocks.iter().any(|block| cache.has(&TWO, block)));
    assert!(cache.store().blocks(&TWO).is_empty());
    assert_eq!(
        cache.put(&TWO, &sequence(&ONE, 2, 64)[0]),
        None,
        "its id is of another fingerprint"
    );
    let same_tokens = sequence(&TWO, 1, 128);
    assert_ne!(same_tokens[0].id, blocks[0].id);
    assert!(!same_tokens.iter().any(|block| cache.has(&TWO, block)));
    cache.store().drop_block(&TWO, &blocks[0].id);
    assert!(cache.has(&ONE, &blocks[1]));
    assert!(
        !cache.has(&Fingerprint([3; 32]), &blocks[0]),
        "nor into one that was never opened"
    );
}

#[test]
fn a_block_that_is_not_what_it_says_is_neither_saved_nor_found() {
    let mut cache = Cache::new(PLENTY);
    let blocks = sequence(&ONE, 1, 128);
    assert_eq!(cache.put(&ONE, &blocks[1]), None, "its parent is missing");
    cache.put(&ONE, &blocks[0]).unwrap();
    let wrong = [
        Block {
            id: BlockId([9; 32]),
            ..blocks[1].clone()
        },
        Block {
            position: 63,
            ..blocks[1].clone()
        },
        Block {
            parent: None,
            ..blocks[1].clone()
        },
        Block {
            tokens: vec![1; 64],
            ..blocks[1].clone()
        },
        Block::new(&ONE, Some(&blocks[0]), vec![]),
        Block::new(&ONE, Some(&blocks[0]), vec![1; 65]),
    ];
    for block in &wrong {
        assert_eq!(
            cache.store().put(&ONE, block, &payload(block)),
            None,
            "{block:?}"
        );
        assert!(!cache.has(&ONE, block));
    }
    assert_eq!(
        cache.store().put(&ONE, &blocks[1], &[0; 100]),
        None,
        "half a payload"
    );
    let tail = Block::new(&ONE, Some(&blocks[0]), vec![1; 5]);
    cache.put(&ONE, &tail).unwrap();
    let after_tail = Block::new(&ONE, Some(&tail), vec![1; 5]);
    assert_eq!(cache.put(&ONE, &after_tail), None, "its parent is not full");
    cache.put(&ONE, &blocks[1]).unwrap();
    let asked = Block {
        position: 0,
        ..blocks[1].clone()
    };
    assert!(!cache.has(&ONE, &asked));
    assert!(
        cache.has(&ONE, &blocks[1]),
        "a wrong question costs no block"
    );
}

#[test]
fn a_dropped_block_takes_what_hangs_below_it_and_its_slots_are_used_again() {
    let mut cache = Cache::new(PLENTY);
    let (first, second) = (sequence(&ONE, 1, 64 * 5), sequence(&ONE, 2, 64 * 3));
    cache.put_all(&ONE, &first);
    cache.put_all(&ONE, &second);
    cache.store().drop_block(&ONE, &first[2].id);
    assert_eq!(
        first.iter().filter(|block| cache.has(&ONE, block)).count(),
        2
    );
    assert!(second.iter().all(|block| cache.has(&ONE, block)));
    assert_eq!(cache.store().stats().pools[0].bytes, 8 * SLOT_BYTES);
    cache.put_all(&ONE, &first);
    assert_eq!(
        cache.store().stats().pools[0].bytes,
        8 * SLOT_BYTES,
        "holes are filled first"
    );
    assert!(
        first
            .iter()
            .chain(&second)
            .all(|block| cache.has(&ONE, block))
    );
}

#[test]
fn free_files_and_free_ends_go_back_to_the_disk() {
    let mut cache = Cache::new(PLENTY);
    let blocks = sequence(&ONE, 1, 64 * 150); // 64 slots a file
    cache.put_all(&ONE, &blocks);
    assert_eq!(cache.pool_files().len(), 3);
    cache.store().drop_block(&ONE, &blocks[70].id);
    let lengths: Vec<u64> = cache
        .pool_files()
        .iter()
        .map(|path| path.metadata().unwrap().len())
        .collect();
    assert_eq!(lengths, [64 * SLOT_BYTES, 6 * SLOT_BYTES]);
    cache.store().clear();
    assert!(cache.pool_files().is_empty());
    assert_eq!(cache.store().stats().num_blocks, 0);
    cache.put_all(&ONE, &blocks[..3]); // the pool is still open
}

#[test]
fn another_shape_of_blocks_starts_an_empty_pool() {
    let mut cache = Cache::new(PLENTY);
    let blocks = sequence(&ONE, 1, 128);
    cache.put_all(&ONE, &blocks);
    let others = [
        SlotFormat {
            tile_tokens: 64,
            ..FORMAT
        },
        SlotFormat {
            num_layers: 1,
            ..FORMAT
        },
        SlotFormat {
            key_slab_bytes: FORMAT.value_slab_bytes,
            value_slab_bytes: FORMAT.key_slab_bytes,
            ..FORMAT
        },
    ];
    for other in others {
        assert!(cache.store().open_pool(&ONE, other, "one"));
        assert!(cache.store().blocks(&ONE).is_empty(), "{other:?}");
        assert!(cache.store().open_pool(&ONE, FORMAT, "one"));
        cache.put_all(&ONE, &blocks);
    }
}

#[test]
fn blocks_of_an_impossible_shape_are_not_saved() {
    let mut cache = Cache::new(PLENTY);
    let shape = |tile_tokens, num_layers, key_slab_bytes, value_slab_bytes| SlotFormat {
        block_tokens: 64,
        tile_tokens,
        num_layers,
        key_slab_bytes,
        value_slab_bytes,
    };
    for unsound in [
        SlotFormat {
            block_tokens: 0,
            ..FORMAT
        },
        shape(0, 2, 2048, 2048),
        shape(24, 2, 2048, 2048),
        shape(128, 2, 2048, 2048),
        shape(16, 0, 2048, 2048),
        shape(16, 2, 0, 2048),
        shape(16, 2, 2048, 0),
        shape(16, 2, 2049, 2048),
        shape(16, 2, 2048, 2050),
        shape(16, 100, u32::MAX - 63, 2048),
        shape(16, 100, 2048, u32::MAX - 63),
    ] {
        assert!(!cache.store().open_pool(&TWO, unsound, "two"));
    }
}

#[test]
fn a_store_without_a_usable_folder_is_all_misses() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("kv"),
        "a file where the folder should be",
    )
    .unwrap();
    let mut store = BlockStore::open(&folder.path().join("kv"), Budget::Default);
    assert!(!store.open_pool(&ONE, FORMAT, "one"));
    let block = &sequence(&ONE, 1, 64)[0];
    assert_eq!(store.put(&ONE, block, &payload(block)), None);
    assert_eq!(get(&mut store, &ONE, block, &mut payload(block)), None);
    store.touch(&ONE, &[block.id], 1);
    store.set_ref("leaf", &ONE, &block.id);
    store.drop_ref("leaf");
    store.clear();
    assert_eq!((store.stats().num_blocks, store.verify().checked), (0, 0));
    assert!(
        folder.path().join("kv").is_file(),
        "it is not ours to delete"
    );
}

#[cfg(unix)]
#[test]
fn every_file_of_the_store_is_private() {
    let mut cache = Cache::new(PLENTY);
    cache.put_all(&ONE, &sequence(&ONE, 1, 128));
    assert_eq!(crate::support::mode(&cache.dir()), 0o700);
    for entry in std::fs::read_dir(cache.dir()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(crate::support::mode(&path), 0o600, "{}", path.display());
    }
}

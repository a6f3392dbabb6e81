//! Encrypted blocks: exactly themselves or a miss, and nothing of them to be read on disk.

use store::{Block, BlockStore, Budget, Fingerprint, History};

use crate::cache::*;
use crate::privacy::{CANARY_TOKENS, NOWHERE, found, seal_of, secret, words};

/// A chain whose tokens hold the canary.
fn canary() -> Vec<Block> {
    let mut tokens: Vec<u32> = (0..150).collect();
    tokens[70..75].copy_from_slice(&CANARY_TOKENS);
    let mut blocks: Vec<Block> = Vec::new();
    for chunk in tokens.chunks(64) {
        let block = Block::new(&ONE, blocks.last(), chunk.to_vec());
        blocks.push(block);
    }
    blocks
}

fn all_there(cache: &mut Cache, blocks: &[Block]) -> bool {
    blocks.iter().all(|block| cache.has(&ONE, block))
}

/// Changes the bytes of the only pool file while the store is closed, and opens it again.
fn with_pool_file(cache: &mut Cache, change: impl FnOnce(&mut Vec<u8>)) {
    cache.store = None;
    let path = cache.pool_files().remove(0);
    let mut bytes = std::fs::read(&path).unwrap();
    change(&mut bytes);
    std::fs::write(&path, bytes).unwrap();
    cache.reopen(PLENTY);
    assert!(cache.store().open_pool(&ONE, FORMAT, "one"));
}

#[test]
fn an_encrypted_block_comes_back_byte_for_byte_after_a_restart() {
    for len in [1, 63, 64, 65, 128, 129, 64 * 70] {
        let mut cache = Cache::sealed(PLENTY);
        let blocks = sequence(&ONE, 1, len);
        cache.put_all(&ONE, &blocks);
        assert!(all_there(&mut cache, &blocks));
        cache.reopen(PLENTY);
        assert!(cache.store().open_pool(&ONE, FORMAT, "one"));
        assert_eq!(cache.store().blocks(&ONE), blocks);
        assert!(all_there(&mut cache, &blocks));
        assert_eq!(cache.store().verify().bad, 0);
    }
}

#[test]
fn law_9_a_sealed_put_writes_its_header_and_its_valid_tiles() {
    let mut cache = Cache::sealed(PLENTY);
    let blocks = sequence(&ONE, 1, 64 + 10);
    let whole = SEALED_HEADER_BYTES + 64 * BYTES_PER_TOKEN;
    assert_eq!(cache.put(&ONE, &blocks[0]), Some(whole));
    let one_tile = SEALED_HEADER_BYTES + 16 * BYTES_PER_TOKEN;
    assert_eq!(cache.put(&ONE, &blocks[1]), Some(one_tile));
    assert_eq!(cache.store().stats().live_bytes, whole + one_tile);
    let file = std::fs::read(&cache.pool_files()[0]).unwrap();
    for (at, bytes, tile) in SLABS {
        let at = SLOT_BYTES as usize + 4096 + at;
        assert!(file[at + tile..at + bytes].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn neither_tokens_nor_payload_can_be_read_on_disk() {
    let blocks = canary();
    for (mut cache, is_plain) in [(Cache::new(PLENTY), true), (Cache::sealed(PLENTY), false)] {
        cache.put_all(&ONE, &blocks);
        cache.store().set_ref("leaf", &ONE, &blocks[2].id);
        for _ in 0..2 {
            assert_eq!(!found(&cache.dir()).is_empty(), is_plain);
            let bytes = std::fs::read(&cache.pool_files()[0]).unwrap();
            let tile = &payload(&blocks[0])[..512];
            assert_eq!(bytes.windows(512).any(|window| window == tile), is_plain);
            assert_eq!(
                bytes.windows(32).any(|window| window == blocks[1].id.0),
                is_plain
            );
            cache.store = None; // and once more when its log is folded in
        }
    }
}

#[test]
fn the_same_block_is_never_the_same_bytes_twice() {
    let block = &sequence(&ONE, 1, 64)[0];
    let mut cache = Cache::sealed(PLENTY);
    let mut written = Vec::new();
    for _ in 0..2 {
        cache.put(&ONE, block).unwrap();
        written.push(std::fs::read(&cache.pool_files()[0]).unwrap());
        cache.store().drop_block(&ONE, &block.id);
    }
    let (first, second) = (&written[0], &written[1]);
    assert_eq!(first[..12], second[..12], "magic and version");
    let same = |range: std::ops::Range<usize>| {
        first[range.clone()]
            .iter()
            .zip(&second[range])
            .filter(|(a, b)| a == b)
            .count()
    };
    assert!(same(12..12 + 32) < 8, "the salt");
    assert!(same(44..SEALED_HEADER_BYTES as usize) < 40, "the header");
    assert!(same(4096..4096 + 6144) < 200, "the payload");
}

#[test]
fn every_flipped_byte_of_an_encrypted_slot_is_a_miss() {
    let mut cache = Cache::sealed(PLENTY);
    let block = &sequence(&ONE, 1, 64)[0];
    let header = (0..SEALED_HEADER_BYTES as usize).step_by(5);
    for at in header.chain((4096..4096 + 6144).step_by(331)) {
        cache.put(&ONE, block).unwrap();
        with_pool_file(&mut cache, |bytes| bytes[at] ^= 1);
        assert!(!cache.has(&ONE, block), "byte {at}");
        assert!(cache.store().blocks(&ONE).is_empty());
    }
}

#[test]
fn slots_and_slabs_that_changed_places_are_misses() {
    let mut cache = Cache::sealed(PLENTY);
    let blocks = sequence(&ONE, 1, 64 * 2);
    let slot = SLOT_BYTES as usize;
    cache.put_all(&ONE, &blocks);
    with_pool_file(&mut cache, |bytes| {
        let (first, second) = bytes.split_at_mut(slot);
        first.swap_with_slice(&mut second[..slot]);
    });
    assert!(!cache.has(&ONE, &blocks[0]) && !cache.has(&ONE, &blocks[1]));

    cache.put_all(&ONE, &blocks);
    // Both payloads under the other's header.
    with_pool_file(&mut cache, |bytes| {
        let (first, second) = bytes.split_at_mut(slot);
        first[4096..slot].swap_with_slice(&mut second[4096..slot]);
    });
    assert!(!cache.has(&ONE, &blocks[0]));

    cache.put_all(&ONE, &blocks);
    // The keys of the two layers of one block.
    with_pool_file(&mut cache, |bytes| {
        let (first, second) = bytes[4096..].split_at_mut(3072);
        first[..2048].swap_with_slice(&mut second[..2048]);
    });
    assert!(!cache.has(&ONE, &blocks[0]));
}

#[test]
fn under_another_key_nothing_is_there() {
    let mut cache = Cache::sealed(PLENTY);
    let blocks = sequence(&ONE, 1, 64 * 3);
    cache.put_all(&ONE, &blocks);
    cache.seal = Some(seal_of(tempfile::tempdir().unwrap().path()));
    cache.reopen(PLENTY);
    assert!(cache.store().open_pool(&ONE, FORMAT, "one"));
    assert!(cache.store().blocks(&ONE).is_empty() && cache.pool_files().is_empty());
    cache.put_all(&ONE, &blocks);
    assert!(all_there(&mut cache, &blocks));
}

#[test]
fn plain_and_encrypted_blocks_never_meet_once_it_is_on() {
    let blocks = sequence(&ONE, 1, 64 * 3);
    let mut cache = Cache::new(PLENTY);
    cache.put_all(&ONE, &blocks);
    cache.seal = Some(seal_of(tempfile::tempdir().unwrap().path()));
    cache.reopen(PLENTY);
    assert!(cache.store().blocks(&ONE).is_empty() && cache.pool_files().is_empty());
    assert!(cache.store().open_pool(&ONE, FORMAT, "one"));
    cache.put_all(&ONE, &blocks);
    cache.seal = None;
    cache.reopen(PLENTY);
    assert!(cache.store().blocks(&ONE).is_empty() && cache.pool_files().is_empty());
}

/// A history and a block store in one folder, some blocks of two fingerprints in it.
fn folder_of(blocks: &[(Fingerprint, Vec<Block>)]) -> (tempfile::TempDir, History, BlockStore) {
    let folder = tempfile::tempdir().unwrap();
    let history = History::open(&folder.path().join("history.db")).unwrap();
    let mut store = BlockStore::open(&folder.path().join("kv"), Budget::Bytes(PLENTY));
    for (fingerprint, blocks) in blocks {
        assert!(store.open_pool(fingerprint, FORMAT, "one"));
        for block in blocks {
            store.put(fingerprint, block, &payload(block)).unwrap();
        }
    }
    store.set_ref("leaf", &ONE, &blocks[0].1[1].id);
    (folder, history, store)
}

fn assert_all_there(store: &mut BlockStore, blocks: &[(Fingerprint, Vec<Block>)]) {
    let mut out = vec![0; FORMAT.payload_bytes()];
    for (fingerprint, blocks) in blocks {
        assert_eq!(store.blocks(fingerprint), *blocks);
        for block in blocks {
            assert!(get(store, fingerprint, block, &mut out).is_some());
        }
    }
    assert_eq!(store.refs()[0].block, blocks[0].1[1].id);
    assert_eq!(store.verify().bad, 0);
}

#[test]
fn turning_it_on_and_off_loses_no_block_and_leaves_nothing_of_the_other_form() {
    let blocks = [(ONE, canary()), (TWO, sequence(&TWO, 2, 64 * 100 + 3))];
    let (folder, mut history, mut store) = folder_of(&blocks);
    let kv = folder.path().join("kv");
    assert!(!found(&kv).is_empty());
    history.protect(&secret("open sesame")).unwrap();
    store.set_seal(history.seal());
    assert_all_there(&mut store, &blocks);
    // What is new is encrypted at once, and what is not yet is read.
    let new = sequence(&ONE, 9, 64);
    store.put(&ONE, &new[0], &payload(&new[0])).unwrap();
    store.drop_block(&ONE, &new[0].id);
    assert_eq!(store.num_to_rewrite(), 3 + 101);
    while store.rewrite_some() > 0 {
        drop(store);
        store = BlockStore::open_under(&kv, Budget::Bytes(PLENTY), history.seal());
        assert_all_there(&mut store, &blocks);
    }
    history.finish_privacy().unwrap();
    store.set_seal(history.seal());
    assert_all_there(&mut store, &blocks);
    assert_eq!(found(&kv), NOWHERE);
    let names = || {
        std::fs::read_dir(&kv)
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name())
    };
    let is_sealed = |name: std::ffi::OsString| name.to_string_lossy().ends_with(".sealed.pool");
    let is_pool = |name: &std::ffi::OsString| name.to_string_lossy().ends_with(".pool");
    assert!(names().filter(is_pool).all(is_sealed));

    drop((store, history));
    let path = folder.path().join("history.db");
    let mut history = History::unlock(&path, Some(&words("open sesame"))).unwrap();
    let mut store = BlockStore::open_under(&kv, Budget::Bytes(PLENTY), history.seal());
    assert_all_there(&mut store, &blocks);
    history.unprotect().unwrap();
    store.set_seal(history.seal());
    assert_all_there(&mut store, &blocks);
    while store.rewrite_some() > 0 {}
    history.finish_privacy().unwrap();
    store.set_seal(history.seal());
    assert_all_there(&mut store, &blocks);
    assert!(!names().filter(is_pool).any(is_sealed) && !found(&kv).is_empty());
}

#[test]
fn what_was_swept_is_not_in_free_slots_any_more() {
    for sealed in [false, true] {
        let mut cache = if sealed {
            Cache::sealed(PLENTY)
        } else {
            Cache::new(PLENTY)
        };
        let (gone, stays) = (canary(), sequence(&ONE, 5, 64 * 3));
        cache.put_all(&ONE, &gone);
        cache.put_all(&ONE, &stays);
        cache.store().set_ref("stays", &ONE, &stays[2].id);
        let before = std::fs::read(&cache.pool_files()[0]).unwrap();
        let report = cache.store().gc(&std::collections::HashSet::new());
        assert_eq!((report.swept, report.kept), (3, 3));
        let bytes = std::fs::read(&cache.pool_files()[0]).unwrap();
        let header = if sealed {
            SEALED_HEADER_BYTES
        } else {
            SLOT_BYTES
        } as usize;
        for slot in 0..3 {
            let at = slot * SLOT_BYTES as usize;
            assert!(before[at..at + header].iter().any(|byte| *byte != 0));
            assert!(
                bytes[at..at + header].iter().all(|byte| *byte == 0),
                "slot {slot}"
            );
        }
        assert_eq!(found(&cache.dir()), NOWHERE);
        assert!(all_there(&mut cache, &stays));
    }
}

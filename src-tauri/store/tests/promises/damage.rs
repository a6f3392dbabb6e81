//! Damaged files: whatever was flipped or cut, a block is exactly itself or a miss, and the store goes on.

use std::path::PathBuf;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use store::Block;

use crate::cache::*;

type Files = Vec<(PathBuf, Vec<u8>)>;

/// The files of the folder, without the index's shared memory, which no restart reads.
fn snapshot(cache: &Cache) -> Files {
    let mut files: Files = std::fs::read_dir(cache.dir())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| !path.to_string_lossy().ends_with("-shm"))
        .map(|path| (path.clone(), std::fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

fn put_back(cache: &mut Cache, files: &Files) {
    cache.store = None;
    for entry in std::fs::read_dir(cache.dir()).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    files
        .iter()
        .for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
}

/// Opens the store, asks for every block, and uses the store. Returns how many blocks were there.
fn use_it(cache: &mut Cache, one: &[Block], two: &[Block]) -> usize {
    cache.reopen(PLENTY);
    assert!(
        cache.store().open_pool(&ONE, FORMAT, "one")
            && cache.store().open_pool(&TWO, FORMAT, "two")
    );
    let mut found = 0;
    found += one.iter().filter(|block| cache.has(&ONE, block)).count();
    found += two.iter().filter(|block| cache.has(&TWO, block)).count();
    let fresh = sequence(&ONE, 99, 64 + 7);
    cache.put_all(&ONE, &fresh);
    assert!(fresh.iter().all(|block| cache.has(&ONE, block)));
    assert_eq!(cache.store().verify().bad, 0);
    found
}

/// A store of two fingerprints with full and partial blocks and refs, and its files: open, with a log, and closed.
fn store_and_files() -> (Cache, Vec<Block>, Vec<Block>, [Files; 2]) {
    let mut cache = Cache::new(PLENTY);
    let (one, two) = (
        sequence(&ONE, 1, 64 * 6 + 20),
        sequence(&TWO, 2, 64 * 3 + 1),
    );
    assert!(cache.store().open_pool(&TWO, FORMAT, "two"));
    cache.put_all(&ONE, &one);
    cache.put_all(&TWO, &two);
    cache.store().set_ref("a leaf", &ONE, &one[6].id);
    let open = snapshot(&cache);
    cache.store = None;
    let closed = snapshot(&cache);
    assert!(open.len() > closed.len(), "the open one has its log");
    (cache, one, two, [open, closed])
}

#[test]
fn law_4_flipped_bytes_are_exact_or_a_miss_and_the_store_goes_on() {
    let (mut cache, one, two, states) = store_and_files();
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let (mut whole, mut emptied) = (0, 0);
    for flip in 0..600 {
        let mut files = states[flip % 2].clone();
        let num_files = files.len();
        let (_, bytes) = &mut files[rng.random_range(0..num_files)];
        for _ in 0..[1, 1, 8][flip % 3] {
            let at = rng.random_range(0..bytes.len());
            bytes[at] ^= rng.random_range(1..=255u8);
        }
        put_back(&mut cache, &files);
        match use_it(&mut cache, &one, &two) {
            0 => emptied += 1,
            found if found == one.len() + two.len() => whole += 1,
            _ => {}
        }
    }
    assert!(
        whole > 50 && whole + emptied < 550,
        "the flips met every kind: {whole} whole, {emptied} emptied"
    );
}

#[test]
fn every_single_byte_of_a_header_matters() {
    let (mut cache, one, two, states) = store_and_files();
    for at in (0..HEADER_BYTES as usize).step_by(7) {
        let mut files = states[1].clone();
        let (path, bytes) = files
            .iter_mut()
            .find(|(path, _)| path.ends_with(format!("{ONE}.0.pool")))
            .unwrap();
        bytes[at] ^= 0x10;
        std::fs::write(&path, &bytes).unwrap();
        put_back(&mut cache, &files);
        assert_eq!(
            use_it(&mut cache, &one, &two),
            two.len(),
            "the first block and all below it, byte {at}"
        );
    }
}

#[test]
fn law_4_truncated_files_are_misses() {
    let (mut cache, one, two, states) = store_and_files();
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    for cut in 0..60 {
        let mut files = states[cut % 2].clone();
        let num_files = files.len();
        let (_, bytes) = &mut files[rng.random_range(0..num_files)];
        let keep = if cut % 5 == 0 {
            0
        } else {
            rng.random_range(0..bytes.len())
        };
        bytes.truncate(keep);
        put_back(&mut cache, &files);
        use_it(&mut cache, &one, &two);
    }
}

#[test]
fn law_4_missing_files_are_misses() {
    let (mut cache, one, two, states) = store_and_files();
    for gone in 0..states[1].len() {
        let mut files = states[1].clone();
        let (path, _) = files.remove(gone);
        put_back(&mut cache, &files);
        let expected = match path.file_name().unwrap().to_str().unwrap() {
            "index.db" => 0,
            name if name.starts_with(&ONE.to_string()) => two.len(),
            _ => one.len(),
        };
        assert_eq!(use_it(&mut cache, &one, &two), expected);
    }
}

#[test]
fn pool_files_of_two_fingerprints_that_changed_places_are_misses() {
    let (mut cache, one, two, states) = store_and_files();
    let mut files = states[1].clone();
    let pools: Vec<usize> = (0..files.len())
        .filter(|i| files[*i].0.extension().is_some_and(|e| e == "pool"))
        .collect();
    let bytes = files[pools[0]].1.clone();
    files[pools[0]].1 = std::mem::replace(&mut files[pools[1]].1, bytes);
    put_back(&mut cache, &files);
    assert_eq!(use_it(&mut cache, &one, &two), 0);
}

#[test]
fn damage_while_the_store_is_open_is_a_miss_too() {
    let (mut cache, one, _, _) = store_and_files();
    cache.reopen(PLENTY);
    cache.store().open_pool(&ONE, FORMAT, "one");
    let index = cache.dir().join("index.db");
    let length = index.metadata().unwrap().len() as usize;
    std::fs::write(&index, vec![0x5A; length]).unwrap();
    std::fs::write(&cache.pool_files()[0], vec![0x5A; 100]).unwrap();
    assert!(!one.iter().any(|block| cache.has(&ONE, block)));
    for seed in 0..3 {
        let fresh = sequence(&ONE, 50 + seed, 64);
        let _ = cache.put(&ONE, &fresh[0]);
    }
    let fresh = sequence(&ONE, 99, 128);
    cache.put_all(&ONE, &fresh);
    assert!(fresh.iter().all(|block| cache.has(&ONE, block)));
}

//! What a crash between two writes leaves, made by hand.

use rusqlite::Connection;
use store::VerifyReport;

use crate::cache::*;

fn index(cache: &Cache) -> Connection {
    Connection::open(cache.dir().join("index.db")).unwrap()
}

#[test]
fn a_slot_written_without_its_row_is_invisible_and_its_space_comes_back() {
    let mut cache = Cache::new(PLENTY);
    let blocks = sequence(&ONE, 1, 64 * 4);
    cache.put_all(&ONE, &blocks);
    cache.store = None;
    index(&cache)
        .execute("DELETE FROM block WHERE slot >= 2", [])
        .unwrap();
    cache.reopen(PLENTY);
    cache.store().open_pool(&ONE, FORMAT, "one");
    assert_eq!(cache.store().blocks(&ONE), blocks[..2]);
    assert!(!cache.has(&ONE, &blocks[2]));
    assert_eq!(
        cache.pool_files()[0].metadata().unwrap().len(),
        2 * SLOT_BYTES
    );
    cache.put_all(&ONE, &blocks);
    assert!(blocks.iter().all(|block| cache.has(&ONE, block)));
}

#[test]
fn a_row_without_slot_bytes_is_a_miss() {
    let mut cache = Cache::new(PLENTY);
    let blocks = sequence(&ONE, 1, 64 * 4);
    cache.put_all(&ONE, &blocks);
    cache.store = None;
    // The file has its length, but the bytes of slot 2 never reached the disk.
    let path = &cache.pool_files()[0];
    let mut bytes = std::fs::read(path).unwrap();
    bytes[2 * SLOT_BYTES as usize..3 * SLOT_BYTES as usize].fill(0);
    std::fs::write(path, bytes).unwrap();
    cache.reopen(PLENTY);
    cache.store().open_pool(&ONE, FORMAT, "one");
    assert_eq!(cache.store().verify(), VerifyReport { checked: 4, bad: 1 });
    assert_eq!(
        cache.store().blocks(&ONE),
        blocks[..2],
        "what hung below went too"
    );
}

#[test]
fn a_row_that_outlived_its_slot_is_a_miss() {
    let mut cache = Cache::new(PLENTY);
    let (old, new) = (sequence(&ONE, 1, 64), sequence(&ONE, 2, 64));
    cache.put_all(&ONE, &old);
    cache.store = None;
    let index_then = std::fs::read(cache.dir().join("index.db")).unwrap();
    cache.reopen(PLENTY);
    cache.store().open_pool(&ONE, FORMAT, "one");
    cache.store().drop_block(&ONE, &old[0].id);
    cache.put_all(&ONE, &new);
    cache.store = None;
    std::fs::write(cache.dir().join("index.db"), index_then).unwrap(); // the last rows went with the power
    cache.reopen(PLENTY);
    cache.store().open_pool(&ONE, FORMAT, "one");
    assert_eq!(cache.store().blocks(&ONE), old);
    assert!(!cache.has(&ONE, &old[0]), "its slot holds another block");
    assert!(cache.store().blocks(&ONE).is_empty());
}

#[test]
fn a_file_that_cannot_be_written_is_a_miss_and_the_store_goes_on() {
    let mut cache = Cache::new(PLENTY);
    let blocks = sequence(&ONE, 1, 64 * 3);
    let obstacle = cache.dir().join(format!("{ONE}.0.pool"));
    std::fs::create_dir(&obstacle).unwrap();
    let batch: Vec<_> = blocks
        .iter()
        .map(|block| (block.clone(), payload(block)))
        .collect();
    assert_eq!(cache.store().put_many(&ONE, &batch), [None, None, None]);
    assert_eq!(
        (
            cache.store().stats().num_blocks,
            cache.store().stats().pools[0].bytes
        ),
        (0, 0)
    );
    std::fs::remove_dir(&obstacle).unwrap();
    cache.put_all(&ONE, &blocks);
    assert!(blocks.iter().all(|block| cache.has(&ONE, block)));
}

#[test]
fn an_index_that_cannot_be_written_costs_the_put_and_nothing_else() {
    let mut cache = Cache::new(PLENTY);
    let blocks = sequence(&ONE, 1, 64 * 3);
    cache.put(&ONE, &blocks[0]).unwrap();
    let connection = index(&cache);
    connection
        .execute_batch("CREATE TRIGGER full BEFORE INSERT ON block BEGIN SELECT RAISE(ABORT, 'the disk is full'); END")
        .unwrap();
    assert_eq!(cache.put(&ONE, &blocks[1]), None);
    assert_eq!(
        cache.store().stats().pools[0].bytes,
        SLOT_BYTES,
        "its slot is given back"
    );
    assert!(cache.has(&ONE, &blocks[0]));
    connection.execute_batch("DROP TRIGGER full").unwrap();
    cache.put_all(&ONE, &blocks);
    assert!(blocks.iter().all(|block| cache.has(&ONE, block)));
}

#[test]
fn an_index_of_another_version_is_emptied() {
    let mut cache = Cache::new(PLENTY);
    let blocks = sequence(&ONE, 1, 64 * 3);
    cache.put_all(&ONE, &blocks);
    cache.store = None;
    index(&cache)
        .pragma_update(None, "user_version", 3)
        .unwrap();
    cache.reopen(PLENTY);
    assert!(cache.store().open_pool(&ONE, FORMAT, "one"));
    assert!(cache.store().blocks(&ONE).is_empty() && cache.pool_files().is_empty());
    cache.put_all(&ONE, &blocks);
}

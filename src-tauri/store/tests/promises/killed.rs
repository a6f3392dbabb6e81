//! A block store whose process is killed again and again, in the middle of whatever it does.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use store::{BlockStore, Budget};

use crate::cache::{FORMAT, ONE, SLOT_BYTES, get, payload, sequence};
use crate::kill::{FOLDER, child_folder};

const SEED: &str = "REPRISE_TEST_CHILD_SEED";
const KILLS: u64 = 25;
/// Over all processes, at least.
const OPERATIONS: usize = 1_000;
/// Little enough that blocks are evicted all the time.
const BUDGET: Budget = Budget::Bytes(120 * SLOT_BYTES);

/// One operation of those that the engine asks of a store.
fn operate(store: &mut BlockStore, random: &mut ChaCha8Rng, tick: u64) {
    let (seed, len) = (random.random_range(0..6), random.random_range(1..64 * 12));
    let chain = sequence(&ONE, seed, len);
    let leaf = format!("leaf {seed}");
    match random.random_range(0..10) {
        0..5 => {
            let batch: Vec<_> = chain.iter().map(|b| (b.clone(), payload(b))).collect();
            store.put_many(&ONE, &batch);
            store.set_ref(&leaf, &ONE, &chain[chain.len() - 1].id);
        }
        5 => store.drop_ref(&leaf),
        6 => store.drop_block(&ONE, &chain[chain.len() / 2].id),
        7 => {
            store.gc(&HashSet::new());
        }
        8 => {
            let ids: Vec<_> = chain.iter().map(|block| block.id).collect();
            store.touch(&ONE, &ids, tick);
        }
        _ => {
            let mut out = vec![0; FORMAT.payload_bytes()];
            get(store, &ONE, &chain[0], &mut out);
        }
    }
}

#[test]
#[ignore = "the other process of what_a_killed_store_leaves_is_whole"]
fn operate_until_killed() {
    let seed = std::env::var(SEED).unwrap().parse().unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut store = BlockStore::open(&child_folder().join("kv"), BUDGET);
    assert!(store.open_pool(&ONE, FORMAT, "one"));
    for tick in 1.. {
        operate(&mut store, &mut random, seed * 1_000_000 + tick);
        println!("done");
        std::io::stdout().flush().unwrap();
    }
}

#[test]
fn what_a_killed_store_leaves_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let (mut operations, mut checked) = (0, 0);
    for seed in 1..=KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::operate_until_killed"])
            .args(["--nocapture", "--ignored"])
            .env(FOLDER, folder.path())
            .env(SEED, seed.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let least = OPERATIONS / KILLS as usize;
        let mut wanted = random.random_range(least..least + 20);
        while wanted > 0 {
            let line = lines.next().expect("the child ended early").unwrap();
            wanted -= usize::from(line.ends_with("done"));
            operations += usize::from(line.ends_with("done"));
        }
        // Somewhere in the next operation.
        std::thread::sleep(std::time::Duration::from_micros(
            random.random_range(0..3_000),
        ));
        child.kill().unwrap();
        child.wait().unwrap();

        let mut store = BlockStore::open(&folder.path().join("kv"), BUDGET);
        assert!(store.open_pool(&ONE, FORMAT, "one"));
        let report = store.verify();
        assert_eq!(report.bad, 0, "kill {seed}: {report:?}");
        checked += report.checked;
    }
    assert!(operations >= OPERATIONS);
    assert!(
        checked > KILLS * 20,
        "{checked} blocks were there to be checked"
    );
}

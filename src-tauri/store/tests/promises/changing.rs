//! Encryption turned on and off by a process that is killed again and again, in the middle of whatever it does.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use store::{Block, BlockStore, Budget, History, Privacy};

use crate::cache::{FORMAT, ONE, PLENTY, get, payload, sequence};
use crate::kill::{FOLDER, child_folder};
use crate::privacy::{NOWHERE, found, secret, talk, told, words};

const KILLS: u64 = 30;
/// On a busy machine kills meet changes less often; then there are more of them.
const MOST_KILLS: u64 = 400;
const PASSPHRASE: &str = "open sesame";

fn open(folder: &Path) -> (History, BlockStore) {
    let path = folder.join("history.db");
    let history = History::unlock(&path, Some(&words(PASSPHRASE))).unwrap();
    let budget = Budget::Bytes(PLENTY);
    let store = BlockStore::open_under(&folder.join("kv"), budget, history.seal());
    (history, store)
}

/// Goes on with a change, or begins one; says when a part of it is done.
fn change(history: &mut History, store: &mut BlockStore, done: fn()) {
    match history.privacy() {
        Privacy::Off => history.protect(&secret(PASSPHRASE)).unwrap(),
        Privacy::On => history.unprotect().unwrap(),
        Privacy::TurningOn | Privacy::TurningOff => {}
    }
    done();
    store.set_seal(history.seal());
    done();
    while store.rewrite_some() > 0 {}
    done();
    history.finish_privacy().unwrap();
    store.set_seal(history.seal());
    done();
}

#[test]
#[ignore = "the other process of whenever_a_change_is_killed_no_word_is_lost_and_it_goes_on"]
fn change_until_killed() {
    let (mut history, mut store) = open(&child_folder());
    let done = || {
        println!("done");
        std::io::stdout().flush().unwrap();
    };
    done();
    loop {
        change(&mut history, &mut store, done);
    }
}

/// Has a process change encryption on and off, and kills it when it has done `num_parts` and some time of the next.
fn kill_after(folder: &Path, num_parts: usize, wait: Duration) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "changing::change_until_killed"])
        .args(["--nocapture", "--ignored"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut done = lines.filter(|line| line.as_ref().unwrap().ends_with("done"));
    let num_done = done.by_ref().take(num_parts).count();
    assert_eq!(num_done, num_parts, "the child ended early");
    std::thread::sleep(wait);
    child.kill().unwrap();
    child.wait().unwrap();
}

fn assert_blocks(store: &mut BlockStore, blocks: &[Block]) {
    assert!(store.open_pool(&ONE, FORMAT, "one"));
    assert_eq!(store.blocks(&ONE), blocks);
    let mut out = vec![0; FORMAT.payload_bytes()];
    for block in blocks {
        assert!(get(store, &ONE, block, &mut out).is_some());
        assert!(block.tokens.len() < 64 || out == payload(block));
    }
}

#[test]
fn whenever_a_change_is_killed_no_word_is_lost_and_it_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let blocks = sequence(&ONE, 1, 64 * 60 + 7);
    let (mut history, mut store) = open(folder.path());
    talk(&mut history);
    assert!(store.open_pool(&ONE, FORMAT, "one"));
    for block in &blocks {
        store.put(&ONE, block, &payload(block)).unwrap();
    }
    let said = told(&history);
    drop((store, history));

    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut states = [0; 4];
    let has_met_all = |states: &[i32; 4]| {
        states[Privacy::TurningOn as usize] > 3 && states[Privacy::TurningOff as usize] > 3
    };
    for kill in 0..MOST_KILLS {
        if kill >= KILLS && has_met_all(&states) {
            break;
        }
        let num_parts = random.random_range(1..=8);
        let wait = Duration::from_micros(random.random_range(0..60_000));
        kill_after(folder.path(), num_parts, wait);
        let (mut history, mut store) = open(folder.path());
        assert_eq!(
            told(&history),
            said,
            "kill {kill} {wait:?} after {num_parts}"
        );
        assert_blocks(&mut store, &blocks);
        states[history.privacy() as usize] += 1;
        // Sometimes the next one finds it as the kill left it.
        if kill % 3 == 0 {
            continue;
        }
        if matches!(history.privacy(), Privacy::TurningOn | Privacy::TurningOff) {
            change(&mut history, &mut store, || ());
        }
        if history.privacy() == Privacy::Off {
            change(&mut history, &mut store, || ());
        }
        assert_eq!(history.privacy(), Privacy::On);
        assert_eq!(told(&history), said);
        assert_blocks(&mut store, &blocks);
        drop((store, history));
        assert_eq!(found(folder.path()), NOWHERE);
        if kill % 2 == 0 {
            let (mut history, mut store) = open(folder.path());
            change(&mut history, &mut store, || ());
            assert_eq!(history.privacy(), Privacy::Off);
        }
    }
    assert!(has_met_all(&states), "kills met changes: {states:?}");
}

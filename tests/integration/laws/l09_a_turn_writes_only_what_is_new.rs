//! Law 9: bytes written ≤ new tokens' KV + one tail block.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{Cache, Session};
use models::{DigestCache, Model};
use store::{BlockStore, Budget};
use tests::Subject;

/// What the store may add to each block it writes, for the block's header.
const HEADER_BYTES: u64 = 4096;

/// A cache over a new store in `home`.
fn cache(home: &Path, budget: Budget) -> Cache {
    Subject::TINY.install(home);
    let path = home.join("tiny-1.gguf");
    let model = Model::load(&path, kernels::physical_cores(), &DigestCache::new(None));
    let store = BlockStore::open(&home.join("kv"), budget);
    let store = Arc::new(Mutex::new(store));
    let model = Arc::new(model.expect("model"));
    Cache::open(model, 64 << 20, store).expect("cache")
}

/// A session over a prompt of `num_tokens`, and of a reply as long.
fn turn(cache: &mut Cache, num_tokens: u32) -> Session {
    let prompt: Vec<u32> = (0..num_tokens).map(|i| i % 300 + 3).collect();
    let mut session = Session::new();
    session
        .sync(cache, &prompt, &mut |_, _| ControlFlow::Continue(()))
        .expect("sync");
    for token in prompt {
        session.advance(cache, &[token]).expect("advance");
    }
    session
}

#[test]
fn nothing_is_written_before_a_turn_has_ended_and_then_all_of_it() {
    let home = tempfile::tempdir().expect("folder");
    let mut cache = cache(home.path(), Budget::Bytes(1 << 30));
    let session = turn(&mut cache, 150);
    std::thread::sleep(Duration::from_millis(100)); // would it be, the writer had the time
    assert_eq!(cache.bytes_written(), 0, "four blocks are whole");
    session.close(&mut cache);
    while cache.save_some() {}
    let bytes = cache.model().kv_layout().bytes_per_token() as u64 * 300;
    assert!(cache.bytes_written() >= bytes);
}

#[test]
fn what_does_not_fit_into_the_budget_is_not_tried() {
    let home = tempfile::tempdir().expect("folder");
    let mut cache = cache(home.path(), Budget::Bytes(0));
    turn(&mut cache, 100).close(&mut cache);
    assert!(!cache.save_some(), "nothing waits");
    cache.flush();
    assert_eq!(cache.bytes_written(), 0);
    assert!(turn(&mut cache, 100).close(&mut cache).is_some());
    cache.check(&[]).expect("counts");
}

#[test]
fn a_turn_writes_only_what_is_new() {
    let home = tempfile::tempdir().expect("folder");
    let mut cache = cache(home.path(), Budget::Bytes(1 << 30));
    let layout = cache.model().kv_layout();
    let mut prompt: Vec<u32> = Vec::new();
    let mut written = 0;
    for new_tokens in [1, 62, 1, 1, 63, 64, 65, 30, 100, 200, 7, 128, 40] {
        let start = prompt.len() as u32;
        prompt.extend((0..new_tokens).map(|i| (start + i) % 300 + 3));
        let mut session = Session::new();
        session
            .sync(&mut cache, &prompt, &mut |_, _| ControlFlow::Continue(()))
            .expect("sync");
        session.close(&mut cache);
        cache.flush();
        let bytes = cache.bytes_written() - written;
        written = cache.bytes_written();
        let blocks = u64::from(new_tokens).div_ceil(64) + 1;
        let allowed =
            u64::from(new_tokens) * layout.bytes_per_token() as u64 + layout.slot_bytes() as u64;
        assert!(
            bytes <= allowed + blocks * HEADER_BYTES,
            "{new_tokens} new tokens of {}: {bytes} bytes written, {allowed} allowed beside headers",
            prompt.len()
        );
        assert!(
            bytes >= u64::from(new_tokens) * layout.bytes_per_token() as u64,
            "what is new is written"
        );
    }
}

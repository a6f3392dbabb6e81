//! The host tier: what makes way in the working pool is still there, exact, and its budget is kept.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};

use engine::{Cache, Session, Synced};
use models::Model;
use store::{BlockStore, Budget};

use crate::random::{cold, model};

/// Slots of the working pool.
const SLOTS: u64 = 8;

/// A cache that keeps so many evicted blocks, and has no disk where `kv` is a file.
fn cache(kv: &Path, model: &Arc<Model>, host_slots: u64) -> Cache {
    let slot_bytes = model.kv_layout().slot_bytes() as u64;
    let store = Arc::new(Mutex::new(BlockStore::open(kv, Budget::Bytes(1 << 30))));
    let mut cache = Cache::open(Arc::clone(model), SLOTS * slot_bytes, store).expect("cache");
    cache.keep_evicted(host_slots * slot_bytes).expect("tier");
    cache
}

fn sync(cache: &mut Cache, prompt: &[u32]) -> Synced {
    let mut session = Session::new();
    let synced = session.sync(cache, prompt, &mut |_, _| ControlFlow::Continue(()));
    session.close(cache);
    cache.check(&[]).expect("counts");
    synced.expect("sync")
}

/// `num_blocks` whole blocks and one token.
fn text(first: u32, num_blocks: u32) -> Vec<u32> {
    let rest = (1..num_blocks * 64 + 1).map(|i| i * first % 29 + 3);
    std::iter::once(first).chain(rest).collect()
}

fn nowhere(folder: &Path) -> std::path::PathBuf {
    let kv = folder.join("kv");
    std::fs::write(&kv, "a file where a folder should be").expect("file");
    kv
}

#[test]
fn what_made_way_comes_back_from_memory_with_the_bits_it_had() {
    let folder = tempfile::tempdir().expect("folder");
    let (model, kv) = (model(folder.path()), nowhere(folder.path()));
    let (one, other) = (text(5, 4), text(7, 6));
    for (host_slots, restored) in [(8, 256), (4, 256), (2, 192), (0, 0)] {
        for in_parts in [false, true] {
            let mut cache = cache(&kv, &model, host_slots);
            if in_parts {
                cache.read_in_parts(1, || ());
            }
            sync(&mut cache, &one);
            sync(&mut cache, &other);
            let left = cache.resident_tokens(&one) as u32;
            assert!(left < 256, "it made way");
            let again = sync(&mut cache, &one);
            let prefill = again.prefill;
            let want = match host_slots {
                0 => left,
                _ => restored.max(left),
            };
            assert_eq!(prefill.resident + prefill.restored, want, "{host_slots}");
            assert_eq!(again.logits.expect("logits"), cold(&model, &one));
            assert!(cache.num_in_host() as u64 <= host_slots, "the budget");
        }
    }
}

#[test]
fn what_is_pinned_makes_no_way_for_what_is_not() {
    let folder = tempfile::tempdir().expect("folder");
    let (model, kv) = (model(folder.path()), nowhere(folder.path()));
    // As much as makes way of what is looked at.
    let mut cache = cache(&kv, &model, 3);
    let looked_at = text(5, 4);
    sync(&mut cache, &looked_at);
    cache.pin_open(&looked_at);
    // Three of its blocks make way, and later what pushed them out, which stays nowhere.
    for first in [7, 11, 13, 17] {
        sync(&mut cache, &text(first, 6));
        assert_eq!(cache.num_in_host_of(&looked_at), 3);
    }
    cache.pin_open(&[]);
    sync(&mut cache, &text(19, 6));
    assert!(cache.num_in_host_of(&looked_at) < 3);
}

#[test]
fn what_goes_from_memory_before_it_was_saved_is_on_disk() {
    let folder = tempfile::tempdir().expect("folder");
    let (model, kv) = (model(folder.path()), folder.path().join("kv"));
    let prompts: Vec<Vec<u32>> = [5, 7, 11, 13].map(|first| text(first, 6)).into();
    let mut cache = cache(&kv, &model, 3);
    // Nothing is saved but what has to go.
    prompts
        .iter()
        .for_each(|prompt| drop(sync(&mut cache, prompt)));
    cache.keep_evicted(0).expect("no tier");
    cache.check(&[]).expect("counts");
    for prompt in &prompts {
        let again = sync(&mut cache, prompt);
        assert_eq!(again.prefill.computed, 1, "{:?}", again.prefill);
        assert_eq!(again.logits.expect("logits"), cold(&model, prompt));
    }
}

#[test]
fn a_tail_that_a_longer_block_replaced_is_kept_nowhere() {
    let folder = tempfile::tempdir().expect("folder");
    let (model, kv) = (model(folder.path()), nowhere(folder.path()));
    let mut cache = cache(&kv, &model, 16);
    let text = text(5, 3);
    sync(&mut cache, &text[..100]);
    sync(&mut cache, &self::text(7, 6));
    assert_eq!(cache.num_in_host_of(&text[..100]), 1);
    // It comes back and becomes a whole block; two of the other's make way.
    let again = sync(&mut cache, &text[..150]);
    assert_eq!((again.prefill.restored, again.prefill.computed), (36, 50));
    assert_eq!(cache.num_in_host(), 2);
}

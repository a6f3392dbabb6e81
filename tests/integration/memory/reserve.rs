//! A model whose pool takes the whole context at once.

use std::sync::{Arc, Mutex};

use engine::machine::Machine;
use engine::{Cache, Error, MemoryLimits};
use models::tiny::{self, TinyModel};
use models::{Architecture, DigestCache, Model};
use store::{BlockStore, Budget};
use tests::{Chat, Subject, prose};

/// Bytes of a block of the default model, in q8.
const BLOCK: u64 = 64 * 12_240;
/// Blocks of its context of 8 192 tokens, and one to copy from.
const BLOCKS: u64 = 8192 / 64 + 1;

fn reserved(chat: &Chat) -> u64 {
    chat.engine().memory().expect("memory").pool.reserved_bytes
}

#[test]
fn the_whole_context_is_taken_at_once_given_back_and_taken_again() {
    let mut chat = Chat::new(Subject::Real);
    let dynamic = chat.say(&prose(0, 60));
    assert!(reserved(&chat) < BLOCKS * BLOCK);
    let name = chat.engine().loaded().expect("engine").expect("model").name;
    chat.engine().reserve(name, true).expect("decided");
    let taken = reserved(&chat);
    assert!(taken >= BLOCKS * BLOCK, "{taken} before a word is said");
    assert!(chat.engine().memory().expect("memory").reserves_context);
    // The same tokens, and no more memory.
    let message = chat.user_messages().pop().expect("message");
    assert_eq!(chat.regenerate(&message).ids, dynamic.ids);
    assert_eq!(reserved(&chat), taken);
    chat.engine().release().expect("release");
    assert_eq!(reserved(&chat), 0);
    chat.say("And then?");
    assert_eq!(reserved(&chat), taken);
}

#[test]
fn a_context_that_does_not_fit_is_refused_when_the_model_is_loaded_with_the_numbers() {
    let mut chat = Chat::new(Subject::Real);
    let limits = |blocks| MemoryLimits::pool(blocks * BLOCK);
    chat.engine().limit(limits(BLOCKS - 1)).expect("limits");
    chat.engine().load(None).expect("load");
    let name = chat.engine().loaded().expect("engine").expect("model").name;
    let refused = chat.engine().reserve(name.clone(), true);
    assert_eq!(refused.expect_err("too little").code(), "memory_full");
    chat.say("Hello.");
    assert!(reserved(&chat) < 20 << 20, "nothing was decided");

    chat.engine().limit(limits(BLOCKS)).expect("limits");
    chat.engine().reserve(name.clone(), true).expect("decided");
    chat.engine().limit(limits(BLOCKS - 1)).expect("limits");
    let error = chat.engine().load(None).expect_err("too little");
    assert_eq!(error.code(), "memory_full");
    let mib = |blocks: u64| format!("{} MiB", (blocks * BLOCK).div_ceil(1 << 20));
    let text = error.to_string();
    assert!(
        text.contains(&mib(BLOCKS)) && text.contains(&mib(BLOCKS - 1)),
        "{text}"
    );
    chat.engine().limit(limits(BLOCKS)).expect("limits");
    chat.engine().load(None).expect("just enough");
    chat.engine().limit(limits(10)).expect("limits");
    chat.engine().reserve(name, false).expect("decided");
    chat.say("Hello again.");
}

#[test]
fn a_larger_context_is_allowed_by_the_whole_plan_and_not_by_the_pool_alone() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("tiny.gguf");
    tiny::write(&path, &TinyModel::new(Architecture::Llama, 1)).expect("tiny model");
    let model = Model::load(&path, 1, &DigestCache::new(None)).expect("model");
    let store = BlockStore::open(&folder.path().join("kv"), Budget::Bytes(1 << 20));
    let cache = Cache::open(Arc::new(model), 1 << 16, Arc::new(Mutex::new(store))).expect("cache");
    let room = |bytes| {
        Some(Machine {
            total_bytes: 2 * bytes,
            available_bytes: bytes,
            process_bytes: 0,
        })
    };
    let Err(Error::MemoryFull {
        needed_bytes,
        free_bytes: 1024,
    }) = cache.larger_context(room(1024))
    else {
        panic!("refused with the numbers")
    };
    let context = cache.model().config().context_length as u64;
    let pool = context * cache.model().info().kv_bytes_per_token;
    assert!(
        needed_bytes > pool + (12 << 20),
        "{needed_bytes} with the program"
    );
    // Room for the pool is not enough.
    assert!(cache.larger_context(room(pool + pool / 8)).is_err());
    cache.larger_context(room(2 * needed_bytes)).expect("room");
    cache.larger_context(None).expect("nobody knows");
}

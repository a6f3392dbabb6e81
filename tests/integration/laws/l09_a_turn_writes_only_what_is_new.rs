//! Law 9: bytes written ≤ new tokens' KV + one tail block.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use candle_core::Device;
use engine::{Cache, Session};
use models::{DigestCache, Model};
use store::{BlockStore, Budget};
use tests::Subject;

/// What the store may add to each block it writes, for the block's header.
const HEADER_BYTES: u64 = 4096;

#[test]
fn a_turn_writes_only_what_is_new() {
    let home = tempfile::tempdir().expect("folder");
    Subject::TINY.install(home.path());
    let path = home.path().join("tiny-1.gguf");
    let model = Arc::new(
        Model::load(&path, kernels::physical_cores(), &DigestCache::new(None)).expect("model"),
    );
    let layout = model.kv_layout();
    let store = BlockStore::open(&home.path().join("kv"), Budget::Bytes(1 << 30));
    let mut cache =
        Cache::open(model, 64 << 20, Arc::new(Mutex::new(store)), &Device::Cpu).expect("cache");
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

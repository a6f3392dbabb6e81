//! Computing what is new beside reading what is on disk, a layer waiting only for the same layer.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{Cache, PREFILL_STEP_TOKENS, Session, Synced};
use kernels::Team;
use models::tiny::{self, TinyModel};
use models::{Architecture, DigestCache, LoadOptions, Model};
use store::{BlockStore, Budget, Prefill};

const LAYERS: usize = 6;
/// Whole blocks on disk, and tokens of a last one that is not whole.
const BLOCKS: usize = 9;
const TAIL: usize = 20;

/// A conversation on disk, read by a model with so many threads.
struct Saved {
    folder: tempfile::TempDir,
    model: Arc<Model>,
    text: Vec<u32>,
}

impl Saved {
    fn new(threads: usize) -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("tiny.gguf");
        let small = TinyModel {
            num_layers: LAYERS,
            head_dim: 32,
            ..TinyModel::new(Architecture::Qwen3, 1)
        };
        tiny::write(&path, &small).expect("tiny model");
        let (digests, options) = (DigestCache::new(None), LoadOptions::default());
        let model = Model::load_with(&path, Team::new(threads), &digests, options).expect("model");
        let saved = Self {
            folder,
            model: Arc::new(model),
            text: tokens(1, BLOCKS * 64 + TAIL),
        };
        let mut cache = saved.cache(&saved.folder.path().join("kv"));
        let mut session = Session::new();
        let all = &mut |_: &Prefill, _| ControlFlow::Continue(());
        session.sync(&mut cache, &saved.text, all).expect("sync");
        session.close(&mut cache);
        cache.flush();
        saved
    }

    fn cache(&self, kv: &Path) -> Cache {
        let store = BlockStore::open(kv, Budget::Bytes(1 << 30));
        let store = Arc::new(Mutex::new(store));
        Cache::open(Arc::clone(&self.model), 64 << 20, store).expect("cache")
    }

    /// A new cache over a copy of what is on disk, to which `damage` was done.
    fn copy(&self, damage: impl FnOnce(&Path)) -> (tempfile::TempDir, Cache) {
        let copy = tempfile::tempdir().expect("folder");
        for entry in fs::read_dir(self.folder.path().join("kv")).expect("kv") {
            let entry = entry.expect("entry");
            fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("copy");
        }
        damage(&pool_file(copy.path()));
        let cache = self.cache(copy.path());
        (copy, cache)
    }

    /// The first `keep` tokens of the text, and new ones after them.
    fn prompt(&self, keep: usize, new: usize) -> Vec<u32> {
        [&self.text[..keep], &tokens(2, new)].concat()
    }

    fn cold(&self, prompt: &[u32]) -> Option<Vec<f32>> {
        let empty = tempfile::tempdir().expect("folder");
        sync(&mut self.cache(empty.path()), prompt).logits
    }
}

fn tokens(seed: u32, count: usize) -> Vec<u32> {
    (0..count as u32)
        .map(|i| (i * i * 7 + i * 3 + seed * 11) % 290 + 3)
        .collect()
}

fn pool_file(kv: &Path) -> PathBuf {
    let mut files = fs::read_dir(kv).expect("kv").flatten();
    let is_pool = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "pool");
    files
        .find_map(|entry| Some(entry.path()).filter(is_pool))
        .expect("a pool file")
}

/// A turn that keeps what it has read; counts are right with its table, and after it.
fn sync(cache: &mut Cache, prompt: &[u32]) -> Synced {
    let mut session = Session::new();
    let synced = session.sync(cache, prompt, &mut |_, _| ControlFlow::Continue(()));
    cache.check(&[session.table()]).expect("counts");
    session.close(cache);
    cache.check(&[]).expect("counts");
    synced.expect("sync")
}

/// Who reads, and how often a part was read.
#[derive(Default)]
struct Readers {
    names: Mutex<HashSet<String>>,
    parts: AtomicUsize,
}

impl Readers {
    /// Lets `cache` read layer by layer, with `then` after each part.
    fn follow(cache: &mut Cache, then: impl Fn(usize) + Send + Sync + 'static) -> Arc<Readers> {
        let readers = Arc::new(Readers::default());
        let noted = Arc::clone(&readers);
        cache.read_in_parts(1, move || {
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            noted.names.lock().expect("names").insert(name);
            then(noted.parts.fetch_add(1, Ordering::Relaxed));
        });
        readers
    }

    /// Whether blocks were read by others than the thread that computes.
    fn were_beside(&self) -> bool {
        self.names.lock().expect("names").contains("restore")
    }

    fn parts(&self) -> usize {
        self.parts.load(Ordering::Relaxed)
    }
}

/// Holds each part back for long enough that a layer which did not wait for it would be computed without it.
fn hold_back(_: usize) {
    std::thread::sleep(Duration::from_micros(500));
}

#[test]
fn law_1_what_is_computed_beside_reading_is_the_same_bit_for_bit() {
    let whole = BLOCKS * 64;
    for threads in 1..=3 {
        let saved = Saved::new(threads);
        for (keep, new) in [
            (whole + TAIL, 1),
            (whole + TAIL, 30),
            (whole + TAIL, 3 * PREFILL_STEP_TOKENS),
            (whole, 5),
            (64 * 5 + 17, 200),
            (64, 100),
        ] {
            let prompt = saved.prompt(keep, new);
            let (_kv, mut plain) = saved.copy(|_| ());
            let plain = sync(&mut plain, &prompt);
            let (_kv, mut cache) = saved.copy(|_| ());
            let readers = Readers::follow(&mut cache, hold_back);
            let beside = sync(&mut cache, &prompt);
            assert!(readers.were_beside());
            let blocks = keep.div_ceil(64);
            assert_eq!(readers.parts(), blocks * LAYERS, "every layer once");
            assert_eq!(beside.prefill, plain.prefill, "{keep} and {new}");
            assert_eq!(beside.prefill.restored as usize, keep);
            assert!(beside.restore_ms > 0.0);
            assert!(beside.logits == plain.logits, "{keep} and {new}");
            assert!(beside.logits == saved.cold(&prompt), "{keep} and {new}");
            // It has become the pool's, and is not read again.
            let again = sync(&mut cache, &prompt);
            assert_eq!((again.prefill.restored, again.prefill.computed), (0, 1));
            assert!(again.logits == beside.logits);
        }
    }
}

#[test]
fn law_4_a_bad_block_that_is_found_while_computing_shortens_the_chain_and_leaves_no_trace() {
    let saved = Saved::new(2);
    let prompt = saved.prompt(BLOCKS * 64 + TAIL, 40);
    let cold = saved.cold(&prompt);
    let slot_bytes = fs::metadata(pool_file(&saved.folder.path().join("kv")))
        .expect("size")
        .len()
        / (BLOCKS as u64 + 1);
    let payload_bytes = saved.model.kv_layout().slot_bytes() as u64;
    let payload_at = slot_bytes - payload_bytes.next_multiple_of(4096);
    let flip = |pool: &Path, at: u64| {
        let mut bytes = fs::read(pool).expect("read");
        bytes[at as usize] ^= 1;
        fs::write(pool, bytes).expect("write");
    };
    let cut = |pool: &Path, len: u64| {
        let file = OpenOptions::new().write(true).open(pool).expect("open");
        file.set_len(len).expect("cut");
    };
    for bad in [0, 1, 4, BLOCKS as u64 - 1] {
        let slot = bad * slot_bytes;
        // The header, the first layer, the last; the file cut in the last layer.
        for (what, at) in [
            ("flipped", slot + 60),
            ("flipped", slot + payload_at),
            ("flipped", slot + payload_at + payload_bytes - 1),
            ("cut", slot + payload_at + payload_bytes - 1),
        ] {
            let (_kv, mut cache) = saved.copy(|pool| match what {
                "flipped" => flip(pool, at),
                _ => cut(pool, at),
            });
            let readers = Readers::follow(&mut cache, hold_back);
            let synced = sync(&mut cache, &prompt);
            let what = format!("block {bad} {what} at {at}");
            assert!(readers.were_beside() || bad == 0, "{what}");
            assert_eq!(u64::from(synced.prefill.restored), bad * 64, "{what}");
            assert_eq!(synced.prefill.resident, 0, "{what}");
            let all = synced.prefill.restored + synced.prefill.computed;
            assert_eq!(all as usize, prompt.len(), "{what}");
            assert!(synced.logits == cold, "{what}");
            let again = sync(&mut cache, &prompt);
            assert_eq!((again.prefill.restored, again.prefill.computed), (0, 1));
            assert!(again.logits == cold, "{what}");
        }
    }
    let (_kv, mut cache) = saved.copy(|_| ());
    fs::remove_file(pool_file(_kv.path())).expect("remove");
    Readers::follow(&mut cache, hold_back);
    let synced = sync(&mut cache, &prompt);
    assert_eq!(synced.prefill.computed as usize, prompt.len());
    assert!(synced.logits == cold, "the file is gone");
}

#[test]
fn law_4_a_reader_that_panics_while_computing_is_a_miss_and_hangs_nobody() {
    let saved = Saved::new(2);
    let prompt = saved.prompt(BLOCKS * 64, 40);
    let cold = saved.cold(&prompt);
    // In the first layer, in the middle, at the very end.
    for part in [0, BLOCKS * LAYERS / 2, BLOCKS * LAYERS - 1] {
        let (_kv, mut cache) = saved.copy(|_| ());
        let readers = Readers::follow(&mut cache, move |read| {
            hold_back(read);
            assert!(read != part, "on purpose");
        });
        let synced = sync(&mut cache, &prompt);
        assert!(readers.were_beside());
        assert!((synced.prefill.restored as usize) < BLOCKS * 64, "{part}");
        assert!(synced.logits == cold, "part {part}");
    }
}

#[test]
fn a_stop_before_or_beside_reading_leaves_every_count_right() {
    let saved = Saved::new(2);
    let prompt = saved.prompt(BLOCKS * 64 + TAIL, 2 * PREFILL_STEP_TOKENS);
    let (_kv, mut cache) = saved.copy(|_| ());
    Readers::follow(&mut cache, hold_back);
    let mut stop_after = |steps: usize, told: &mut Vec<Prefill>| {
        let mut session = Session::new();
        let synced = session.sync(&mut cache, &prompt, &mut |prefill, _| {
            told.push(*prefill);
            match told.len() > steps {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        let synced = synced.expect("sync");
        cache.check(&[session.table()]).expect("counts");
        let length = session.tokens().len();
        session.close(&mut cache);
        cache.check(&[]).expect("counts");
        assert!(synced.logits.is_none());
        (synced.prefill, length)
    };
    // Only what is copied is read before the first step.
    let mut told = Vec::new();
    assert_eq!(stop_after(0, &mut told), (Prefill::default(), 0));
    assert_eq!(told[0].restored as usize, TAIL, "{told:?}");
    let mut told = Vec::new();
    let (prefill, length) = stop_after(1, &mut told);
    let computed = length - BLOCKS * 64 - TAIL;
    assert_eq!(length % PREFILL_STEP_TOKENS, 0);
    assert_eq!(prefill.computed as usize, computed);
    assert_eq!(
        (prefill.restored + prefill.resident) as usize,
        BLOCKS * 64 + TAIL
    );
    assert_eq!(told[1], prefill, "{told:?}");
    let synced = sync(&mut cache, &prompt);
    assert_eq!(
        synced.prefill.resident as usize, length,
        "nothing is read again"
    );
    assert!(synced.logits == saved.cold(&prompt));
}

#[test]
fn law_7_side_work_beside_reading_takes_no_count_from_the_turn() {
    let saved = Saved::new(1);
    let prompt = saved.prompt(BLOCKS * 64, 40);
    let (_kv, mut cache) = saved.copy(|_| ());
    let readers = Readers::follow(&mut cache, hold_back);
    let mut aside = Session::aside();
    let all = &mut |_: &Prefill, _| ControlFlow::Continue(());
    let synced = aside.sync(&mut cache, &prompt, all).expect("sync");
    assert!(readers.were_beside());
    assert_eq!(synced.prefill.restored as usize, BLOCKS * 64);
    aside.abandon(&mut cache);
    cache.check(&[]).expect("counts");
    let turn = sync(&mut cache, &prompt);
    assert_eq!(turn.prefill, synced.prefill);
    assert!(turn.logits == synced.logits);
}

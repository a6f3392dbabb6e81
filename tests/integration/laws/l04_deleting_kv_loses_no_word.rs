//! Law 4: a missing, truncated, bit-flipped or foreign block is a miss, never an error and never a wrong token.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use engine::{Cache, Session};
use models::{DigestCache, Model};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use store::{BlockStore, Budget};
use tests::{Chat, Outcome, Subject, prose};

/// Damaged copies that are tried, in groups over one engine start each.
const DAMAGED_PLACES: usize = 600;

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path))
        } else {
            found.push(path)
        }
    }
    found.sort();
    found
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("folder");
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).expect("below"));
        fs::create_dir_all(target.parent().expect("parent")).expect("folder");
        fs::copy(&file, target).expect("copy");
    }
}

/// A conversation on disk, and the answer that a run without cache gives to the next message.
struct Saved {
    home: tempfile::TempDir,
    conversation: String,
    cold: Outcome,
}

impl Saved {
    fn new() -> Self {
        let mut chat = Chat::new(Subject::TINY);
        chat.say(&prose(0, 120));
        chat.say(&prose(1, 120));
        let mut cold = chat.without_cache();
        chat.stop();
        let home = tempfile::tempdir().expect("folder");
        copy_folder(chat.home(), home.path());
        Self {
            home,
            conversation: chat.conversation.to_string(),
            cold: cold.say("And then?"),
        }
    }

    /// The next answer after `damage` was done to a copy of the folder's `kv`.
    fn answer(&self, damage: impl FnOnce(&Path)) -> Outcome {
        let home = tempfile::tempdir().expect("folder");
        copy_folder(self.home.path(), home.path());
        damage(&home.path().join("kv"));
        let mut chat = Chat::resume(Subject::TINY, home.path(), &self.conversation);
        let answer = chat.say("And then?");
        // What was damaged has been replaced: the next turn finds a whole chain.
        let again = chat.regenerate(&answer.message);
        assert_eq!((again.prefill.computed, &again.ids), (1, &answer.ids));
        answer
    }

    fn assert_cold_answer(&self, answer: &Outcome, what: &str) {
        assert_eq!(answer.ids, self.cold.ids, "{what}");
        assert_eq!(answer.text, self.cold.text, "{what}");
    }
}

#[test]
fn deleting_kv_loses_no_word() {
    let saved = Saved::new();
    let whole = saved.answer(|_| ());
    assert!(
        whole.prefill.restored > 100,
        "the undamaged folder restores: {:?}",
        whole.prefill
    );
    saved.assert_cold_answer(&whole, "undamaged");
    let deleted = saved.answer(|kv| fs::remove_dir_all(kv).expect("remove kv"));
    saved.assert_cold_answer(&deleted, "kv deleted");
    assert_eq!(deleted.prefill.computed, deleted.prompt_tokens);
}

#[test]
fn each_missing_truncated_or_emptied_file_is_a_miss() {
    let saved = Saved::new();
    let kv = saved.home.path().join("kv");
    for file in files(&kv) {
        let name = file.strip_prefix(&kv).expect("below").to_owned();
        let size = fs::metadata(&file).expect("size").len();
        let missing = saved.answer(|kv| fs::remove_file(kv.join(&name)).expect("remove"));
        saved.assert_cold_answer(&missing, &format!("{name:?} missing"));
        for keep in [0, 1, size / 3, size.saturating_sub(1)] {
            let truncated = saved.answer(|kv| {
                fs::OpenOptions::new()
                    .write(true)
                    .open(kv.join(&name))
                    .expect("open")
                    .set_len(keep)
                    .expect("truncate");
            });
            saved.assert_cold_answer(&truncated, &format!("{name:?} cut to {keep} bytes"));
        }
    }
}

#[test]
fn a_flipped_byte_anywhere_never_changes_the_answer() {
    let saved = Saved::new();
    let mut random = ChaCha8Rng::seed_from_u64(4);
    let mut places = 0;
    while places < DAMAGED_PLACES {
        let num_flips = random.random_range(1..=8);
        places += num_flips;
        let mut done = Vec::new();
        let answer = saved.answer(|kv| {
            let files = files(kv);
            for _ in 0..num_flips {
                let file = &files[random.random_range(0..files.len())];
                let mut bytes = fs::read(file).expect("read");
                if bytes.is_empty() {
                    continue;
                }
                let at = random.random_range(0..bytes.len());
                let mask = random.random_range(1..=255);
                bytes[at] ^= mask;
                fs::write(file, bytes).expect("write");
                done.push((file.clone(), at, mask));
            }
        });
        saved.assert_cold_answer(&answer, &format!("flipped {done:?}"));
    }
}

#[test]
fn a_foreign_kv_folder_is_a_miss() {
    let saved = Saved::new();
    let mut other = Chat::new(Subject::Tiny(models::Architecture::Llama, 9));
    other.say(&prose(0, 120));
    other.stop();
    let answer = saved.answer(|kv| {
        fs::remove_dir_all(kv).expect("remove kv");
        copy_folder(&other.kv(), kv);
    });
    saved.assert_cold_answer(&answer, "foreign kv");
    assert_eq!(answer.prefill.computed, answer.prompt_tokens);
}

/// A cache over the store in `home`, with an empty pool.
fn cache(model: &Arc<Model>, home: &Path) -> Cache {
    let store = BlockStore::open(&home.join("kv"), Budget::Bytes(1 << 30));
    let store = Arc::new(Mutex::new(store));
    Cache::open(Arc::clone(model), 64 << 20, store).expect("cache")
}

#[test]
fn a_failed_restore_leaves_no_trace_in_the_pools() {
    let home = tempfile::tempdir().expect("folder");
    Subject::TINY.install(home.path());
    let model = Model::load(
        &home.path().join("tiny-1.gguf"),
        kernels::physical_cores(),
        &DigestCache::new(None),
    );
    let model = Arc::new(model.expect("model"));
    let prompt: Vec<u32> = (0..64 * 9 + 10).map(|i| i % 300 + 3).collect();
    let sync = |cache: &mut Cache| {
        let mut session = Session::new();
        let synced = session
            .sync(cache, &prompt, &mut |_, _| ControlFlow::Continue(()))
            .expect("sync");
        cache.check(&[session.table()]).expect("counts");
        session.close(cache);
        cache.check(&[]).expect("counts");
        cache.flush();
        (synced.prefill, synced.logits)
    };
    let (_, cold) = sync(&mut cache(&model, home.path()));
    let pool = files(&home.path().join("kv"))
        .into_iter()
        .find(|path| path.extension().is_some_and(|ending| ending == "pool"))
        .expect("a pool file");
    let slot_bytes = fs::metadata(&pool).expect("size").len() / 10;
    // From the last block to the first: what is lost is computed and saved again in between.
    for bad in (0..10).rev() {
        let mut bytes = fs::read(&pool).expect("read");
        bytes[(bad * slot_bytes + 4096) as usize] ^= 1;
        fs::write(&pool, bytes).expect("write");
        let mut cache = cache(&model, home.path());
        let (prefill, logits) = sync(&mut cache);
        assert_eq!(u64::from(prefill.restored), bad * 64, "block {bad} is bad");
        assert_eq!(prefill.resident, 0);
        assert_eq!(logits, cold, "block {bad} is bad");
        let (prefill, _) = sync(&mut cache);
        assert_eq!((prefill.restored, prefill.computed), (0, 1));
    }
}

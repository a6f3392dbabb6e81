//! Random operations over the cache, beside a reference that knows only which tokens were ever read.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use engine::{Cache, Error, Session};
use kernels::{KvPool, Team};
use models::tiny::{self, TinyModel};
use models::{Architecture, DigestCache, LoadOptions, Model};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use store::{BlockStore, Budget};

const OPERATIONS: usize = 10_000;
/// Slots of the pool: two long sessions, and not a third timeline beside them.
const SLOTS: usize = 12;
const MOST_TOKENS: usize = 300;

/// A small model whose heads can be quantized.
pub(crate) fn model(folder: &std::path::Path) -> Arc<Model> {
    let path = folder.join("tiny.gguf");
    let small = TinyModel {
        head_dim: 32,
        ..TinyModel::new(Architecture::Qwen3, 1)
    };
    tiny::write(&path, &small).expect("tiny model");
    let (digests, options) = (DigestCache::new(None), LoadOptions::default());
    let model = Model::load_with(&path, Team::new(1), &digests, options).expect("model");
    assert_eq!(model.info().kv_format, "q8");
    Arc::new(model)
}

struct World {
    kv: PathBuf,
    model: Arc<Model>,
    store: Arc<Mutex<BlockStore>>,
    cache: Cache,
    open: Vec<Session>,
    /// Every timeline that was ever begun.
    read: Vec<Vec<u32>>,
    /// The timeline that is pinned; all of it was in the pool when it was.
    looked_at: Vec<u32>,
    random: ChaCha8Rng,
    /// How often it was restarted: that decides how blocks are read, and how many the host tier has room for.
    restarts: usize,
    /// Whether allocations may fail now.
    is_failing: bool,
    refused: usize,
    restored: u64,
    pushed_out: usize,
    ahead: usize,
    /// Of the blocks that were wanted, those that were in the host tier.
    from_host: usize,
}

impl World {
    fn new(folder: &std::path::Path, seed: u64) -> World {
        let (kv, model) = (folder.join("kv"), model(folder));
        let (store, cache) = open(&kv, &model);
        World {
            kv,
            model,
            store,
            cache,
            open: Vec::new(),
            read: vec![vec![5; 100]],
            looked_at: Vec::new(),
            random: ChaCha8Rng::seed_from_u64(seed),
            restarts: 0,
            is_failing: false,
            refused: 0,
            restored: 0,
            pushed_out: 0,
            ahead: 0,
            from_host: 0,
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random.random_range(0..limit)
    }

    fn tokens(&mut self, count: usize) -> Vec<u32> {
        (0..count).map(|_| self.below(20) as u32 + 3).collect()
    }

    /// What was read before up to a random place, and something new.
    fn prompt(&mut self) -> Vec<u32> {
        // Now and then something long that nobody has read, so that room is scarce.
        if self.below(3) == 0 {
            return self.tokens(MOST_TOKENS - 10);
        }
        let recent = self.read.len().min(40);
        let at = self.read.len() - 1 - self.below(recent);
        let mut prompt = self.read[at].clone();
        let keep = self.below(prompt.len()) + 1;
        prompt.truncate(keep.min(MOST_TOKENS - 40));
        let new = self.below(39) + 1;
        prompt.extend(self.tokens(new));
        prompt
    }

    fn operate(&mut self) {
        match self.below(100) {
            0..30 if self.open.len() < 2 => self.begin(),
            30..34 if self.open.len() < 2 => self.look_at(),
            34..40 => self.work_ahead(),
            0..65 => self.go_on(),
            65..85 => self.end(true),
            85..90 => self.end(false),
            90..93 => self.fail_after(),
            93..95 => {
                self.cache.fail_allocations_after(None);
                self.is_failing = false;
            }
            95..97 => {
                self.cache.save_some();
            }
            97 if self.below(4) == 0 => {
                let num_slots = self.below(30);
                self.keep_evicted(num_slots);
            }
            97 => self.cache.flush(),
            98 => self.restart(),
            _ if self.below(4) == 0 => self.store.lock().expect("store").clear(),
            _ => {}
        }
    }

    /// Reads something, leaves it, and pins it.
    fn look_at(&mut self) {
        let prompt = self.prompt();
        let mut session = Session::new();
        let synced = session.sync(&mut self.cache, &prompt, &mut |_, _| {
            ControlFlow::Continue(())
        });
        self.read.push(prompt.clone());
        match synced {
            Ok(_) => {
                session.close(&mut self.cache);
                self.cache.pin_open(&prompt);
                self.looked_at = prompt;
                // The last token is never reused.
                assert_eq!(self.pinned_blocks(), (self.looked_at.len() - 1) / 64);
            }
            Err(error) => {
                self.refused(&error);
                session.abandon(&mut self.cache);
            }
        }
    }

    /// Warms something, or reads it ahead: what is pinned stays.
    fn work_ahead(&mut self) {
        let (before, prompt) = (self.pinned_blocks(), self.prompt());
        if self.below(2) == 0 {
            if let Err(error) = self.cache.warm_unpinned(&prompt) {
                self.refused(&error);
            }
        } else {
            let mut session = Session::ahead();
            let synced = session.sync(&mut self.cache, &prompt, &mut |_, _| {
                ControlFlow::Continue(())
            });
            if let Err(error) = synced {
                self.refused(&error);
            }
            session.abandon(&mut self.cache);
        }
        self.ahead += before;
        assert!(self.pinned_blocks() >= before, "pushed out by side work");
    }

    /// Whole blocks of the pinned timeline that are in the pool, from the first on.
    fn pinned_blocks(&self) -> usize {
        self.cache.resident_tokens(&self.looked_at) / 64
    }

    /// After a turn that went well: what was pinned has gone only if nothing else was left to go. The block that a turn
    /// copies from is held until it is copied, and left then.
    fn pinned_went_last(&mut self, before: usize) {
        if self.pinned_blocks() < before {
            self.pushed_out += 1;
            let left = self.cache.num_unpinned();
            assert!(left <= 1, "{left} others could have gone");
        }
    }

    fn fail_after(&mut self) {
        let allocations = self.below(6) as u32;
        self.cache.fail_allocations_after(Some(allocations));
        self.is_failing = true;
    }

    fn begin(&mut self) {
        let prompt = self.prompt();
        let common = |other: &Vec<u32>| {
            other
                .iter()
                .zip(&prompt)
                .take_while(|(a, b)| a == b)
                .count()
        };
        let known = self.read.iter().map(common).max().unwrap_or(0);
        let pinned = self.pinned_blocks();
        self.from_host += self.cache.num_in_host_of(&prompt);
        self.read.push(prompt.clone());
        let mut session = Session::new();
        let synced = session.sync(&mut self.cache, &prompt, &mut |_, _| {
            ControlFlow::Continue(())
        });
        match synced {
            Ok(synced) => {
                let prefill = synced.prefill;
                let reused = (prefill.resident + prefill.restored) as usize;
                assert_eq!(reused + prefill.computed as usize, prompt.len());
                assert!(reused <= known.min(prompt.len() - 1), "{reused} of {known}");
                self.restored += u64::from(prefill.restored);
                if self.below(8) == 0 {
                    let logits = synced.logits.expect("logits");
                    assert!(logits == cold(&self.model, &prompt), "{prompt:?}");
                }
                self.open.push(session);
                self.pinned_went_last(pinned);
            }
            Err(error) => {
                self.refused(&error);
                session.abandon(&mut self.cache);
            }
        }
    }

    fn go_on(&mut self) {
        let (count, which) = (self.below(5) + 1, self.below(self.open.len().max(1)));
        let tokens = self.tokens(count);
        let Some(session) = self.open.get_mut(which) else {
            return;
        };
        let pinned = self.cache.resident_tokens(&self.looked_at) / 64;
        let before = session.tokens().to_vec();
        if before.len() + count > MOST_TOKENS {
            return;
        }
        match session.advance(&mut self.cache, &tokens) {
            Ok(_) => {
                let after = session.tokens().to_vec();
                assert_eq!(after[..before.len()], before);
                self.read.push(after);
                self.pinned_went_last(pinned);
            }
            Err(error) => {
                assert_eq!(session.tokens(), before, "as if nothing had been asked");
                self.refused(&error);
            }
        }
    }

    fn end(&mut self, is_kept: bool) {
        if self.open.is_empty() {
            return;
        }
        let which = self.below(self.open.len());
        let session = self.open.swap_remove(which);
        let mut timeline = session.tokens().to_vec();
        if !is_kept {
            return session.abandon(&mut self.cache);
        }
        session.close(&mut self.cache);
        if self.is_failing || timeline.len() + 1 > MOST_TOKENS {
            return;
        }
        // What was just left is all there.
        timeline.push(9);
        let mut again = Session::new();
        let synced = again.sync(&mut self.cache, &timeline, &mut |_, _| {
            ControlFlow::Continue(())
        });
        let prefill = synced
            .expect("there is room for what was just there")
            .prefill;
        assert_eq!(prefill.computed, 1, "{prefill:?}");
        again.abandon(&mut self.cache);
    }

    fn restart(&mut self) {
        for session in std::mem::take(&mut self.open) {
            session.close(&mut self.cache);
        }
        self.cache.flush();
        let nowhere = self.kv.with_file_name("nowhere");
        // The old cache goes before the folder is opened again.
        (self.store, self.cache) = open(&nowhere, &self.model);
        (self.store, self.cache) = open(&self.kv, &self.model);
        // Every other time blocks are brought layer by layer, beside computing.
        self.restarts += 1;
        if self.restarts % 2 == 1 {
            self.cache.read_in_parts(1, || ());
        }
        self.keep_evicted([30, 4, 0][self.restarts % 3]);
        self.is_failing = false;
        self.looked_at.clear();
    }

    fn keep_evicted(&mut self, num_slots: usize) {
        let bytes = (num_slots * self.model.kv_layout().slot_bytes()) as u64;
        self.cache.keep_evicted(bytes).expect("a host tier");
    }

    fn refused(&mut self, error: &Error) {
        let is_memory = matches!(error, Error::Kernels(kernels::Error::Memory { .. }));
        let is_full = matches!(error, Error::PoolFull { .. });
        assert!(is_full || (is_memory && self.is_failing), "{error}");
        self.refused += 1;
    }
}

fn open(kv: &std::path::Path, model: &Arc<Model>) -> (Arc<Mutex<BlockStore>>, Cache) {
    let slot_bytes = model.kv_layout().slot_bytes() as u64;
    let budget = Budget::Bytes(60 * (slot_bytes + 8192));
    let store = Arc::new(Mutex::new(BlockStore::open(kv, budget)));
    let pool_bytes = SLOTS as u64 * slot_bytes;
    let cache = Cache::open(Arc::clone(model), pool_bytes, Arc::clone(&store)).expect("cache");
    (store, cache)
}

/// Logits after a prompt that is read from its beginning in a pool of its own.
pub(crate) fn cold(model: &Model, prompt: &[u32]) -> Vec<f32> {
    let num_slots = prompt.len().div_ceil(64);
    let pool = KvPool::reserved(model.kv_layout(), num_slots).expect("pool");
    let table: Vec<u32> = (0..num_slots as u32).collect();
    model.forward(prompt, 0, &pool, &table).expect("forward")
}

#[test]
fn ten_thousand_random_operations_keep_every_count_right_and_every_answer_exact() {
    let folder = tempfile::tempdir().expect("folder");
    let mut world = World::new(folder.path(), 3);
    world.keep_evicted(20);
    for operation in 0..OPERATIONS {
        world.operate();
        let tables: Vec<&[u32]> = world.open.iter().map(Session::table).collect();
        let counts = world.cache.check(&tables);
        assert!(counts.is_ok(), "operation {operation}: {counts:?}");
    }
    // What the test is about has happened.
    assert!(world.refused > 50, "{} refused", world.refused);
    assert!(world.restored > 1_000, "{} restored", world.restored);
    assert!(world.pushed_out > 10, "{} pushed out", world.pushed_out);
    assert!(world.ahead > 100, "{} blocks beside side work", world.ahead);
    assert!(
        world.from_host > 150,
        "{} from the host tier",
        world.from_host
    );
}

#[test]
fn an_allocation_that_fails_anywhere_leaves_everything_as_it_was() {
    let folder = tempfile::tempdir().expect("folder");
    let model = model(folder.path());
    let prompt: Vec<u32> = (0..64 * 5 + 10).map(|i| i % 30 + 3).collect();
    let branch: Vec<u32> = prompt[..200].iter().copied().chain([7; 100]).collect();
    let want = cold(&model, &branch);
    let sync = |cache: &mut Cache, prompt: &[u32]| {
        let mut session = Session::new();
        let synced = session.sync(cache, prompt, &mut |_, _| ControlFlow::Continue(()));
        match synced {
            Ok(_) => drop(session.close(cache)),
            Err(_) => session.abandon(cache),
        }
        cache.check(&[]).expect("counts");
        synced
    };
    // Saved once; then it is restored, copied in part and extended, with one allocation failing: the first, the second, …
    let kv = folder.path().join("kv");
    let (_, mut cache) = open(&kv, &model);
    sync(&mut cache, &prompt).expect("sync");
    cache.flush();
    drop(cache);
    for (in_parts, host_slots) in [(false, 0), (true, 0), (false, 3), (true, 3)] {
        let mut failures = 0;
        for allocations in 0.. {
            let (_store, mut cache) = open(&kv, &model);
            if in_parts {
                cache.read_in_parts(1, || ());
            }
            // All of it was here and has made way: for the blocks of another, which make way in turn.
            if host_slots > 0 {
                let slot_bytes = model.kv_layout().slot_bytes() as u64;
                cache.keep_evicted(host_slots * slot_bytes).expect("tier");
                sync(&mut cache, &prompt).expect("sync");
                sync(&mut cache, &[9; 64 * SLOTS - 70]).expect("another");
                assert!(cache.num_in_host() == 3);
            }
            cache.fail_allocations_after(Some(allocations));
            let first = sync(&mut cache, &branch);
            cache.fail_allocations_after(None);
            let again = sync(&mut cache, &branch).expect("the next turn goes well");
            assert!(
                again.logits.expect("logits") == want,
                "after {allocations} allocations"
            );
            match first {
                Ok(synced) => {
                    assert!(synced.logits.expect("logits") == want);
                    break;
                }
                Err(error) => {
                    assert!(
                        matches!(error, Error::Kernels(kernels::Error::Memory { .. })),
                        "{error}"
                    );
                    failures += 1;
                }
            }
        }
        assert!(failures >= 5, "blocks restored, copied and new: {failures}");
    }
}

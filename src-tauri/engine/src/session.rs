//! A session: one token timeline and the block table that holds its keys and values.
//!
//! `sync` is the one verb. Resume, edit, regenerate, branch flip, fork and a shared system prompt are all "make the
//! timeline this prompt". A session lives for one turn; what it computed stays in the prefix tree when it closes.

mod beside;

use std::ops::ControlFlow;
use std::time::Instant;

use kernels::cuda::Decoder;
use kernels::{BLOCK_TOKENS, Phase};
use models::{Model, Sampler};
use store::{Block, BlockId, Prefill};

use crate::cache::Cache;
use crate::pins::Evict;
use crate::restore::Restore;
use crate::tree::{Match, Saved};
use crate::{Error, Result};

/// Tokens that one prefill step runs through the model, a multiple of the block; a cancel is seen between two steps.
pub const PREFILL_STEP_TOKENS: usize = 2 * BLOCK_TOKENS;
/// As above, where a GPU computes all of it: a product of 4 096 rows has two tiles of 64 × 64 for each of 64 row tiles in a step of
/// 128 tokens, which is one for each multiprocessor of a large GPU; these want several to hide what they wait for.
pub(crate) const DEVICE_STEP_TOKENS: usize = 8 * BLOCK_TOKENS;

/// The least compute capability whose attention is on tensor cores. Below it a step of many tokens far into a context takes small
/// cards seconds, and Windows resets a card that does not answer for two.
const TENSOR_CORES: u32 = 80;

/// Tokens that one prefill step of a model takes.
pub fn prefill_step_tokens(model: &Model) -> usize {
    let is_fast = |of: &Decoder| of.device().compute_capability() >= TENSOR_CORES;
    match model.device() {
        Some(decoder) if is_fast(decoder) && !model.is_on_both() => DEVICE_STEP_TOKENS,
        _ => PREFILL_STEP_TOKENS,
    }
}

/// What `sync` did.
#[derive(Clone, Debug)]
pub struct Synced {
    /// Where the prompt's keys and values came from; adds up to the prompt unless stopped.
    pub prefill: Prefill,
    /// Time that reading blocks from disk took, also before this turn (a conversation being opened) and beside computing, in
    /// milliseconds.
    pub restore_ms: f64,
    /// Of the computed tokens: those that were on disk and sooner computed than read.
    pub recomputed_by_choice: u32,
    /// Logits after the last prompt token, `[vocab]`; `None` when stopped before the end. They are not kept from one turn to
    /// the next: that token is computed anew (law 3), so that writing a reply again costs one step of decoding. On disk they
    /// would not fit into what a turn may write (law 9): 196 KB for a vocabulary of 49 152, in f32, since a rounded copy could
    /// sample another token.
    pub logits: Option<Vec<f32>>,
}

/// What `sync` took over of what is cached.
struct Reused {
    /// `computed` is still zero.
    prefill: Prefill,
    restore_ms: f64,
    /// Tokens that are on disk and left to be computed.
    given_up: u32,
    /// What of the timeline is yet to be read, beside the first step; not counted yet.
    restore: Option<Restore>,
}

/// Tokens whose keys and values are in the pool, in order.
#[derive(Debug)]
pub struct Session {
    tokens: Vec<u32>,
    table: Vec<u32>,
    chain: Vec<BlockId>,
    /// The tree is not told of what this session computes (law 7).
    aside: bool,
    /// What may be pushed out for it.
    evict: Evict,
}

impl Default for Session {
    fn default() -> Self {
        Self {
            tokens: Vec::new(),
            table: Vec::new(),
            chain: Vec::new(),
            aside: false,
            evict: Evict::Any,
        }
    }
}

impl Session {
    /// An empty timeline.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty timeline for side work: it uses what is cached, and what it computes is known to nobody else and goes
    /// with it. End it with [`Session::abandon`].
    pub fn aside() -> Self {
        Self {
            aside: true,
            ..Self::default()
        }
    }

    /// Side work that nobody has asked for yet: nothing that is pinned makes way for it.
    pub fn ahead() -> Self {
        Self {
            evict: Evict::Unpinned,
            ..Self::aside()
        }
    }

    /// The same timeline, no longer aside: what it computed is kept from the next `sync` on.
    pub fn kept(mut self) -> Self {
        self.aside = false;
        self.evict = Evict::Any;
        self
    }

    /// The timeline.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Slots of the timeline's blocks, in order.
    pub fn table(&self) -> &[u32] {
        &self.table
    }

    /// Makes the timeline `prompt`: walks the block tree as far as the tokens match, makes those blocks resident,
    /// copies and truncates a partly matching one, and computes the rest in chunks that end on absolute multiples of
    /// the block size. `observe` is told the counts before and after each chunk and may stop; finished chunks are kept.
    ///
    /// # Errors
    /// When the prompt is empty, does not fit, or the model fails. The pools are then as before.
    pub fn sync(
        &mut self,
        cache: &mut Cache,
        prompt: &[u32],
        observe: &mut dyn FnMut(&Prefill, usize) -> ControlFlow<()>,
    ) -> Result<Synced> {
        if prompt.is_empty() {
            return Err(Error::InvalidArgument("the prompt has no tokens".into()));
        }
        if prompt.len() > cache.context_tokens() {
            return Err(Error::ContextFull {
                needed: prompt.len(),
                at_least: false,
                limit: cache.context_tokens(),
            });
        }
        let mut reused = match self.keep_own(cache, prompt) {
            Some(kept) => kept,
            None => self.reuse(cache, prompt)?,
        };
        let mut logits = None;
        while observe(&reused.prefill, prompt.len()).is_continue()
            && self.tokens.len() < prompt.len()
        {
            let (at, step) = (self.tokens.len(), prefill_step_tokens(cache.model()));
            let is_beside = reused.restore.is_some();
            let end = prompt.len().min((at / step + 1) * step);
            let start = Instant::now();
            let last = match reused.restore.take() {
                Some(restore) => {
                    match self.advance_beside(cache, &prompt[at..end], restore, &mut reused)? {
                        Some(last) => last,
                        None => {
                            reused = self.reuse(cache, prompt)?;
                            continue;
                        }
                    }
                }
                None => self.run(cache, &prompt[at..end], Phase::Prefill)?,
            };
            // Beside reading it takes longer.
            if end - at == step && !is_beside {
                cache.rates.computed(step, start.elapsed());
            }
            reused.prefill.computed += (end - at) as u32;
            logits = (end == prompt.len()).then_some(last);
        }
        if let Some(restore) = reused.restore.take() {
            // Stopped before anything was brought.
            cache.leave(restore);
            self.clear(cache);
            reused.prefill = Prefill::default();
        }
        Ok(Synced {
            prefill: reused.prefill,
            restore_ms: reused.restore_ms,
            recomputed_by_choice: reused.given_up.min(reused.prefill.computed),
            logits,
        })
    }

    /// Runs `tokens`, which were sampled, through the model after the timeline and returns the logits after the last one, `[vocab]`.
    ///
    /// # Errors
    /// When the pool is full or the model fails; the timeline is then unchanged.
    pub fn advance(&mut self, cache: &mut Cache, tokens: &[u32]) -> Result<Vec<f32>> {
        self.run(cache, tokens, Phase::Decode)
    }

    /// Runs the last token of `timeline`, which was sampled and is all that the session lacks of it, and samples the next one.
    ///
    /// # Errors
    /// As `advance`.
    pub fn next(
        &mut self,
        cache: &mut Cache,
        timeline: &[u32],
        sampler: &mut Sampler,
    ) -> Result<u32> {
        self.make_room(cache, 1)?;
        let pool = cache.pool.kv();
        let id = cache.model().next(timeline, pool, &self.table, sampler)?;
        self.tokens.extend(timeline.last());
        self.register_full(cache);
        Ok(id)
    }

    fn run(&mut self, cache: &mut Cache, tokens: &[u32], phase: Phase) -> Result<Vec<f32>> {
        let offset = self.tokens.len();
        self.make_room(cache, tokens.len())?;
        let (model, pool) = (cache.model(), cache.pool.kv());
        let logits = match phase {
            Phase::Prefill => model.forward(tokens, offset, pool, &self.table)?,
            Phase::Decode => model.decode(tokens, offset, pool, &self.table)?,
        };
        self.tokens.extend_from_slice(tokens);
        self.register_full(cache);
        Ok(logits)
    }

    /// Slots for so many tokens after the timeline.
    fn make_room(&mut self, cache: &mut Cache, num_tokens: usize) -> Result<()> {
        let blocks_needed = (self.tokens.len() + num_tokens).div_ceil(BLOCK_TOKENS);
        while self.table.len() < blocks_needed {
            let slot = cache.allocate(self.evict)?;
            self.table.push(slot);
            // A tail fills its last tile only in part, and goes to disk with it.
            cache.pool.kv().clear_slot(slot)?;
        }
        Ok(())
    }

    /// Ends the session: its tail becomes a partial block of the tree, what is unsaved is noted to be saved, the table is
    /// released. Returns the last block, for a ref.
    pub fn close(mut self, cache: &mut Cache) -> Option<BlockId> {
        let tail = self.tokens.len() % BLOCK_TOKENS;
        if tail > 0 {
            self.register(cache, tail);
        }
        // Most are noted already; those that the store did not take are tried again.
        for id in &self.chain {
            let node = cache.tree.get(id);
            if node.is_some_and(|node| node.saved == Saved::No) {
                cache.save_later(*id);
            }
        }
        cache.tree.touch(&self.chain);
        let last = self.chain.last().copied();
        self.clear(cache);
        last
    }

    /// Ends the session without keeping anything of it.
    pub fn abandon(mut self, cache: &mut Cache) {
        self.clear(cache);
    }

    /// Blocks of the timeline that the tree knows, first to last.
    pub fn chain(&self) -> &[BlockId] {
        &self.chain
    }

    /// Goes on from the timeline it has where that holds more of `prompt` than the tree does: a draft that is sent, or typed
    /// further. The counts have `computed` still zero.
    fn keep_own(&mut self, cache: &mut Cache, prompt: &[u32]) -> Option<Reused> {
        let common = self.tokens.iter().zip(prompt).take_while(|(a, b)| a == b);
        let num_tokens = common.count().min(prompt.len() - 1);
        if num_tokens <= cache.tree.find(prompt).num_tokens() {
            return None;
        }
        let num_blocks = num_tokens.div_ceil(BLOCK_TOKENS);
        // The last block is going to be written to, so nobody else may hold it.
        let is_cut = num_tokens % BLOCK_TOKENS != 0;
        if is_cut && cache.pool.is_shared(self.table[num_blocks - 1]) {
            return None;
        }
        for slot in self.table.drain(num_blocks..) {
            cache.pool.release(slot);
        }
        self.tokens.truncate(num_tokens);
        self.chain.truncate(num_tokens / BLOCK_TOKENS);
        let known: Vec<_> = self.chain.iter().map(|id| (*id, BLOCK_TOKENS)).collect();
        cache.tree.touch(&self.chain);
        let (mut prefill, restore_ms) = self.count(cache, known.into_iter());
        prefill.resident = num_tokens as u32 - prefill.restored;
        self.register_full(cache);
        Some(Reused {
            prefill,
            restore_ms,
            given_up: 0,
            restore: None,
        })
    }

    /// Takes over what of `prompt` is cached, in place of what it has.
    fn reuse(&mut self, cache: &mut Cache, prompt: &[u32]) -> Result<Reused> {
        self.clear(cache);
        let (found, given_up, restore) = self.hold(cache, prompt)?;
        let there = found.full.iter().map(|id| (*id, BLOCK_TOKENS));
        let there = there.chain(found.partial);
        let there: Vec<_> = there
            .filter(|(id, _)| cache.slot_of(id).is_some())
            .collect();
        let (prefill, restore_ms) = self.count(cache, there.into_iter());
        if let Some((_, num_tokens)) = found.partial
            && let Err(error) = self.copy_last(cache, num_tokens)
        {
            if let Some(restore) = restore {
                cache.leave(restore);
            }
            return Err(error);
        }
        self.tokens.extend_from_slice(&prompt[..found.num_tokens()]);
        self.chain = found.full;
        Ok(Reused {
            prefill,
            restore_ms,
            given_up: given_up as u32,
            restore,
        })
    }

    /// Puts a copy of its first tokens in place of the last block.
    fn copy_last(&mut self, cache: &mut Cache, num_tokens: usize) -> Result<()> {
        let Some(copied) = self.table.pop() else {
            return Err(Error::Corrupt("a block to be copied is not held".into()));
        };
        let own = cache.allocate(self.evict);
        let own = own.inspect_err(|_| cache.pool.release(copied))?;
        self.table.push(own);
        let copying = cache.pool.kv().copy_slot(copied, own, num_tokens);
        cache.pool.release(copied);
        Ok(copying?)
    }

    /// Where blocks of the tree came from, given how many tokens of each are used.
    fn count(
        &self,
        cache: &mut Cache,
        used: impl Iterator<Item = (BlockId, usize)>,
    ) -> (Prefill, f64) {
        let mut prefill = Prefill::default();
        let mut restore_ms = 0.0;
        for (id, num_tokens) in used {
            let node = cache.tree.get_mut(&id);
            // A turn counts what was restored for it, also before it began; side work does not take that from it.
            match node.and_then(|node| match self.aside {
                true => node.restored_ms,
                false => node.restored_ms.take(),
            }) {
                Some(ms) => {
                    prefill.restored += num_tokens as u32;
                    restore_ms += ms;
                }
                None => prefill.resident += num_tokens as u32,
            }
        }
        (prefill, restore_ms)
    }

    /// Finds the longest cached beginning and holds its slots in the table, restoring what is on disk only, but for what can
    /// be read beside computing. A block that turns out to be lost shortens the match: the search starts again without it.
    /// Also returns how many tokens on disk are left to be computed, which is sooner, and what is yet to be read.
    fn hold(
        &mut self,
        cache: &mut Cache,
        prompt: &[u32],
    ) -> Result<(Match, usize, Option<Restore>)> {
        loop {
            let mut found = cache.tree.find(prompt);
            let given_up = cache.give_up_slow_end(&mut found);
            let ids: Vec<BlockId> = found.blocks().collect();
            cache.tree.touch(&ids);
            if let Some(held) = cache.hold_match(&found, self.evict)? {
                self.table = held.table;
                return Ok((found, given_up, held.restore));
            }
        }
    }

    /// Gives the tree every whole block that it does not know yet, unless this is side work.
    fn register_full(&mut self, cache: &mut Cache) {
        while !self.aside && (self.chain.len() + 1) * BLOCK_TOKENS <= self.tokens.len() {
            self.register(cache, BLOCK_TOKENS);
        }
    }

    /// Gives the block after `chain` to the tree; it ends with the timeline, or after a whole block.
    fn register(&mut self, cache: &mut Cache, num_tokens: usize) {
        let index = self.chain.len();
        let start = index * BLOCK_TOKENS;
        let tokens = self.tokens[start..start + num_tokens].to_vec();
        let parent = self.chain.last().copied();
        let id = cache.tree.id(parent.as_ref(), &tokens);
        self.table[index] = cache.register(
            Block {
                id,
                parent,
                position: start as u32,
                tokens,
            },
            self.table[index],
        );
        self.chain.push(id);
    }

    fn clear(&mut self, cache: &mut Cache) {
        for slot in self.table.drain(..) {
            cache.pool.release(slot);
        }
        self.tokens.clear();
        self.chain.clear();
    }
}

//! The KV cache of one model over its tiers: pool, prefix tree, block store.
//!
//! Brings blocks into the pool, makes room in it, and sends what is new to the writer. It does not decide which tokens
//! are wanted (the session does) and never runs the model.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use candle_core::Device;
use kernels::BLOCK_TOKENS;
use models::Model;
use store::{Block, BlockId, BlockStore, Fingerprint, SlotFormat};

use crate::pool::BlockPool;
use crate::tree::{Node, PrefixTree, Saved};
use crate::writer::{Writer, lock};
use crate::{Error, Result};

/// Everything that outlives a turn for one loaded model.
pub struct Cache {
    model: Arc<Model>,
    fingerprint: Fingerprint,
    store: Arc<Mutex<BlockStore>>,
    pub(crate) pool: BlockPool,
    pub(crate) tree: PrefixTree,
    pub(crate) writer: Writer,
    payload: Vec<u8>,
}

impl Cache {
    /// A pool of about `pool_bytes` for `model`, and the tree of what `store` has for it.
    ///
    /// # Errors
    /// When the device cannot give the pool.
    pub fn open(
        model: Arc<Model>,
        pool_bytes: u64,
        store: Arc<Mutex<BlockStore>>,
        device: &Device,
    ) -> Result<Self> {
        let layout = model.kv_layout();
        let fingerprint = Fingerprint(model.fingerprint().0);
        let slots_for_bytes =
            usize::try_from(pool_bytes).unwrap_or(usize::MAX) / layout.slot_bytes();
        // Two slots are the least that can copy a partly matching block.
        let pool = BlockPool::new(layout, slots_for_bytes.max(2), device)?;
        let tree = PrefixTree::new(fingerprint);
        let writer = Writer::start(fingerprint, layout.slot_bytes(), Arc::clone(&store));
        let payload = vec![0; layout.slot_bytes()];
        let mut cache = Self {
            model,
            fingerprint,
            store,
            pool,
            tree,
            writer,
            payload,
        };
        for block in cache.open_pool() {
            cache.tree.insert(block).saved = Saved::Yes;
        }
        Ok(cache)
    }

    /// The model whose keys and values these are.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Tokens that a single session can hold: the model's context, or what the pool has room for beside one block to
    /// copy from.
    pub fn context_tokens(&self) -> usize {
        self.model
            .config()
            .context_length
            .min((self.pool.num_slots() - 1) * BLOCK_TOKENS)
    }

    /// Whether the pool is what limits a session, and not the model.
    pub(crate) fn could_hold_more(&self) -> bool {
        self.context_tokens() < self.model.config().context_length
    }

    /// Bytes of a pool that holds as long a session as the model can.
    pub(crate) fn pool_bytes_for_context(&self) -> u64 {
        let num_slots = self.model.config().context_length.div_ceil(BLOCK_TOKENS) + 1;
        (num_slots * self.model.kv_layout().slot_bytes()) as u64
    }

    /// Bytes written to pool files since the model was loaded.
    pub fn bytes_written(&self) -> u64 {
        self.writer.bytes_written()
    }

    /// A free slot, evicting the least recently used block that no session holds when there is none.
    ///
    /// # Errors
    /// [`Error::PoolFull`] when sessions hold every slot.
    pub(crate) fn allocate(&mut self) -> Result<u32> {
        loop {
            if let Some(slot) = self.pool.allocate() {
                return Ok(slot);
            }
            self.collect_results();
            let pool = &self.pool;
            let oldest = self
                .tree
                .oldest_leaf(|node| node.slot.is_some_and(|slot| !pool.is_shared(slot)));
            let Some(id) = oldest else {
                return Err(Error::PoolFull {
                    num_slots: self.pool.num_slots(),
                });
            };
            self.save(&id, Wait::ForRoom)?;
            self.drop_resident(&id);
        }
    }

    /// Makes a block resident. False when it could not be had: it is then forgotten, and nothing else has changed.
    ///
    /// # Errors
    /// When there is no room in the pool, or the device fails.
    pub(crate) fn make_resident(&mut self, id: &BlockId) -> Result<bool> {
        let Some(node) = self.tree.get(id) else {
            return Ok(false);
        };
        if node.slot.is_some() {
            return Ok(true);
        }
        if node.saved == Saved::Queued {
            self.flush();
        }
        let start = Instant::now();
        let Some(node) = self.tree.get(id) else {
            return Ok(false);
        };
        let block = node.block.clone();
        if lock(&self.store)
            .get(&self.fingerprint, &block, &mut self.payload)
            .is_none()
        {
            self.tree.forget_saved(id);
            return Ok(false);
        }
        let slot = self.allocate()?;
        if let Err(error) = self.pool.kv().write_slot(slot, &self.payload) {
            self.pool.release(slot);
            return Err(error.into());
        }
        match self.tree.get_mut(id) {
            Some(node) => {
                node.slot = Some(slot);
                node.restored_ms = Some(start.elapsed().as_secs_f64() * 1e3);
                Ok(true)
            }
            None => {
                self.pool.release(slot);
                Ok(false)
            }
        }
    }

    /// Keeps a finished block: the caller's slot becomes the tree's, or, where the tree has the block already, the
    /// caller's slot is released and the tree's is returned. The caller holds one reference to what is returned.
    pub(crate) fn register(&mut self, block: Block, slot: u32) -> u32 {
        let id = block.id;
        for old in self.tree.superseded_by(&block) {
            if let Some(node) = self.tree.get_mut(&old) {
                node.saved = Saved::No;
            }
            self.drop_resident(&old);
        }
        let node = self.tree.insert(block);
        match node.slot {
            Some(kept) if kept == slot => slot,
            Some(kept) => {
                self.pool.retain(kept);
                self.pool.release(slot);
                kept
            }
            None => {
                node.slot = Some(slot);
                self.pool.retain(slot);
                // A failed copy leaves the block unsaved: it is tried again when the session closes.
                if let Err(error) = self.save(&id, Wait::Never) {
                    tracing::warn!(%error, "block not saved");
                }
                slot
            }
        }
    }

    /// Hands an unsaved resident block to the writer.
    pub(crate) fn save(&mut self, id: &BlockId, wait: Wait) -> Result<()> {
        let Some(Node {
            block,
            slot: Some(slot),
            saved: Saved::No,
            ..
        }) = self.tree.get(id)
        else {
            return Ok(());
        };
        let block = block.clone();
        let mut payload = vec![0; self.payload.len()];
        self.pool.kv().read_slot(*slot, &mut payload)?;
        let queued = match wait {
            Wait::ForRoom => self.writer.save(block, payload),
            Wait::Never => self.writer.try_save(block, payload).is_ok(),
        };
        if queued && let Some(node) = self.tree.get_mut(id) {
            node.saved = Saved::Queued;
        }
        Ok(())
    }

    /// Waits for the writer and takes its answers.
    pub fn flush(&mut self) {
        self.writer.flush();
        self.collect_results();
    }

    /// Saves whatever is resident and unsaved, and waits for it: before the model goes, or the process ends.
    pub(crate) fn save_all(&mut self) {
        let unsaved: Vec<_> = self
            .tree
            .nodes()
            .filter(|(_, node)| node.saved == Saved::No)
            .map(|(id, _)| *id)
            .collect();
        for id in unsaved {
            if let Err(error) = self.save(&id, Wait::ForRoom) {
                tracing::warn!(%error, "block not saved");
            }
        }
        self.flush();
    }

    /// Takes the store's word for what is on disk, after it dropped blocks on its own: swept, cleared, found bad.
    pub(crate) fn refresh(&mut self) {
        let on_disk: HashSet<BlockId> =
            self.open_pool().into_iter().map(|block| block.id).collect();
        let lost: Vec<_> = self
            .tree
            .nodes()
            .map(|(id, _)| *id)
            .filter(|id| !on_disk.contains(id))
            .collect();
        for id in &lost {
            if let Some(node) = self.tree.get_mut(id) {
                node.saved = Saved::No;
            }
        }
        for id in &lost {
            self.tree.prune(id);
        }
    }

    /// Opens this model's pool in the store and returns what is in it, parents before children.
    fn open_pool(&self) -> Vec<Block> {
        let layout = self.model.kv_layout();
        let format = SlotFormat {
            block_tokens: BLOCK_TOKENS as u32,
            num_slabs: layout.num_slabs() as u32,
            slab_bytes: layout.slab_bytes() as u32,
        };
        let mut store = lock(&self.store);
        match store.open_pool(&self.fingerprint, format, self.model.name()) {
            true => store.blocks(&self.fingerprint),
            false => Vec::new(),
        }
    }

    /// The block store behind the pool.
    pub(crate) fn store(&self) -> &Mutex<BlockStore> {
        &self.store
    }

    /// Checks that the pool's counts are exactly the tree's slots plus `tables`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] naming what differs.
    pub fn check(&self, tables: &[&[u32]]) -> Result<()> {
        let mut expected = vec![0; self.pool.num_slots()];
        for slot in self.tree.nodes().filter_map(|(_, node)| node.slot) {
            expected[slot as usize] += 1;
        }
        for slot in tables.iter().flat_map(|table| table.iter()) {
            expected[*slot as usize] += 1;
        }
        self.pool.check(&expected)
    }

    fn drop_resident(&mut self, id: &BlockId) {
        if let Some(node) = self.tree.get_mut(id)
            && let Some(slot) = node.slot.take()
        {
            node.restored_ms = None;
            self.pool.release(slot);
        }
        self.tree.prune(id);
    }

    fn collect_results(&mut self) {
        let results: Vec<_> = self.writer.results().collect();
        for (id, on_disk) in results {
            if let Some(node) = self.tree.get_mut(&id) {
                node.saved = if on_disk { Saved::Yes } else { Saved::No };
            }
            self.tree.prune(&id);
        }
    }
}

/// Whether to wait for the writer's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Leave the block unsaved when the queue is full: for the token path.
    Never,
    /// Wait until there is room: between turns.
    ForRoom,
}

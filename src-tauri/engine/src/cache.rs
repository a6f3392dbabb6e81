//! The KV cache of one model over its tiers: working pool, host tier, block store, and the prefix tree over them all.
//!
//! Makes room in the pool, keeps what makes way (`host`), brings blocks back (`restore`), and keeps what is new for the writer (`backlog`). It does not
//! decide which tokens are wanted (the session does) and never runs the model.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use kernels::{BLOCK_TOKENS, KvLayout, TILE_TOKENS};
use models::Model;
use store::{Block, BlockId, BlockStore, Fingerprint, SlotFormat};

use crate::backlog::Backlog;
use crate::machine::Machine;
use crate::pins::{Evict, Pins};
use crate::pool::BlockPool;
use crate::rates::Rates;
use crate::restore::Reading;

use crate::tree::{Node, PrefixTree, Saved, Tier};
use crate::writer::{Writer, lock};
use crate::{Error, Result};

/// Everything that outlives a turn for one loaded model.
pub struct Cache {
    model: Arc<Model>,
    pub(crate) fingerprint: Fingerprint,
    store: Arc<Mutex<BlockStore>>,
    pub(crate) pool: BlockPool,
    /// What was evicted from the working pool, where that lies in a GPU's memory.
    pub(crate) host: Option<BlockPool>,
    pub(crate) tree: PrefixTree,
    pub(crate) pins: Pins,
    pub(crate) writer: Writer,
    pub(crate) backlog: Backlog,
    /// Payload buffers that came back from the writer.
    pub(crate) spare: Vec<Vec<u8>>,
    /// Whether the store takes blocks of this model.
    pub(crate) is_saving: bool,
    /// How fast this model's blocks are read, and its tokens computed, on this machine.
    pub(crate) rates: Rates,
    /// Why the CPU runs the model, where it was not chosen.
    pub(crate) cpu_reason: Option<String>,
    /// Layers that a GPU runs, where it has not all.
    pub(crate) device_layers: Option<usize>,
    pub(crate) reading: Reading,
}

impl Cache {
    /// A pool of about `pool_bytes` for `model`, and the tree of what `store` has for it.
    ///
    /// # Errors
    /// When the device cannot give the pool.
    pub fn open(model: Arc<Model>, pool_bytes: u64, store: Arc<Mutex<BlockStore>>) -> Result<Self> {
        let layout = model.kv_layout();
        let fingerprint = Fingerprint(model.fingerprint().0);
        let slots_for_bytes =
            usize::try_from(pool_bytes).unwrap_or(usize::MAX) / layout.slot_bytes();
        // Two slots are the least that can copy a partly matching block.
        let pool = BlockPool::new(model.pool(slots_for_bytes.max(2))?);
        let tree = PrefixTree::new(fingerprint);
        let writer = Writer::start(fingerprint, Arc::clone(&store));
        let num_cores = std::thread::available_parallelism().map_or(1, usize::from);
        // Where a GPU computes, all cores are free to read.
        let num_computing = match model.device() {
            Some(_) if !model.is_on_both() => 0,
            _ => model.num_threads(),
        };
        let reading = Reading::of(&slot_format(&layout), num_computing, num_cores);
        let reading = match model.is_on_both() {
            true => reading.whole(),
            false => reading,
        };
        let mut cache = Self {
            model,
            fingerprint,
            store,
            pool,
            host: None,
            tree,
            pins: Pins::default(),
            writer,
            backlog: Backlog::default(),
            spare: Vec::new(),
            is_saving: false,
            rates: Rates::default(),
            cpu_reason: None,
            device_layers: None,
            reading,
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
        (self.slots_for_context() * self.model.kv_layout().slot_bytes()) as u64
    }

    /// Bytes that the model and its pool hold on a GPU; 0 on the CPU.
    pub(crate) fn device_bytes(&self) -> u64 {
        self.model.device().map_or(0, |decoder| {
            let weights = decoder.weights_bytes() + decoder.scratch_bytes();
            (weights + self.pool.kv().device_bytes()) as u64
        })
    }

    /// The memory that the model and its pool lie in; the machine's, where they lie in both.
    pub(crate) fn machine(&self) -> Option<Machine> {
        match self.model.device() {
            Some(decoder) if !self.model.is_on_both() => {
                Machine::of_device(decoder.device(), self.device_bytes())
            }
            _ => Machine::now(),
        }
    }

    /// Takes the memory of as long a session as the model can have, at once: no turn fails for memory later.
    ///
    /// # Errors
    /// When the pool is smaller, or the system does not give it.
    pub fn reserve_context(&mut self) -> Result<()> {
        self.pool.reserve(self.slots_for_context())
    }

    /// Takes the first stretch of the pool's memory: a GPU that has none is found out before a turn needs it.
    pub(crate) fn reserve_first(&self) -> Result<()> {
        Ok(self.pool.kv().reserve(0)?)
    }

    /// Slots of as long a session as the model can have, and one to copy a partly matching block from.
    fn slots_for_context(&self) -> usize {
        self.model.config().context_length.div_ceil(BLOCK_TOKENS) + 1
    }

    /// Bytes written to pool files since the model was loaded.
    pub fn bytes_written(&self) -> u64 {
        self.writer.bytes_written()
    }

    /// A free slot, evicting the least recently used block that no session holds when there is none, or no memory for one;
    /// pinned ones last, or not at all. What it holds is of no meaning.
    ///
    /// # Errors
    /// [`Error::PoolFull`] when nothing may go; [`Error::Kernels`] when the system gives no memory.
    pub(crate) fn allocate(&mut self, evict: Evict) -> Result<u32> {
        loop {
            let full = match self.pool.allocate() {
                Ok(Some(slot)) => return Ok(slot),
                Ok(None) => Error::PoolFull {
                    num_slots: self.pool.num_slots(),
                },
                Err(error) => error,
            };
            self.collect_results();
            let (pool, pins) = (&self.pool, &self.pins);
            let oldest = self.tree.oldest_leaf(Tier::Pool, |node, slot| {
                let pin = pins.of(&node.block.id);
                (!pool.is_shared(slot) && evict.allows(pin)).then_some(pin)
            });
            let Some(id) = oldest else {
                return Err(full);
            };
            if !self.move_to_host(&id) {
                self.save(&id, Wait::ForRoom)?;
            }
            self.drop_resident(&id);
        }
    }

    /// Lets the allocation of a block fail once so many have succeeded in its tier, as when the system has no more memory; for tests of
    /// what then happens. `None` ends that.
    pub fn fail_allocations_after(&mut self, allocations: Option<u32>) {
        self.pool.fail_after(allocations);
        if let Some(host) = &mut self.host {
            host.fail_after(allocations);
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
            self.drop_from_memory(&old);
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
                self.save_later(id);
                self.save_overdue();
                slot
            }
        }
    }

    /// Saves whatever is resident and unsaved, and waits for it: before the model goes, or the process ends.
    pub(crate) fn save_all(&mut self) {
        let unsaved: Vec<_> = self
            .tree
            .nodes()
            .filter(|(_, node)| node.saved == Saved::No)
            .map(|(id, _)| *id)
            .collect();
        unsaved.into_iter().for_each(|id| self.save_later(id));
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

    /// Drops from memory what is not on disk: all that was saved and is forgotten, and would else come back there. Where nothing is
    /// saved it stays. No session is open.
    pub(crate) fn drop_unsaved(&mut self) {
        let is_unsaved = |(id, node): (&BlockId, &Node)| (node.saved == Saved::No).then_some(*id);
        let unsaved: Vec<BlockId> = match self.is_saving {
            true => self.tree.nodes().filter_map(is_unsaved).collect(),
            false => Vec::new(),
        };
        unsaved.iter().for_each(|id| self.drop_from_memory(id));
    }

    /// Opens this model's pool in the store and returns what is in it, parents before children.
    fn open_pool(&mut self) -> Vec<Block> {
        let format = slot_format(&self.model.kv_layout());
        let mut store = lock(&self.store);
        self.is_saving = store.open_pool(&self.fingerprint, format, self.model.name());
        match self.is_saving {
            true => store.blocks(&self.fingerprint),
            false => Vec::new(),
        }
    }

    /// The block store behind the pool.
    pub(crate) fn store(&self) -> &Mutex<BlockStore> {
        &self.store
    }

    /// Checks that the counts of the working pool are exactly the tree's slots plus `tables`, and those of the host tier the tree's.
    ///
    /// # Errors
    /// [`Error::Corrupt`] naming what differs.
    pub fn check(&self, tables: &[&[u32]]) -> Result<()> {
        let expected = |tier, pool: &BlockPool, tables: &[&[u32]]| {
            let of_tree = self.tree.nodes().filter_map(|(_, node)| node.slot_in(tier));
            let of_tables = tables.iter().flat_map(|table| table.iter().copied());
            let mut expected = vec![0; pool.num_slots()];
            for slot in of_tree.chain(of_tables) {
                expected[slot as usize] += 1;
            }
            expected
        };
        if let Some(host) = &self.host {
            host.check(&expected(Tier::Host, host, &[]))?;
        }
        self.pool.check(&expected(Tier::Pool, &self.pool, tables))
    }

    /// Drops the tree's hold on a block in memory, in whichever tier.
    fn drop_from_memory(&mut self, id: &BlockId) {
        self.drop_from_host(id);
        self.drop_resident(id);
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
}

/// How the store is to hold slots of a layout.
fn slot_format(layout: &KvLayout) -> SlotFormat {
    SlotFormat {
        block_tokens: BLOCK_TOKENS as u32,
        tile_tokens: TILE_TOKENS as u32,
        num_layers: layout.num_layers as u32,
        key_slab_bytes: layout.key_slab_bytes() as u32,
        value_slab_bytes: layout.value_slab_bytes() as u32,
    }
}

/// Whether to wait for the writer's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Leave the block for later: for the token path, and while nobody may be kept waiting.
    Never,
    /// Wait until there is room: when its slot is needed, or before the end.
    ForRoom,
}

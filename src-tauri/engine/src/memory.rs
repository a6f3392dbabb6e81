//! What memory is used for at this moment.

use std::sync::Mutex;

use kernels::BLOCK_TOKENS;
use serde::{Deserialize, Serialize};
use store::BlockStore;
use ts_rs::TS;

use crate::PREFILL_STEP_TOKENS;
use crate::cache::Cache;
use crate::device::{DeviceUse, crowded};
use crate::machine::Machine;
use crate::plan;
use crate::writer::lock;

/// One tier that holds keys and values. All sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct TierUse {
    /// What it may take.
    pub budget_bytes: u64,
    /// What it has taken from the system.
    pub reserved_bytes: u64,
    /// Blocks that a reply in progress holds.
    pub active_bytes: u64,
    /// Blocks that are kept to be used again, and go when room is needed.
    pub cached_bytes: u64,
}

/// What memory is used for. The working pool lies in the machine's memory, or in a GPU's; then the machine's keeps what makes way
/// there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct MemoryStats {
    /// The loaded model; none when absent, and then the working pool is empty.
    pub model: Option<String>,
    /// Weights of the model.
    pub weights_bytes: u64,
    /// Activations, workspaces, angles, tokenizer.
    pub scratch_bytes: u64,
    /// The working pool.
    pub pool: TierUse,
    /// Whether the working pool took a whole context when the model was loaded.
    pub reserves_context: bool,
    /// Conversations of 4 096 tokens that the open pool holds, if they share nothing.
    pub resident_conversations: u64,
    /// What made way in a GPU's memory; empty where the CPU computes.
    pub host: TierUse,
    /// Conversations of 4 096 tokens that it holds besides, if they share nothing.
    pub host_conversations: u64,
    /// The block store.
    pub disk: TierUse,
    /// The machine; absent where the system does not say.
    pub machine: Option<Machine>,
    /// What other programs hold; absent where the system does not say.
    pub others_bytes: Option<u64>,
    /// What runs the loaded model. On a GPU, weights, scratch and the working pool lie in its memory.
    pub device: DeviceUse,
}

impl MemoryStats {
    /// Whether weights and working pool are in a GPU's memory alone.
    pub fn is_on_device(&self) -> bool {
        self.device.name.is_some() && self.device.num_layers.is_none()
    }

    /// The memory in which another model would be planned: that of the GPU, where it has the loaded one.
    pub fn planned_machine(&self) -> Option<Machine> {
        match self.is_on_device() {
            false => self.machine,
            true => Some(Machine {
                total_bytes: self.device.total_bytes,
                available_bytes: self.device.free_bytes,
                process_bytes: self.weights_bytes + self.scratch_bytes + self.pool.reserved_bytes,
            }),
        }
    }

    /// Counts what `cache` holds, and asks the store and the machine.
    pub(crate) fn of(cache: Option<&Cache>, store: &Mutex<BlockStore>) -> Self {
        let machine = Machine::now();
        let disk = lock(store).stats();
        let mut stats = Self {
            disk: TierUse {
                budget_bytes: disk.budget_bytes,
                reserved_bytes: disk.file_bytes,
                active_bytes: 0,
                cached_bytes: disk.live_bytes,
            },
            machine,
            others_bytes: machine.map(|machine| machine.others_bytes()),
            ..Self::default()
        };
        if let Some(cache) = cache {
            stats.count(cache);
        }
        stats
    }

    fn count(&mut self, cache: &Cache) {
        let (model, pool) = (cache.model(), &cache.pool);
        let footprint = model.footprint();
        let slot_bytes = pool.kv().layout().slot_bytes() as u64;
        let bytes = |slots: usize| slots as u64 * slot_bytes;
        // What only the tree holds can go; the rest of what is held belongs to a session.
        let cached = cache
            .tree
            .nodes()
            .filter(|(_, node)| node.slot.is_some_and(|slot| !pool.is_shared(slot)))
            .count();
        self.model = Some(model.name().to_owned());
        self.weights_bytes = footprint.weights_bytes;
        let on_device = model.device().map(|decoder| decoder.scratch_bytes() as u64);
        let by_threads = match on_device {
            Some(_) if !model.is_on_both() => 0,
            _ => {
                footprint.scratch_bytes(PREFILL_STEP_TOKENS as u64, model.num_threads() as u64)
                    + footprint.rope_bytes(1)
                    + footprint.tokenizer_bytes
                    + slot_bytes
            }
        };
        self.scratch_bytes = on_device.unwrap_or(0) + by_threads;
        self.device = device_use(cache);
        self.pool = TierUse {
            budget_bytes: bytes(pool.num_slots()),
            reserved_bytes: pool.kv().reserved_bytes() as u64,
            active_bytes: bytes(pool.num_held() - cached),
            cached_bytes: bytes(cached),
        };
        self.reserves_context = pool.num_reserved() > 0;
        let conversations = |bytes| plan::conversations(bytes, slot_bytes / BLOCK_TOKENS as u64);
        self.resident_conversations = conversations(self.pool.budget_bytes);
        if let Some(host) = &cache.host {
            let kept = cache.num_in_host();
            self.host = TierUse {
                budget_bytes: bytes(host.num_slots()),
                reserved_bytes: host.kv().reserved_bytes() as u64,
                active_bytes: bytes(host.num_held() - kept),
                cached_bytes: bytes(kept),
            };
            self.host_conversations = conversations(self.host.budget_bytes);
        }
    }
}

fn device_use(cache: &Cache) -> DeviceUse {
    let Some(decoder) = cache.model().device() else {
        return DeviceUse {
            reason: cache.cpu_reason.clone(),
            ..DeviceUse::default()
        };
    };
    let memory = decoder.device().memory().ok();
    let (total_bytes, free_bytes) =
        memory.map_or((0, 0), |memory| (memory.total_bytes, memory.free_bytes));
    DeviceUse {
        name: Some(decoder.device().info().name.clone()),
        reason: cache.cpu_reason.clone(),
        num_layers: cache.device_layers,
        total_bytes,
        free_bytes,
        note: crowded(total_bytes, free_bytes, cfg!(windows)),
    }
}

/// What giving memory back gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Released {
    /// Bytes that this process holds less: measured, or where the system does not say, counted.
    pub freed_bytes: u64,
    /// Whether a model was loaded before.
    pub was_loaded: bool,
}

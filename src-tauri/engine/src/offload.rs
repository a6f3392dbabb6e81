//! A model of which only the first layers fit into a GPU's memory: how many they are, and what the host has then.

use models::Footprint;

use crate::plan::MemoryPlan;

/// A part of the room that is left to what other programs may still take, so that as many layers fit the next time: blocks belong
/// to a number of layers.
const LEFT: u64 = 16;

/// How a model lies in two memories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offload {
    /// Layers on the GPU, from the first on.
    pub(crate) num_layers: usize,
    /// Bytes of their weights, of the embedding and of the head.
    weights_bytes: u64,
    /// What the pool may take, of both memories together.
    pool_bytes: u64,
}

impl Offload {
    /// As many layers as fit into `room_bytes` with their share of `kv_bytes` of keys and values, by the plan for all of them there.
    /// `None` where not even one does.
    pub(crate) fn new(
        plan: &MemoryPlan,
        footprint: &Footprint,
        room_bytes: u64,
        kv_bytes: u64,
    ) -> Option<Self> {
        let room = (room_bytes - room_bytes / LEFT).checked_sub(plan.scratch_bytes)?;
        let all = footprint.num_layers();
        let share = |bytes: u64, num_layers: usize| bytes * num_layers as u64 / all as u64;
        let fits = |num_layers: &usize| {
            footprint.device_weights_bytes(*num_layers) + share(kv_bytes, *num_layers) <= room
        };
        let num_layers = (1..all).rev().find(fits)?;
        let weights_bytes = footprint.device_weights_bytes(num_layers);
        Some(Self {
            num_layers,
            weights_bytes,
            pool_bytes: (room - weights_bytes) * all as u64 / num_layers as u64,
        })
    }

    /// The plan for the host's memory, when the GPU has its part of the model.
    pub(crate) fn plan(self, of_host: MemoryPlan) -> MemoryPlan {
        MemoryPlan {
            weights_bytes: of_host.weights_bytes.saturating_sub(self.weights_bytes),
            pool_bytes: of_host.pool_bytes.min(self.pool_bytes),
            ..of_host
        }
    }
}

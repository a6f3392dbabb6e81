//! A model that does not fit into a GPU's memory: how many of its layers do, and what the host has then.

use models::Footprint;
use serde::{Deserialize, Serialize};
use ts_rs::TS;

use kernels::BLOCK_TOKENS;

use crate::plan::{CONVERSATION_TOKENS, MemoryPlan, plannable_bytes};
use crate::session::PREFILL_STEP_TOKENS;

/// A part of the room that is left to what other programs may still take, so that as many layers fit the next time: blocks belong
/// to a number of layers.
const LEFT: u64 = 16;

/// How a model lies in two memories, or in the host's alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Offload {
    /// Layers that the GPU computes, from the first on; 0 where there is no room for one.
    pub device_layers: u64,
    /// All of them; the CPU computes the others.
    pub num_layers: u64,
    /// What the GPU would have to have free for all of them and a conversation, in bytes.
    pub needed_bytes: u64,
    /// Bytes of weights on the GPU: of its layers, of the embedding and of the head.
    pub device_weights_bytes: u64,
    /// What the working pool may take, of both memories together.
    pub pool_bytes: u64,
}

impl Offload {
    /// For a model that is planned in a GPU's memory and does not fit there beside a conversation: as many layers as do, with their
    /// share of its keys and values. `None` where all fit, or the driver does not say.
    pub(crate) fn new(plan: &MemoryPlan, footprint: &Footprint) -> Option<Self> {
        let room_bytes = plannable_bytes(plan.machine.filter(|_| plan.is_on_device), true)?;
        let kv_bytes = conversation_bytes(plan);
        let needed_bytes = plan.loaded_bytes() + kv_bytes;
        if needed_bytes <= room_bytes {
            return None;
        }
        let all = footprint.num_layers() as u64;
        let none = Self {
            device_layers: 0,
            num_layers: all,
            needed_bytes,
            device_weights_bytes: 0,
            pool_bytes: 0,
        };
        // The host's part takes small steps, and so both do.
        let (step, context) = (PREFILL_STEP_TOKENS as u64, plan.context_tokens);
        let scratch_bytes =
            footprint.rope_bytes(context) + footprint.device_scratch_bytes(step, context);
        let room = (room_bytes - room_bytes / LEFT).checked_sub(scratch_bytes);
        let Some(room) = room else {
            return Some(none);
        };
        let weights = |layers: u64| footprint.device_weights_bytes(layers as usize);
        let fits = |layers: &u64| weights(*layers) + kv_bytes * layers / all <= room;
        Some(match (1..all).rev().find(fits) {
            None => none,
            Some(device_layers) => Self {
                device_layers,
                device_weights_bytes: weights(device_layers),
                pool_bytes: (room - weights(device_layers)) * all / device_layers,
                ..none
            },
        })
    }

    /// The plan for the host's memory, when the GPU has its part of the model.
    pub(crate) fn plan(self, of_host: MemoryPlan) -> MemoryPlan {
        if self.device_layers == 0 {
            return of_host;
        }
        MemoryPlan {
            weights_bytes: of_host
                .weights_bytes
                .saturating_sub(self.device_weights_bytes),
            pool_bytes: of_host.pool_bytes.min(self.pool_bytes),
            ..of_host
        }
    }
}

/// What a pool should have on a GPU: room for a conversation.
fn conversation_bytes(plan: &MemoryPlan) -> u64 {
    let tokens = CONVERSATION_TOKENS.min(plan.model_context_tokens);
    let bytes = tokens * plan.kv.bytes_per_token;
    bytes.min(plan.pool_bytes).max(least_pool_bytes(plan))
}

/// The least that a pool must have: what it takes at once, or two blocks, which can copy a partly matching one.
pub(crate) fn least_pool_bytes(plan: &MemoryPlan) -> u64 {
    let two_blocks = 2 * BLOCK_TOKENS as u64 * plan.kv.bytes_per_token;
    plan.reserved_bytes.max(two_blocks)
}

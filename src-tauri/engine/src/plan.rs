//! The memory plan: what a model will take, before it is loaded, and what fits into this machine.
//!
//! There are three tiers: memory, where weights and working pool lie (the machine's, or a GPU's); beside a GPU's the machine's, which
//! keeps what makes way; and disk, where the block store is. The plan is arithmetic over numbers that are handed in; it reads no weights and changes nothing.

use kernels::{BLOCK_TOKENS, KvFormat};
use models::{Footprint, ModelInfo};
use serde::{Deserialize, Serialize};
use ts_rs::TS;

use crate::backlog::QUEUE_BYTES;
use crate::machine::Machine;
use crate::offload::Offload;
use crate::session::{DEVICE_STEP_TOKENS, PREFILL_STEP_TOKENS};

/// Tokens of the conversation by which capacities are told.
pub const CONVERSATION_TOKENS: u64 = 4096;
/// What the program takes before it has a model: its code, libraries, the history, the window's own process not counted.
/// Measured; see `tests/integration/memory`.
const PROGRAM_BYTES: u64 = 17 << 20;
/// Largest pool that is chosen without being asked for, in bytes and in full contexts; one context is never too many.
const MOST_POOL_BYTES: u64 = 16 << 30;
const MOST_POOL_CONTEXTS: u64 = 64;
/// Largest pool size on a machine that does not report its memory size.
const MOST_ADDRESSED_BYTES: u64 = 1 << 44;
/// Pool where the machine does not say how much memory it has.
const UNKNOWN_POOL_BYTES: u64 = 2 << 30;
/// Smallest pool that is chosen without being asked for.
const LEAST_POOL_BYTES: u64 = 64 << 20;
/// The part of the available memory that the host tier may take without being asked for, and the most of it. It is pinned, so that
/// other programs cannot have it while it is used.
const HOST_PART: u64 = 4;
const MOST_HOST_BYTES: u64 = 16 << 30;

/// What is left of a GPU's memory for the driver's own: code, recorded launches, and the ends of pages. Of this part of it, and at
/// most so much.
const DEVICE_PART: u64 = 32;
const MOST_DEVICE_BYTES: u64 = 256 << 20;

/// One way to keep keys and values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct KvSize {
    /// Its name: `f16`, `bf16`, `q8`, `q4`, or `keys/values`.
    pub format: String,
    /// Bytes of keys and values per token.
    pub bytes_per_token: u64,
}

/// What the plan says about a context of the asked length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// It fits.
    Fits,
    /// It fits when keys and values are kept in this format.
    FitsWith {
        /// Name of the format.
        format: String,
    },
    /// It does not fit.
    Needs {
        /// Bytes of memory that it takes altogether.
        needed_bytes: u64,
    },
    /// The machine does not say how much memory it has.
    Unknown,
}

/// The host tier: the machine's memory beside a GPU's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct HostPlan {
    /// What it may take; it takes memory only as it is used.
    pub budget_bytes: u64,
    /// Conversations of 4 096 tokens that find room in it, besides those in the working pool.
    pub conversations: u64,
}

/// The disk tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct DiskPlan {
    /// What the block store may use.
    pub budget_bytes: u64,
    /// What it uses.
    pub used_bytes: u64,
    /// Free space of the disk; absent where the system does not say.
    pub free_bytes: Option<u64>,
    /// Conversations of 4 096 tokens that find room in it, those that are there not counted off.
    pub conversations: u64,
}

/// What a model takes and what fits. All sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct MemoryPlan {
    /// The model's name.
    pub model: String,
    /// Tokens of context that were asked for.
    pub context_tokens: u64,
    /// Tokens of context that the model was trained for.
    pub model_context_tokens: u64,
    /// Format of keys and values, and its bytes per token.
    pub kv: KvSize,
    /// Weights as they lie in memory.
    pub weights_bytes: u64,
    /// Keys and values of the context, in whole blocks.
    pub kv_bytes: u64,
    /// What the pool takes when the model is loaded, for the model's whole context; 0 where it takes memory as it is used.
    pub reserved_bytes: u64,
    /// Activations, workspaces, angles, logits, and blocks on their way to disk.
    pub scratch_bytes: u64,
    /// Tokenizer and the program itself.
    pub runtime_bytes: u64,
    /// Whether it is a GPU's memory that is planned; what the program itself takes is in the machine's then, and not in the total.
    pub is_on_device: bool,
    /// All of the above; of the context and what is reserved the larger.
    pub total_bytes: u64,
    /// The machine's memory; absent where the system does not say.
    pub machine: Option<Machine>,
    /// What other programs hold; absent where the system does not say.
    pub others_bytes: Option<u64>,
    /// What the working pool may take; it takes memory only as it is used.
    pub pool_bytes: u64,
    /// Whether it fits.
    pub verdict: Verdict,
    /// Longest context that fits, in tokens; at most the model's.
    pub longest_context_tokens: u64,
    /// Conversations of 4 096 tokens that stay in the pool, if they share nothing.
    pub resident_conversations: u64,
    /// How it is computed where the GPU has no room for it; absent where it has, and on the CPU.
    pub offload: Option<Offload>,
    /// The host tier; empty where the CPU computes.
    pub host: HostPlan,
    /// The disk tier.
    pub disk: DiskPlan,
}

/// What a plan starts from besides the model.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    /// The machine, where it says.
    pub machine: Option<Machine>,
    /// Whether `machine` is a GPU's memory.
    pub is_on_device: bool,
    /// The machine's memory beside a GPU's, where the system says.
    pub host: Option<Machine>,
    /// What the user gave to the host tier; chosen by the plan when absent.
    pub host_bytes: Option<u64>,
    /// Threads to compute with.
    pub threads: u64,
    /// What the user gave to the working pool; chosen by the plan when absent.
    pub pool_bytes: Option<u64>,
    /// Whether the pool takes the model's whole context at once.
    pub reserves_context: bool,
    /// What the block store may use and uses.
    pub disk: DiskPlan,
}

/// The format that a model gets when `kv` is asked for, then those that take less, the largest first.
pub fn kv_sizes(footprint: &Footprint, kv: KvFormat) -> Vec<KvSize> {
    let mut sizes: Vec<KvSize> = Vec::new();
    for asked in [kv, KvFormat::Q8, KvFormat::Q4] {
        let (format, bytes_per_token) = footprint.kv(asked);
        if sizes
            .last()
            .is_none_or(|last| bytes_per_token < last.bytes_per_token)
        {
            sizes.push(KvSize {
                format: format.to_string(),
                bytes_per_token,
            });
        }
    }
    sizes
}

impl MemoryPlan {
    /// What is taken when the model is loaded.
    pub fn loaded_bytes(&self) -> u64 {
        let beside = if self.is_on_device {
            0
        } else {
            self.runtime_bytes
        };
        self.weights_bytes + self.scratch_bytes + beside + self.reserved_bytes
    }

    /// The plan for `context_tokens` tokens (the model's own context when absent), with keys and values as the first of
    /// `formats`; the others are what could be chosen instead, the largest first.
    pub fn new(
        info: &ModelInfo,
        footprint: &Footprint,
        context_tokens: Option<u64>,
        formats: &[KvSize],
        around: &Circumstances,
    ) -> Self {
        let kv = formats.first().cloned().unwrap_or_else(|| KvSize {
            format: info.kv_format.clone(),
            bytes_per_token: info.kv_bytes_per_token,
        });
        let most = info.context_length as u64;
        let context_tokens = context_tokens.unwrap_or(most).clamp(1, most);
        let scratch_bytes = footprint.rope_bytes(context_tokens)
            + match around.is_on_device {
                true => footprint.device_scratch_bytes(DEVICE_STEP_TOKENS as u64, context_tokens),
                false => {
                    footprint.scratch_bytes(PREFILL_STEP_TOKENS as u64, around.threads)
                        + in_flight_bytes(kv.bytes_per_token)
                }
            };
        let runtime_bytes = footprint.tokenizer_bytes + PROGRAM_BYTES;
        let beside = if around.is_on_device {
            0
        } else {
            runtime_bytes
        };
        let fixed = footprint.weights_bytes + scratch_bytes + beside;
        let kv_bytes = kv_bytes(context_tokens, kv.bytes_per_token);
        // What keys and values may take; what is measured now holds as long as other programs stay as they are.
        let left = plannable_bytes(around.machine, around.is_on_device);
        let left = left.map(|bytes| bytes.saturating_sub(fixed));
        let most_pool = around
            .machine
            .map_or(MOST_ADDRESSED_BYTES, |machine| machine.total_bytes);
        let pool_bytes = around
            .pool_bytes
            // A larger value is clamped to the machine's memory.
            .map(|given| given.min(most_pool))
            .unwrap_or_else(|| default_pool_bytes(left, most, kv.bytes_per_token));
        let limit = left.map_or(pool_bytes, |left| left.min(pool_bytes));
        // A block beside the context, to copy a partly matching one from.
        let pool_of = |tokens: u64, kv: &KvSize| {
            self::kv_bytes(tokens, kv.bytes_per_token) + block_bytes(kv.bytes_per_token)
        };
        let at_once = |kv: &KvSize| match around.reserves_context {
            true => pool_of(most, kv),
            false => 0,
        };
        let fits = |kv: &KvSize| pool_of(context_tokens, kv).max(at_once(kv)) <= limit;
        let reserved_bytes = at_once(&kv);
        let total_bytes = fixed + kv_bytes.max(reserved_bytes);
        let verdict = match formats.iter().position(fits) {
            _ if left.is_none() => Verdict::Unknown,
            Some(0) => Verdict::Fits,
            Some(at) => Verdict::FitsWith {
                format: formats[at].format.clone(),
            },
            None => Verdict::Needs {
                needed_bytes: total_bytes,
            },
        };
        let blocks = limit / block_bytes(kv.bytes_per_token);
        let mut plan = Self {
            model: info.name.clone(),
            context_tokens,
            model_context_tokens: most,
            weights_bytes: footprint.weights_bytes,
            kv_bytes,
            reserved_bytes,
            scratch_bytes,
            runtime_bytes,
            is_on_device: around.is_on_device,
            total_bytes,
            machine: around.machine,
            others_bytes: around.machine.map(|machine| machine.others_bytes()),
            pool_bytes,
            verdict,
            longest_context_tokens: most.min(blocks.saturating_sub(1) * BLOCK_TOKENS as u64),
            resident_conversations: conversations(limit, kv.bytes_per_token),
            offload: None,
            host: host(around, kv.bytes_per_token),
            disk: disk(around.disk, kv.bytes_per_token),
            kv,
        };
        plan.offload = Offload::new(&plan, footprint);
        // The machine's memory comes as it is used, a GPU's in stretches that the pool is made of.
        if let Some(left) = left.filter(|_| around.is_on_device) {
            plan.pool_bytes = plan.pool_bytes.min(left);
        }
        plan
    }
}

/// What the plan leaves of a GPU's memory.
pub(crate) fn left_to_driver(total_bytes: u64) -> u64 {
    (total_bytes / DEVICE_PART).min(MOST_DEVICE_BYTES)
}

/// What this process may have of a memory; absent where the system does not say.
pub(crate) fn plannable_bytes(machine: Option<Machine>, is_on_device: bool) -> Option<u64> {
    let machine = machine?;
    let kept = match is_on_device {
        true => left_to_driver(machine.total_bytes),
        false => 0,
    };
    Some(machine.room_bytes().saturating_sub(kept))
}

/// Bytes of blocks on their way from the pool to disk: as many whole ones as the writer may have, and at least one.
fn in_flight_bytes(bytes_per_token: u64) -> u64 {
    let block = block_bytes(bytes_per_token);
    (QUEUE_BYTES as u64 / block).max(1) * block
}

/// Bytes of a block of 64 tokens.
fn block_bytes(bytes_per_token: u64) -> u64 {
    (BLOCK_TOKENS as u64 * bytes_per_token).max(1)
}

/// Bytes of `num_tokens` tokens, in whole blocks.
fn kv_bytes(num_tokens: u64, bytes_per_token: u64) -> u64 {
    num_tokens.div_ceil(BLOCK_TOKENS as u64) * block_bytes(bytes_per_token)
}

/// Conversations of [`CONVERSATION_TOKENS`] that `bytes` have room for, if they share nothing.
pub(crate) fn conversations(bytes: u64, bytes_per_token: u64) -> u64 {
    bytes / kv_bytes(CONVERSATION_TOKENS, bytes_per_token)
}

/// Half of what is left beside the weights; more where one full context needs it, but never nearly all.
fn default_pool_bytes(left: Option<u64>, context_tokens: u64, bytes_per_token: u64) -> u64 {
    let Some(left) = left else {
        return UNKNOWN_POOL_BYTES;
    };
    let context = kv_bytes(context_tokens, bytes_per_token) + block_bytes(bytes_per_token);
    let most = MOST_POOL_BYTES
        .min(MOST_POOL_CONTEXTS * context)
        .max(context);
    (left / 2)
        .min(most)
        .max(context.min(left / 10 * 9))
        .max(LEAST_POOL_BYTES)
}

/// What the host tier may take beside a GPU: what the user gave it, or a part of what programs could still take.
pub(crate) fn host_bytes(given: Option<u64>, machine: Option<Machine>) -> u64 {
    given.unwrap_or_else(|| {
        let available = machine.map_or(0, |machine| machine.available_bytes);
        (available / HOST_PART).min(MOST_HOST_BYTES)
    })
}

fn host(around: &Circumstances, bytes_per_token: u64) -> HostPlan {
    let budget_bytes = match around.is_on_device {
        true => host_bytes(around.host_bytes, around.host),
        false => 0,
    };
    HostPlan {
        budget_bytes,
        conversations: conversations(budget_bytes, bytes_per_token),
    }
}

fn disk(disk: DiskPlan, bytes_per_token: u64) -> DiskPlan {
    let room = disk.free_bytes.map_or(disk.budget_bytes, |free| {
        disk.budget_bytes.min(free.saturating_add(disk.used_bytes))
    });
    DiskPlan {
        conversations: conversations(room, bytes_per_token),
        ..disk
    }
}

//! Block pools, prefix tree, sessions and turns: the part of Reprise that never reads the same text twice.
//!
//! One thread owns the model and the pool ([`Engine`] is its handle); another receives requests, so that words are
//! durable even while the first one is busy (`intake`). A turn becomes tokens (`prompt`), the session makes its
//! timeline those tokens ([`Session::sync`]): it walks the prefix tree, brings blocks from disk into the pool
//! ([`Cache`]), copies and truncates a partly matching one, and computes the rest. Then it samples, and the words are
//! in history before they are shown. What is new goes to disk on a writer thread, when the turn has ended. The memory
//! plan ([`MemoryPlan`]) says what a model will take; what it took is given back when nobody uses it.
//!
//! Not here: windows, SQL, file layouts (store), tensors and tokenizers (models, kernels). Requests and events are plain
//! data, so that the engine can live in a process of its own.

mod backlog;
mod cache;
pub mod catalog;
#[cfg(target_os = "linux")]
mod cgroup;
mod chat_turn;
pub mod control;
mod desk;
mod device;
mod draft;
mod engine;
mod error;
mod fallback;
mod hold;
mod host;
mod intake;
mod limits;
mod loading;
pub mod machine;
mod memory;
mod offload;
mod pins;
mod plan;
mod pool;
mod privacy;
pub mod process;
mod prompt;
mod question;
mod rates;
mod reply;
mod reply_text;
mod request;
mod restore;
mod room;
mod session;
mod shorten;
mod summary;
mod tree;
mod turn;
mod typed_path;
mod warm;
mod worker;
mod writer;

pub use cache::Cache;
pub use catalog::{ModelEntry, RemovedModel};
pub use device::{Chosen, DeviceChoice, DeviceEntry, DeviceList, DeviceUse};
pub use draft::draft_tokens;
pub use engine::{Engine, EngineConfig};
pub use error::{Error, Result};
pub use limits::{KvChoice, MemoryLimits, reserve_context, reserves_context};
pub use loading::plan_of;
pub use memory::{MemoryStats, Released, TierUse};
pub use models::ModelInfo;
pub use offload::Offload;
pub use plan::{
    CONVERSATION_TOKENS, Circumstances, DiskPlan, HostPlan, KvSize, MemoryPlan, Verdict, kv_sizes,
};
pub use privacy::{PrivacyState, rewrite_some};
pub use process::EngineProcess;
pub use request::{Answer, Request, TurnEvents};
pub use session::{PREFILL_STEP_TOKENS, Session, Synced, prefill_step_tokens};
pub use turn::{
    ContextChoice, ContextUse, EditCost, Shorten, TooLong, Turn, TurnEvent, TurnOptions,
};

//! What is on disk, in one data folder that one process holds at a time ([`DataFolder`]).
//!
//! [`History`] is the truth: conversations as trees of messages, each with the exact token ids the model saw, in SQLite.
//! It opens fallibly, returns `Result`, and a user's message is durable when [`History::append_message`] returns.
//!
//! [`BlockStore`] is a cache: the KV cache of token sequences in blocks, as checksummed slots of pool files beside a small
//! index. It opens infallibly and returns `Option`: any doubt about a block is a miss with a logged reason.
//!
//! Both can be encrypted under one key of the data folder, which a passphrase or the system's keychain unlocks
//! ([`History::protect`], [`Seal`]).
//!
//! Not here: tensors, tokenizing, windows, and a clock: times come in as parameters.

mod block_store;
mod data_folder;
mod database;
mod error;
mod file;
mod fold;
mod history;
mod key;
mod key_file;
mod keychain;
mod title;
mod unbuffered;

pub use block_store::{
    Block, BlockId, BlockRef, BlockStore, Budget, CacheStats, Fingerprint, GcReport, PoolStats,
    ReadOutcome, ReadPlan, SlotFormat, VerifyReport,
};
pub use data_folder::DataFolder;
pub use error::{Error, Result};
pub use history::{
    BranchPart, Conversation, ConversationId, Format, History, HitKind, Mark, Message, MessageId,
    MessageKind, MessageState, ModelPath, NewConversation, NewMessage, Prefill, Role, Sampling,
    SearchHit, TokenRow, TurnStats, Unsent, WhenFull,
};
pub use key::{LEAST_PASSPHRASE, Passphrase, Privacy, Seal, Secret, Unlocks};
pub use title::{file_stem, title_from, title_of};

//! Model files to tokens to logits, over a caller's KV blocks.
//!
//! [`Model::load`] opens a GGUF file; [`Model::forward`] runs tokens at an offset and writes their keys and values into
//! the pool slots that the caller's block table names. One decoder serves every architecture: they differ by data
//! ([`ModelConfig`]), not by code. [`Tokenizer`] and [`ChatTemplate`] come from the same file and turn a conversation
//! into one token list per message; text that a person typed never becomes a special token. [`Sampler`],
//! [`Detokenizer`] and [`StopStrings`] turn logits back into words. [`Fingerprint`] names everything that a cached
//! block's bytes depend on.
//!
//! Not here: which slots a sequence owns, what is cached where, when to stop a turn (the engine), and how a tensor
//! operation is computed (kernels).

mod config;
mod conversation;
mod date;
mod decoder;
mod detokenizer;
mod digest;
mod error;
mod extent;
mod fingerprint;
mod footprint;
mod foreign;
mod gguf;
mod header;
mod jinja;
mod key_balance;
mod kv_quality;
mod marker;
mod message;
mod model;
mod model_info;
mod pieces;
mod pre_tokenizer;
mod rope_table;
mod sampler;
mod source;
mod span;
mod stamp;
mod stop;
mod template;
mod thought;
#[cfg(feature = "tiny")]
pub mod tiny;
mod tokenizer;
mod trial;
mod vocabulary;

pub use config::{Architecture, ModelConfig, RopeScaling};
pub use conversation::Ends;
pub use detokenizer::Detokenizer;
pub use digest::DigestCache;
pub use error::{Error, Result};
pub use extent::Extent;
pub use fingerprint::Fingerprint;
pub use footprint::Footprint;
pub use message::{ChatMessage, Role};
pub use model::{LoadOptions, Model};
pub use model_info::{ModelInfo, inspect};
pub use sampler::{Sampler, SamplerConfig};
pub use stop::StopStrings;
pub use template::ChatTemplate;
pub use thought::answer;
pub use tokenizer::Tokenizer;
pub use trial::trials;

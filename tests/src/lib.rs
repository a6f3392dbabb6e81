//! What the tests over the whole of Reprise share.
//!
//! [`Chat`] is a real engine over a real data folder with one conversation, driven in whole sentences: `say`, `edit`,
//! `regenerate`, `restart`, `without_cache`. [`Subject`] names the model it runs: the real default model, or a tiny one.
//! [`Cli`] is the `reprise-cli` binary as a process that can be killed.
//!
//! Not here: tests. They are in `integration` (laws and regressions) and `e2e` (the real window).

mod chat;
mod cli;
mod model;
mod text;

pub use chat::{Chat, Outcome};
pub use cli::{Cli, Running, engine_program, processes};
pub use model::{Subject, default_model};
pub use text::{message_for_prompt, prose};

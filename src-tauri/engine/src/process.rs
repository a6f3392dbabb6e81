//! The engine in a process of its own, so that a fault of it (a driver's, a kernel's) does not take the window down.
//!
//! [`Engine::spawn`](crate::Engine::spawn) starts `reprise-engine` and talks to it over its standard streams: the same
//! requests and answers as in one process, each a frame (`frame`). The process says which protocol and version it speaks
//! before anything else, opens the data folder that its parent holds the lock of, and is then ready. Here:
//!
//! - `program`: the process as a program: its start and its end.
//! - `remote`: the parent's side. It passes requests on and answers back, starts the process again when it ends unasked, and
//!   says so to everybody who waits for an answer that cannot be had any more.
//! - [`host`]: the process's side. It ends, saved, when its parent closes the stream, by intent or by dying.

pub(crate) mod frame;
pub mod host;
mod program;
pub(crate) mod remote;

use serde::{Deserialize, Serialize};
use store::Passphrase;

use crate::request::{Answer, Request};

pub use program::EngineProcess;

/// Raised with any change of the frames below or of what is in them.
pub(crate) const PROTOCOL: u32 = 1;

/// What the parent sends first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Opening {
    /// What may unlock the history, the likeliest first; none where it is not locked, or the system's keychain unlocks it.
    pub passphrases: Vec<Passphrase>,
}

/// What the parent sends then.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    /// Names the answers.
    pub id: u64,
    pub request: Request,
}

/// What the process sends. First `Hello`, then `Ready` or `Refused`, then the others in any order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub(crate) enum Reply {
    Hello {
        protocol: u32,
        version: String,
    },
    /// The data folder is open.
    Ready,
    /// It cannot be opened; the process ends.
    Refused {
        code: String,
        message: String,
    },
    Answer {
        id: u64,
        answer: Answer,
    },
    /// No more answers to this call.
    End {
        id: u64,
    },
}

/// The version of this build; the two processes of an installation have the same.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

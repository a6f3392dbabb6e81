//! Requests to the engine and its answers: plain data over channels.

use std::sync::mpsc::{Receiver, Sender};

use models::ModelInfo;
use serde::{Deserialize, Serialize};
use store::{CacheStats, ConversationId, MessageId, Passphrase, Secret, VerifyReport};

use crate::Error;
use crate::device::DeviceList;
use crate::limits::MemoryLimits;
use crate::memory::{MemoryStats, Released};
use crate::privacy::PrivacyState;
use crate::turn::{ContextUse, EditCost, Turn, TurnEvent};

/// A request that changes nothing (law 7). It may be answered while a reply is decoded.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "question", rename_all = "snake_case")]
pub enum Question {
    /// The cost of sending `text` in place of `message`, or after the active leaf.
    Preview {
        /// The conversation.
        conversation: ConversationId,
        /// The message that is being edited.
        message: Option<MessageId>,
        /// The draft.
        text: String,
    },
    /// The cost of going on with `text` as the system prompt.
    PreviewSystem {
        /// The conversation.
        conversation: ConversationId,
        /// The draft.
        text: String,
    },
    /// The cost of the first message of a new conversation.
    PreviewNew {
        /// May be empty.
        system_prompt: String,
        /// The first message.
        text: String,
    },
    /// How full the context of a conversation is.
    Context {
        /// The conversation.
        conversation: ConversationId,
    },
    /// The loaded model.
    Loaded,
    /// Statistics of the block store.
    CacheStats,
    /// Memory use.
    Memory,
    /// The GPUs of the machine.
    Devices,
    /// Whether conversations are encrypted on disk.
    Privacy,
}

impl From<Question> for Request {
    fn from(question: Question) -> Self {
        Self::Question { question }
    }
}

/// A request to the engine. A `Turn` answers with many events, every other request with one answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// Ask a question.
    Question {
        /// The question.
        question: Question,
    },
    /// Do a turn.
    Turn {
        /// Which.
        turn: Turn,
    },
    /// Stop the turn of a conversation, running or waiting.
    Cancel {
        /// Which.
        conversation: ConversationId,
    },
    /// Somebody looks at this conversation from now on, or at none: its active branch is brought into the pool, and is the
    /// last to leave it. Replaces one that waits, and any `Warm`; one that runs ends early.
    Open {
        /// Which.
        conversation: Option<ConversationId>,
    },
    /// Bring the active branch of a conversation into the pool in case that it is opened, as far as it is on disk and
    /// nothing pinned has to go. Replaces one that waits; one that runs ends early.
    Warm {
        /// Which.
        conversation: ConversationId,
    },
    /// Read ahead what is being typed instead of `message`, or after the active leaf; an empty text discards it.
    Draft {
        /// Where.
        conversation: ConversationId,
        /// The message that is being edited.
        message: Option<MessageId>,
        /// What stands in the field.
        text: String,
    },
    /// Give the pool the memory for as long a context as the model can hold.
    RaiseContext,
    /// Load a model by name; the default one when absent.
    Load {
        /// Name from the list of models.
        name: Option<String>,
    },
    /// Messages that are gone: their refs go, and what no ref reaches.
    Forget {
        /// The messages.
        messages: Vec<MessageId>,
    },
    /// Read and check every block on disk.
    CacheVerify,
    /// Empty the block store. No word of the history is lost.
    CacheClear,
    /// Save everything and give back the pool and the weights, once a running reply has ended. The next turn loads them
    /// again.
    Release,
    /// Decide whether the pool of a model takes a whole context when the model is loaded.
    Reserve {
        /// The model's name.
        model: String,
        /// At once, and not as it is used.
        whole_context: bool,
    },
    /// Take new limits. A pool of another size is made when the model is loaded next, so the memory is given back now.
    Limit {
        /// The limits.
        limits: MemoryLimits,
    },
    /// Encrypt them; blocks follow in the background.
    Protect {
        /// What is to unlock them.
        secret: Secret,
    },
    /// Keep them as they are again; blocks follow in the background.
    Unprotect,
    /// Have them unlocked by another secret.
    ChangeSecret {
        /// The passphrase until now, if it is one.
        current: Option<Passphrase>,
        /// The new secret.
        secret: Secret,
    },
    /// Save, and end the engine.
    Shutdown,
}

/// One answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// An event of a turn.
    Turn(TurnEvent),
    /// To `Draft`.
    Drafted {
        /// Tokens of the prompt that are ready.
        tokens: u32,
    },
    /// To `Preview`, `PreviewSystem` and `PreviewNew`.
    Cost(EditCost),
    /// To `Context`.
    Context(ContextUse),
    /// To `Load` and `Loaded`.
    Model {
        /// None is loaded when absent.
        info: Option<ModelInfo>,
    },
    /// To `CacheStats`.
    CacheStats(CacheStats),
    /// To `Memory`.
    Memory(Box<MemoryStats>),
    /// To `Devices`.
    Devices(DeviceList),
    /// To `Release`.
    Released(Released),
    /// To `Privacy`, `Protect`, `Unprotect` and `ChangeSecret`.
    Privacy(PrivacyState),
    /// To `CacheVerify`.
    Verify(VerifyReport),
    /// Done.
    Done,
    /// It failed.
    Error {
        /// Stable code to branch on.
        code: String,
        /// One sentence that says what to do.
        message: String,
    },
}

impl Answer {
    /// The content of the answer in words, for error messages.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Turn(_) => "an event of a turn",
            Self::Drafted { .. } => "the tokens of a draft",
            Self::Cost(_) => "a cost",
            Self::Context(_) => "how full a context is",
            Self::Model { .. } => "a model",
            Self::CacheStats(_) => "what the cache holds",
            Self::Memory(_) => "what memory is used for",
            Self::Devices(_) => "devices",
            Self::Released(_) => "memory that was given back",
            Self::Privacy(_) => "a state of encryption",
            Self::Verify(_) => "a check of the cache",
            Self::Done => "\"done\"",
            Self::Error { .. } => "an error",
        }
    }
}

impl From<&Error> for Answer {
    fn from(error: &Error) -> Self {
        Self::Error {
            code: error.code().into(),
            message: error.to_string(),
        }
    }
}

impl From<&Error> for TurnEvent {
    fn from(error: &Error) -> Self {
        Self::Error {
            code: error.code().into(),
            message: error.to_string(),
        }
    }
}

impl Request {
    /// Whether asking again does no harm, when nobody knows how far it got.
    pub(crate) fn may_be_repeated(&self) -> bool {
        !matches!(
            self,
            Self::Turn { .. }
                | Self::Protect { .. }
                | Self::Unprotect
                | Self::ChangeSecret { .. }
                | Self::Shutdown
        )
    }

    /// Whether asking again does no harm when no answer came, not even that it was begun: words that are stored without a reply are
    /// not stored twice.
    pub(crate) fn may_be_repeated_unheard(&self) -> bool {
        let Self::Turn { turn } = self else {
            return false;
        };
        matches!(
            turn,
            Turn::Send { .. } | Turn::Regenerate { .. } | Turn::Continue { .. }
        )
    }

    /// Whether somebody uses the model, so that it is not given back for being idle.
    pub(crate) fn is_use(&self) -> bool {
        matches!(
            self,
            Self::Turn { .. }
                | Self::Open {
                    conversation: Some(_)
                }
                | Self::Warm { .. }
                | Self::Draft { .. }
                | Self::Question {
                    question: Question::Preview { .. }
                        | Question::PreviewSystem { .. }
                        | Question::PreviewNew { .. }
                }
                | Self::Load { .. }
        )
    }
}

/// A request and where its answers go.
#[derive(Debug)]
pub(crate) struct Envelope {
    pub request: Request,
    pub answers: Sender<Answer>,
}

/// The events of one turn, as they happen; ends after the last one.
#[derive(Debug)]
pub struct TurnEvents(pub(crate) Receiver<Answer>);

impl Iterator for TurnEvents {
    type Item = TurnEvent;

    fn next(&mut self) -> Option<TurnEvent> {
        match self.0.recv().ok()? {
            Answer::Turn(event) => Some(event),
            Answer::Error { code, message } => Some(TurnEvent::Error { code, message }),
            _ => None,
        }
    }
}

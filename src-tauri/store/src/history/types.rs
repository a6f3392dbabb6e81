//! The values of the history, as the engine, the shell and the UI see them. Times are unix milliseconds.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, TS)]
        pub struct $name(String);

        impl $name {
            /// A fresh id, ordered by time.
            pub(crate) fn new(now_ms: i64) -> Self {
                let ms = now_ms.max(0) as u64;
                let time = uuid::Timestamp::from_unix(uuid::NoContext, ms / 1000, (ms % 1000) as u32 * 1_000_000);
                Self(uuid::Uuid::new_v7(time).to_string())
            }

            /// The id's text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl rusqlite::ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
                self.0.to_sql()
            }
        }

        impl rusqlite::types::FromSql for $name {
            fn column_result(value: rusqlite::types::ValueRef<'_>) -> rusqlite::types::FromSqlResult<Self> {
                String::column_result(value).map(Self)
            }
        }
    };
}

id! {
    /// A conversation's name: a uuid of version 7.
    ConversationId
}
id! {
    /// A message's name: a uuid of version 7.
    MessageId
}

/// A tree of messages with its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Conversation {
    /// Its name.
    pub id: ConversationId,
    /// What the sidebar shows; empty until the first message or a rename.
    pub title: String,
    /// The system prompt; may be empty.
    pub system_prompt: String,
    /// The model chosen for it.
    pub model: Option<String>,
    /// How replies are sampled.
    pub sampling: Sampling,
    /// What to do with a turn that does not fit into the context.
    pub when_full: WhenFull,
    /// When it was created.
    #[ts(type = "number")]
    pub created_at: i64,
    /// When its messages last changed.
    #[ts(type = "number")]
    pub updated_at: i64,
    /// The end of the branch that is shown.
    pub active_leaf: Option<MessageId>,
}

/// What a conversation does with a turn that does not fit into the context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// Say so and offer what can be done.
    #[default]
    Ask,
    /// Go on in a new branch that begins with a summary.
    Compact,
    /// Go on in a new branch without the oldest turns.
    DropOldest,
    /// Say so and do nothing.
    Stop,
}

/// How a reply is sampled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(default)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: f32,
    /// Keep the k most likely tokens.
    pub top_k: Option<u32>,
    /// Keep the most likely tokens that together reach p.
    pub top_p: Option<f32>,
    /// Keep tokens at least this likely relative to the best.
    pub min_p: Option<f32>,
    /// 1 is off.
    pub repetition_penalty: f32,
    /// A fixed seed, or a fresh one each turn.
    #[ts(type = "number | null")]
    pub seed: Option<u64>,
    /// The longest reply.
    pub max_tokens: Option<u32>,
    /// Strings that end a reply.
    pub stop: Vec<String>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.7,
            top_k: None,
            top_p: Some(0.95),
            min_p: Some(0.05),
            repetition_penalty: 1.0,
            seed: None,
            max_tokens: None,
            stop: Vec::new(),
        }
    }
}

/// What a conversation starts with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, TS)]
#[serde(default)]
pub struct NewConversation {
    /// May be empty: the first user message then names the conversation.
    pub title: String,
    /// May be empty.
    pub system_prompt: String,
    /// The model chosen for it.
    pub model: Option<String>,
    /// How replies are sampled.
    pub sampling: Sampling,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// What a message is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum MessageKind {
    /// Words of the person or the model in the conversation.
    #[default]
    Said,
    /// The model's summary of an earlier part, which a compacted branch begins with; the person may have edited it.
    Summary,
}

/// How far a message got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum MessageState {
    /// Whole.
    Complete,
    /// Being written by the model.
    Generating,
    /// Ended by the person.
    Stopped,
    /// Ended by the limit on a reply's tokens.
    Length,
    /// Ended by the model's context.
    ContextFull,
    /// The process ended while it was being written.
    Interrupted,
    /// Ended by an error.
    Failed,
}

/// Where the prompt's tokens came from; the three add up to the prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Prefill {
    /// Already in the pool.
    pub resident: u32,
    /// Read back from disk.
    pub restored: u32,
    /// Run through the model.
    pub computed: u32,
}

/// What a turn cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, TS)]
pub struct TurnStats {
    /// Where the prompt's tokens came from.
    pub prefill: Prefill,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens of the reply.
    pub completion_tokens: u32,
    /// Time to the first token.
    pub ttft_ms: f64,
    /// Decoding speed.
    pub tokens_per_s: f64,
    /// Time spent restoring blocks.
    pub restore_ms: f64,
}

/// One node of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Message {
    /// Its name.
    pub id: MessageId,
    /// The tree it stands in.
    pub conversation: ConversationId,
    /// What it follows; none for a root.
    pub parent: Option<MessageId>,
    /// Who speaks.
    pub role: Role,
    /// The words.
    pub text: String,
    /// How many token ids are stored for it; 0 while they are not known.
    pub num_tokens: u32,
    /// How far it got.
    pub state: MessageState,
    /// The model that wrote it.
    pub model: Option<String>,
    /// What its turn cost.
    pub stats: Option<TurnStats>,
    /// When it was created.
    #[ts(type = "number")]
    pub created_at: i64,
    /// The message this one is an edit or, in a shorter branch, a copy of.
    pub edited_from: Option<MessageId>,
    /// What it is.
    pub kind: MessageKind,
}

/// A message to append.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewMessage {
    /// The tree.
    pub conversation: ConversationId,
    /// What it follows; none for a root.
    pub parent: Option<MessageId>,
    /// Who speaks.
    pub role: Role,
    /// The words.
    pub text: String,
    /// How far it got: `Complete` for what a person wrote.
    pub state: MessageState,
    /// The model that wrote it.
    pub model: Option<String>,
    /// The message this one is an edit of.
    pub edited_from: Option<MessageId>,
}

/// One message of a branch that is made from what a conversation holds already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BranchPart {
    /// A summary of what the branch leaves out, as a message of the person.
    Summary {
        /// The words.
        text: String,
        /// The model that wrote them.
        model: Option<String>,
    },
    /// A copy of a message.
    Copy {
        /// The message; it stays where it is.
        of: MessageId,
        /// Whether its token ids are copied: they depend on what stands directly before it.
        with_tokens: bool,
    },
}

/// Token ids as one tokenizer gave them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    /// The digest of the tokenizer.
    pub tokenizer: [u8; 32],
    /// The ids.
    pub ids: Vec<u32>,
}

/// Words that were written and not sent, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Unsent {
    /// Their conversation; none on the page where one begins.
    pub conversation: Option<ConversationId>,
    /// The message they would take the place of; none in the composer.
    pub message: Option<MessageId>,
    /// The words.
    pub text: String,
}

/// A hit of [`History::search`](crate::History::search).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct SearchHit {
    /// The kind of the hit.
    pub kind: HitKind,
    /// The conversation.
    pub conversation: ConversationId,
    /// The message; none for a hit in the title.
    pub message: Option<MessageId>,
    /// The conversation's title.
    pub title: String,
    /// Plain text around the match, in one line; for a title its beginning.
    pub snippet: String,
    /// The matches in the snippet, in order.
    pub marks: Vec<Mark>,
}

/// The kind of a search hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum HitKind {
    /// A message.
    Message,
    /// The title of a conversation.
    Title,
}

/// A range of a text in code points; it never splits a grapheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Mark {
    /// The first code point.
    pub start: u32,
    /// One past the last code point.
    pub end: u32,
}

/// A model file the person added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct ModelPath {
    /// The name it is called by.
    pub name: String,
    /// Where the file is.
    pub path: String,
}

/// What [`History::export`](crate::History::export) writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// The branch that is shown, to read.
    Markdown,
    /// The whole tree, to keep.
    Json,
}

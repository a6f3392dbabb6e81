//! What a turn is asked and what it reports: plain data, so that the engine can live in another process.

use serde::{Deserialize, Serialize};
use store::{ConversationId, Message, MessageId, MessageState, Prefill, Sampling};
use ts_rs::TS;

/// One thing to do in a conversation that ends with a reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Turn {
    /// Add a user message and answer it.
    Send {
        /// Where.
        conversation: ConversationId,
        /// Message to continue from; the active leaf when absent.
        parent: Option<MessageId>,
        /// The user's words.
        text: String,
        /// How to sample.
        options: TurnOptions,
    },
    /// Put an edited copy beside a message, as a new branch. A user message is answered; a reply is only stored.
    Edit {
        /// Where.
        conversation: ConversationId,
        /// The message that was edited; it stays.
        message: MessageId,
        /// The new words.
        text: String,
        /// How to sample.
        options: TurnOptions,
    },
    /// Answer the user message above a reply again, as a new branch.
    Regenerate {
        /// Where.
        conversation: ConversationId,
        /// A reply, or a user message.
        message: MessageId,
        /// How to sample.
        options: TurnOptions,
    },
    /// Go on with a reply that was stopped or cut off.
    Continue {
        /// Where.
        conversation: ConversationId,
        /// The reply.
        message: MessageId,
        /// How to sample.
        options: TurnOptions,
    },
    /// Go on in a shorter branch of the active one; a message that waits for its reply is answered there, and a reply that
    /// ran into the limit goes on there.
    Shorten {
        /// Where.
        conversation: ConversationId,
        /// What becomes of the oldest turns.
        how: Shorten,
        /// How to sample.
        options: TurnOptions,
    },
}

/// What a shorter branch has in place of the oldest turns. The full branch stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Shorten {
    /// The model's summary of them.
    Compact,
    /// Nothing.
    DropOldest,
}

impl Turn {
    /// The conversation that the turn belongs to.
    pub fn conversation(&self) -> &ConversationId {
        match self {
            Self::Send { conversation, .. }
            | Self::Edit { conversation, .. }
            | Self::Regenerate { conversation, .. }
            | Self::Continue { conversation, .. }
            | Self::Shorten { conversation, .. } => conversation,
        }
    }

    /// How to sample.
    pub fn options(&self) -> &TurnOptions {
        match self {
            Self::Send { options, .. }
            | Self::Edit { options, .. }
            | Self::Regenerate { options, .. }
            | Self::Continue { options, .. }
            | Self::Shorten { options, .. } => options,
        }
    }
}

/// Sampling of one turn. An absent field takes the conversation's value.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnOptions {
    /// Always take the most likely token.
    pub greedy: bool,
    /// Seed of the sampler.
    pub seed: Option<u64>,
    /// Most tokens to sample; 0 is no limit.
    pub max_tokens: Option<u32>,
    /// 0 always takes the most likely token.
    pub temperature: Option<f32>,
    /// Keep the k most likely tokens; 0 is off.
    pub top_k: Option<u32>,
    /// Keep the most likely tokens that together reach p; 1 is off.
    pub top_p: Option<f32>,
    /// Keep tokens at least this likely relative to the best; 0 is off.
    pub min_p: Option<f32>,
    /// Repetition penalty on recent tokens; 1 and 0 are off.
    pub repetition_penalty: Option<f32>,
    /// Stop strings, in place of the conversation's.
    pub stop: Option<Vec<String>>,
}

impl TurnOptions {
    /// The turn's sampling in a conversation whose settings are `set`.
    pub fn over(&self, set: &Sampling) -> Sampling {
        // A repetition penalty could change which token is the most likely.
        let penalty = match self.greedy {
            true => 1.0,
            false => self.repetition_penalty.unwrap_or(set.repetition_penalty),
        };
        let temperature = match self.greedy {
            true => 0.0,
            false => self.temperature.unwrap_or(set.temperature),
        };
        Sampling {
            temperature,
            top_k: self.top_k.or(set.top_k).filter(|k| *k > 0),
            top_p: self.top_p.or(set.top_p).filter(|p| *p < 1.0),
            min_p: self.min_p.or(set.min_p).filter(|p| *p > 0.0),
            repetition_penalty: if penalty > 0.0 { penalty } else { 1.0 },
            seed: self.seed.or(set.seed),
            max_tokens: self.max_tokens.or(set.max_tokens).filter(|n| *n > 0),
            stop: self.stop.clone().unwrap_or_else(|| set.stop.clone()),
        }
    }
}

/// What happens during a turn, in order. The last event is `Finished`, `ContextFull` or `Error`.
#[derive(Clone, Debug, Serialize, Deserialize, TS)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum TurnEvent {
    /// A message has been stored: first the user's, then the empty reply.
    Started {
        /// The user's message, durable.
        user: Option<Box<Message>>,
        /// The reply that is about to be written.
        reply: Option<Box<Message>>,
    },
    /// The conversation's model cannot be used. Another model answers, and the conversation keeps it.
    ModelFallback {
        /// The conversation's model until now.
        wanted: String,
        /// Stable error code of the reason.
        code: String,
        /// Why it cannot be used, in one sentence.
        reason: String,
        /// The model that answers.
        model: String,
    },
    /// A shorter branch is being made. The text that follows is its summary when `how` is `compact`.
    Shortening {
        /// What takes the place of the oldest turns.
        how: Shorten,
        /// Turns that the new branch does not hold.
        turns: u32,
        /// Of these: the oldest, which have no room in the summary either.
        left_out: u32,
    },
    /// The shorter branch is stored, as a whole, and is the one that is shown.
    Shortened {
        /// What took the place of the oldest turns.
        how: Shorten,
        /// The messages of the new branch.
        messages: Vec<Message>,
        /// Turns that it does not hold.
        turns: u32,
        /// Of these: the oldest, which had no room in the summary either.
        left_out: u32,
    },
    /// How far the prompt is.
    Prefill {
        /// Tokens that are ready.
        done: u32,
        /// Tokens of the prompt.
        total: u32,
        /// Of `done`: found in the pool.
        resident: u32,
        /// Of `done`: read from disk.
        restored: u32,
    },
    /// More text of the reply; whole UTF-8.
    Token {
        /// The text.
        text: String,
    },
    /// The reply is stored.
    Finished {
        /// The reply.
        message: MessageId,
        /// The model that wrote it; absent for an edited reply.
        model: Option<String>,
        /// All of its text.
        text: String,
        /// Why it ended: complete, stopped, length or `context_full`.
        state: MessageState,
        /// Where the prompt's keys and values came from; adds up to `prompt_tokens` unless stopped while reading.
        prefill: Prefill,
        /// Tokens of the prompt.
        prompt_tokens: u32,
        /// Tokens sampled.
        completion_tokens: u32,
        /// From the start of the work, with the model loaded, to the first token, in milliseconds.
        ttft_ms: f64,
        /// Sampling speed after the first token.
        tokens_per_s: f64,
        /// Time that reading blocks from disk took, in milliseconds.
        restore_ms: f64,
    },
    /// The prompt does not fit; nothing was cut off, and the user's message is stored.
    ContextFull {
        /// The user's message.
        message: Option<MessageId>,
        /// Tokens that the prompt and one reply token need.
        needed_tokens: u32,
        /// `needed_tokens` is a lower bound: counting stopped when the limit was exceeded.
        at_least: bool,
        /// The part that exceeds the context by itself, so that leaving out other messages does not help.
        too_long: Option<TooLong>,
        /// Tokens that there is room for.
        limit_tokens: u32,
        /// What can be done; nothing where the conversation is to stop.
        choices: Vec<ContextChoice>,
    },
    /// The turn failed; what was stored stays.
    Error {
        /// Stable code to branch on.
        code: String,
        /// One sentence that says what to do.
        message: String,
    },
}

impl TurnEvent {
    /// The last event of a turn that only stored `message`: the model did not run.
    pub(crate) fn stored(message: Message) -> Self {
        Self::Finished {
            message: message.id,
            model: message.model,
            text: message.text,
            state: message.state,
            prefill: Prefill::default(),
            prompt_tokens: 0,
            completion_tokens: 0,
            ttft_ms: 0.0,
            tokens_per_s: 0.0,
            restore_ms: 0.0,
        }
    }
}

/// What the user can do when the context is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum ContextChoice {
    /// Give the context the memory that the model could use.
    LargerContext,
    /// Go on in a new branch that begins with a summary.
    Compact,
    /// Go on in a new branch without the oldest turns.
    DropOldest,
    /// Edit the message to shorten the branch.
    EditEarlier,
    /// Shorten the system prompt.
    EditSystemPrompt,
    /// Start a new conversation.
    NewConversation,
    /// Do nothing.
    Stop,
}

/// A part of a prompt that exceeds the context by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum TooLong {
    /// The conversation's system prompt.
    SystemPrompt,
    /// The last message, under the system prompt.
    Message,
}

/// The cost of an edit, a new message or a new system prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct EditCost {
    /// Tokens of the new prompt whose keys and values are cached, and would be used.
    pub keeps: u32,
    /// Tokens of the new prompt.
    pub of: u32,
    /// `of` is a lower bound: counting stopped when the limit was exceeded.
    pub at_least: bool,
    /// Tokens that fit into the context, the reply included.
    pub limit: u32,
    /// Estimated prefill time of the other tokens in milliseconds, from the measured speed of this model on this machine.
    /// `None` before the first measurement.
    pub read_ms: Option<u32>,
}

/// How full the context is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct ContextUse {
    /// Tokens of the active branch.
    pub used: u32,
    /// `used` is a lower bound: counting stopped when the limit was exceeded.
    pub at_least: bool,
    /// Tokens that there is room for.
    pub limit: u32,
    /// What can be done when it fills up.
    pub choices: Vec<ContextChoice>,
}

#[cfg(test)]
mod tests {
    use super::{Sampling, TurnOptions};

    #[test]
    fn a_turn_samples_as_it_is_told_and_else_as_the_conversation() {
        let set = Sampling {
            top_k: Some(40),
            max_tokens: Some(100),
            repetition_penalty: 1.2,
            stop: vec!["END".into()],
            ..Sampling::default()
        };
        assert_eq!(TurnOptions::default().over(&set), set);
        let told = TurnOptions {
            temperature: Some(1.5),
            top_k: Some(0),
            top_p: Some(1.0),
            min_p: Some(0.0),
            repetition_penalty: Some(0.0),
            max_tokens: Some(0),
            stop: Some(vec!["\n".into()]),
            ..TurnOptions::default()
        };
        let all_off = Sampling {
            temperature: 1.5,
            top_k: None,
            top_p: None,
            min_p: None,
            repetition_penalty: 1.0,
            max_tokens: None,
            stop: vec!["\n".into()],
            ..set.clone()
        };
        assert_eq!(told.over(&set), all_off);
        let greedy = TurnOptions {
            greedy: true,
            ..TurnOptions::default()
        };
        let sampling = greedy.over(&set);
        assert_eq!(
            (sampling.temperature, sampling.repetition_penalty),
            (0.0, 1.0)
        );
    }
}

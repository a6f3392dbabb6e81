//! A temporary data folder with the model in it, the engine on it, and conversations of a wanted length.

use kernels::KvFormat;
use std::path::Path;

use engine::{DeviceChoice, Turn, TurnEvent, TurnOptions};
use store::{
    ConversationId, Message, MessageId, MessageState, NewConversation, NewMessage, Prefill, Role,
};
use tempfile::TempDir;

use super::Setup;
use super::text::Text;
use crate::app::{App, now_ms};
use crate::error::{Error, Result};

/// Words of a message of the synthetic conversation: asked, answered.
const TURN_WORDS: [usize; 2] = [40, 160];
/// Words to find out how many tokens a word has.
const SAMPLE_WORDS: usize = 200;
/// Tokens of a measured reply: enough for a first one, and little to decode.
const REPLY_TOKENS: u32 = 2;

/// A data folder that is deleted with this value.
pub(super) struct Place {
    folder: TempDir,
    model: String,
    threads: u16,
    kv: KvFormat,
    device: DeviceChoice,
}

/// What a turn reported.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// The reply.
    pub message: MessageId,
    pub prefill: Prefill,
    pub prompt_tokens: u32,
    pub ttft_ms: f64,
    pub restore_ms: f64,
}

impl Place {
    /// A folder of the system's choice (`TMPDIR` moves it), with the model file added by path.
    pub(super) fn new(setup: &Setup) -> Result<Place> {
        let folder = tempfile::Builder::new()
            .prefix("reprise-bench-")
            .tempdir()
            .map_err(|error| Error::Internal(format!("no temporary folder: {error}")))?;
        let place = Place {
            folder,
            model: setup.model_name(),
            threads: setup.num_threads.try_into().unwrap_or(u16::MAX),
            kv: setup.kv,
            device: setup.device,
        };
        let app = App::open(Some(place.path().to_owned()), None)?;
        app.history().add_model(&place.model, &setup.model)?;
        Ok(place)
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Opens the folder as a fresh start of the program would, and loads the model.
    pub(super) fn start(&self) -> Result<App> {
        self.start_with(None)
    }

    /// As `start`, with a working pool of so many bytes.
    pub(super) fn start_with(&self, pool_bytes: Option<u64>) -> Result<App> {
        let app = App::open(Some(self.path().to_owned()), Some(self.threads))?
            .with_kv(Some(self.kv))
            .with_pool(pool_bytes)
            .with_device(Some(self.device));
        app.engine()?.load(Some(self.model.clone()))?;
        Ok(app)
    }
}

/// A conversation of about `num_tokens` tokens that ends with a reply, and its leaf. The model has read none of it.
pub(super) fn conversation(app: &App, num_tokens: usize) -> Result<(ConversationId, MessageId)> {
    let mut text = Text::new(num_tokens as u64);
    let id = app
        .history()
        .create_conversation(NewConversation::default(), now_ms())?
        .id;
    let per_word = tokens_per_word(app, &id)?;
    let pair = per_word * TURN_WORDS.iter().sum::<usize>() as f64;
    let mut used = 0.0;
    let mut leaf = None;
    loop {
        let rest = num_tokens as f64 - used;
        // The last pair takes what is left, so that no tiny one remains.
        let last = rest < 2.2 * pair;
        let words = if last {
            ((rest - 15.0) / per_word).max(8.0) as usize
        } else {
            TURN_WORDS.iter().sum()
        };
        let asked = words.min(TURN_WORDS[0]).min(words / 2);
        let user = append(app, &id, leaf, Role::User, &text.words(asked))?;
        let reply = append(
            app,
            &id,
            Some(user.id),
            Role::Assistant,
            &text.words(words - asked),
        )?;
        app.history().set_active_leaf(&id, Some(&reply.id))?;
        if last {
            return Ok((id, reply.id));
        }
        leaf = Some(reply.id);
        used = f64::from(app.engine()?.context(id.clone())?.used);
    }
}

/// How many words make a prompt of about `num_tokens` tokens as the first message.
pub(super) fn words_for(app: &App, num_tokens: usize) -> Result<usize> {
    let id = app
        .history()
        .create_conversation(NewConversation::default(), now_ms())?
        .id;
    let per_word = tokens_per_word(app, &id)?;
    let template = prompt_tokens(app, &id, SAMPLE_WORDS)? - per_word * SAMPLE_WORDS as f64;
    Ok(((num_tokens as f64 - template) / per_word).max(1.0) as usize)
}

fn tokens_per_word(app: &App, id: &ConversationId) -> Result<f64> {
    let more = prompt_tokens(app, id, 2 * SAMPLE_WORDS)?;
    Ok((more - prompt_tokens(app, id, SAMPLE_WORDS)?) / SAMPLE_WORDS as f64)
}

fn prompt_tokens(app: &App, id: &ConversationId, words: usize) -> Result<f64> {
    let text = Text::new(1).words(words);
    let cost = app.engine()?.preview(id.clone(), None, text)?;
    match cost.at_least {
        false => Ok(f64::from(cost.of)),
        true => Err(Error::InvalidArgument(format!(
            "there is no room for {} tokens, which measuring takes; choose another model",
            cost.of
        ))),
    }
}

fn append(
    app: &App,
    conversation: &ConversationId,
    parent: Option<MessageId>,
    role: Role,
    text: &str,
) -> Result<Message> {
    let new = NewMessage {
        conversation: conversation.clone(),
        parent,
        role,
        text: text.to_owned(),
        state: MessageState::Complete,
        model: None,
        edited_from: None,
    };
    Ok(app.history().append_message(new, now_ms())?)
}

/// A greedy turn with a very short reply.
pub(super) fn options() -> TurnOptions {
    TurnOptions {
        greedy: true,
        seed: None,
        max_tokens: Some(REPLY_TOKENS),
        ..TurnOptions::default()
    }
}

/// A question of about twenty tokens after `parent`; equal numbers ask equal questions.
pub(super) fn question(conversation: &ConversationId, parent: &MessageId, number: u64) -> Turn {
    Turn::Send {
        conversation: conversation.clone(),
        parent: Some(parent.clone()),
        text: format!("{number} {}", Text::new(1000 + number).words(16)),
        options: options(),
    }
}

/// Does a turn and waits for its end.
pub(super) fn finish(app: &App, turn: Turn) -> Result<Outcome> {
    for event in app.engine()?.submit(turn) {
        match event {
            TurnEvent::Finished {
                message,
                prefill,
                prompt_tokens,
                ttft_ms,
                restore_ms,
                ..
            } => {
                return Ok(Outcome {
                    message,
                    prefill,
                    prompt_tokens,
                    ttft_ms,
                    restore_ms,
                });
            }
            TurnEvent::Error { code, message } => return Err(Error::Turn { code, message }),
            TurnEvent::ContextFull {
                needed_tokens,
                limit_tokens,
                ..
            } => {
                return Err(Error::InvalidArgument(format!(
                    "{needed_tokens} tokens do not fit into this model's context of {limit_tokens}; ask for fewer --tokens"
                )));
            }
            // The fallback would be a measurement of another model.
            TurnEvent::ModelFallback { reason, .. } => return Err(Error::InvalidArgument(reason)),
            TurnEvent::Started { .. }
            | TurnEvent::Shortening { .. }
            | TurnEvent::Shortened { .. }
            | TurnEvent::Prefill { .. }
            | TurnEvent::Token { .. } => {}
        }
    }
    Err(engine::Error::Stopped.into())
}

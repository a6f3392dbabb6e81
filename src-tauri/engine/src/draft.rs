//! Type-ahead: what a person is typing is read while they type, so that sending it computes only the rest.
//!
//! A draft is side work (law 7): it runs while nothing else is asked, makes way between two prefill steps, and its session
//! is known to nobody until a turn takes it over. Nothing of it goes to disk before that.

use std::ops::ControlFlow;

use models::{Model, Role};
use store::{Conversation, ConversationId, History, MessageId};

use crate::prompt::{self, Part};
use crate::session::Session;
use crate::worker::Worker;
use crate::{Error, Result};

/// Ways in which a text may go on after its last whole word: a letter, a digit, a mark, a bracket, a paragraph.
const GOES_ON: [&str; 5] = ["a", "1", ".", "(", "\n\na"];

/// The tokens with which the prompt begins whatever follows the whole words of `text`, a message under `above`: those that
/// the continuations have in common, less one.
///
/// # Errors
/// When history cannot be read, or the model's template refuses the messages.
pub fn draft_tokens(
    history: &History,
    model: &Model,
    conversation: &Conversation,
    above: Option<&MessageId>,
    text: &str,
) -> Result<Vec<u32>> {
    let branch = prompt::branch(history, above)?;
    let typed = match text.char_indices().rfind(|(_, char)| char.is_whitespace()) {
        Some((at, space)) => &text[..at + space.len_utf8()],
        None => "",
    };
    let mut common: Option<Vec<u32>> = None;
    let whole = typed.trim_end();
    let ends_here = (!whole.trim().is_empty()).then(|| whole.to_owned());
    let texts = GOES_ON.iter().map(|more| format!("{typed}{more}"));
    for text in texts.chain(ends_here) {
        let mut parts = branch.clone();
        parts.push(Part {
            id: None,
            role: Role::User,
            text,
        });
        let tokens = prompt::build(history, model, conversation, &parts)?.tokens;
        common = Some(match common {
            Some(mut before) => {
                let same = before.iter().zip(&tokens).take_while(|(a, b)| a == b);
                before.truncate(same.count());
                before
            }
            None => tokens,
        });
    }
    let mut tokens = common.unwrap_or_default();
    tokens.pop();
    Ok(tokens)
}

impl Worker {
    /// Reads what stands for sure of a message that is being typed, in place of the draft before it; an empty text discards
    /// it. Returns the tokens that are ready.
    ///
    /// # Errors
    /// When the conversation or the message does not exist.
    pub(crate) fn draft(
        &mut self,
        id: &ConversationId,
        message: Option<&MessageId>,
        text: &str,
    ) -> Result<u32> {
        let conversation = self.conversation(id)?;
        let loaded = self.cache.as_ref().map(|cache| cache.model().name());
        let is_loaded = match &conversation.model {
            Some(model) => loaded == Some(model.as_str()),
            None => loaded.is_some(),
        };
        if text.trim().is_empty() || !is_loaded {
            self.discard_draft();
            return Ok(0);
        }
        let Some(cache) = &mut self.cache else {
            return Ok(0);
        };
        let tokens = {
            let history = self.desk.history();
            let above = match message {
                Some(message) => match history.message(message) {
                    Ok(old) if old.conversation == *id => old.parent,
                    _ => return Err(Error::MessageMissing(message.to_string())),
                },
                None => conversation.active_leaf.clone(),
            };
            draft_tokens(&history, cache.model(), &conversation, above.as_ref(), text)?
        };
        let mut session = self.draft.take().unwrap_or_else(Session::ahead);
        // Words that were deleted again may come back.
        if !session.tokens().starts_with(&tokens) {
            let desk = &mut self.desk;
            let read = session.sync(cache, &tokens, &mut |_, _| {
                desk.poll();
                match desk.is_waited_for() {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            });
            if let Err(error) = read {
                // The turn will say it where it matters.
                tracing::debug!(%error, "a draft is not read ahead");
                session.abandon(cache);
                return Ok(0);
            }
        }
        let ready = session.tokens().len().min(tokens.len()) as u32;
        self.draft = Some(session);
        Ok(ready)
    }

    /// Frees what the draft holds.
    pub(crate) fn discard_draft(&mut self) {
        if let (Some(session), Some(cache)) = (self.draft.take(), &mut self.cache) {
            session.abandon(cache);
        }
    }
}

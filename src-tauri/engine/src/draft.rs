//! Type-ahead: what a person is typing is read while they type, so that sending it computes only the rest.
//!
//! A draft is side work (law 7): it runs while nothing else is asked, makes way between two prefill steps, and its session
//! is known to nobody until a turn takes it over. Nothing of it goes to disk before that.

use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use models::{Ends, Extent, Model, Role};
use store::{Conversation, ConversationId, History, MessageId};

use crate::prompt::{self, Part};
use crate::session::Session;
use crate::worker::Worker;
use crate::{Error, Result};

/// The prompt's tokens up to the stable prefix of `text`, a message under `above`: they stay the same whatever is
/// appended ([`models::Tokenizer::standing`]). Only a prefix of them once `extent` is used up.
///
/// # Errors
/// When history cannot be read, the model's template refuses the messages, or `extent` is interrupted.
pub fn draft_tokens(
    history: &Mutex<History>,
    model: &Model,
    conversation: &Conversation,
    above: Option<&MessageId>,
    text: &str,
    extent: &mut Extent<'_>,
) -> Result<Vec<u32>> {
    let mut parts = {
        let history = history.lock().unwrap_or_else(PoisonError::into_inner);
        prompt::branch(&history, above)?
    };
    let stands = model.tokenizer().standing(text);
    parts.push(Part {
        id: None,
        role: Role::User,
        text: text[..stands].to_owned(),
    });
    let prompt = prompt::build_to(
        Ends::InContent,
        history,
        model,
        conversation,
        &parts,
        extent,
    )?;
    Ok(prompt.tokens)
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
        let above = match message {
            Some(message) => match self.desk.history().message(message) {
                Ok(old) if old.conversation == *id => old.parent,
                _ => return Err(Error::MessageMissing(message.to_string())),
            },
            None => conversation.active_leaf.clone(),
        };
        let Some(cache) = &mut self.cache else {
            return Ok(0);
        };
        let desk = &self.desk;
        let mut go_on = || !desk.is_waited_for();
        let mut extent = Extent::new(cache.context_tokens(), &mut go_on);
        let (history, model) = (desk.shared_history(), cache.model());
        let tokens = draft_tokens(
            history,
            model,
            &conversation,
            above.as_ref(),
            text,
            &mut extent,
        );
        let tokens = match tokens {
            // A newer draft or a sent message comes first; the pieces tokenized so far are cached.
            Err(Error::Model(models::Error::Interrupted)) => return Ok(0),
            // The draft does not fit into the context, so a turn with this prompt will not run.
            Ok(_) if extent.is_used_up() => Vec::new(),
            tokens => tokens?,
        };
        if tokens.is_empty() {
            self.discard_draft();
            return Ok(0);
        }
        let mut session = self.draft.take().unwrap_or_else(Session::ahead);
        // Words that were deleted again may come back.
        if !session.tokens().starts_with(&tokens) {
            let read = session.sync(cache, &tokens, &mut |_, _| match desk.is_waited_for() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
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

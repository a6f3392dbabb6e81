//! The answers to questions: the cost of an edit, the use of the context, of the disk and of memory. They change nothing
//! (law 7), so that they can be given while a reply is decoded.

use std::sync::Mutex;

use models::{Extent, Role};
use store::{BlockStore, Conversation, ConversationId, MessageId};

use crate::cache::Cache;
use crate::desk::Desk;
use crate::device::DeviceList;
use crate::memory::MemoryStats;
use crate::privacy::PrivacyState;
use crate::prompt::{self, Head, Part, Prompt};
use crate::request::{Answer, Question};
use crate::turn::{ContextUse, EditCost};
use crate::writer::lock;
use crate::{Error, Result, shorten};

/// The state of the engine that questions are answered from.
pub(crate) struct Asked<'a> {
    pub desk: &'a Desk,
    pub cache: Option<&'a Cache>,
    pub store: &'a Mutex<BlockStore>,
    /// The tokens that have been read of a message that is being typed.
    pub drafted: &'a [u32],
}

/// Answers a question.
///
/// # Errors
/// When what is asked about does not exist, or no model is loaded.
pub(crate) fn answer(question: Question, asked: &Asked<'_>) -> Result<Answer> {
    match question {
        Question::Preview {
            conversation,
            message,
            text,
        } => asked.preview(&conversation, message.as_ref(), text),
        Question::PreviewSystem { conversation, text } => asked.preview_system(&conversation, text),
        Question::PreviewNew {
            system_prompt,
            text,
        } => asked.preview_new(&system_prompt, text),
        Question::Context { conversation } => asked.context(&conversation),
        Question::Loaded => Ok(Answer::Model {
            info: asked.cache.map(|cache| cache.model().info().clone()),
        }),
        Question::CacheStats => Ok(Answer::CacheStats(lock(asked.store).stats())),
        Question::Devices => Ok(Answer::Devices(DeviceList::now())),
        Question::Memory => {
            let stats = MemoryStats::of(asked.cache, asked.store);
            Ok(Answer::Memory(Box::new(stats)))
        }
        Question::Privacy => {
            let state = PrivacyState::of(&asked.desk.history(), &lock(asked.store));
            Ok(Answer::Privacy(state))
        }
    }
}

impl Asked<'_> {
    fn preview(
        &self,
        conversation: &ConversationId,
        message: Option<&MessageId>,
        text: String,
    ) -> Result<Answer> {
        let conversation = self.find(conversation)?;
        let cache = self.model()?;
        let (role, mut parts) = {
            let history = self.desk.history();
            let (role, above) = match message {
                Some(message) => {
                    let old = history
                        .message(message)
                        .map_err(|_| Error::MessageMissing(message.to_string()))?;
                    (Part::from(old.clone()).role, old.parent)
                }
                None => (Role::User, conversation.active_leaf.clone()),
            };
            (role, prompt::branch(&history, above.as_ref())?)
        };
        parts.push(Part {
            id: None,
            role,
            text,
        });
        self.cost(cache, &self.prompt(cache, &conversation, &parts)?)
    }

    fn preview_system(&self, conversation: &ConversationId, text: String) -> Result<Answer> {
        let mut conversation = self.find(conversation)?;
        conversation.system_prompt = text;
        let cache = self.model()?;
        let leaf = conversation.active_leaf.as_ref();
        let mut parts = prompt::branch(&self.desk.history(), leaf)?;
        if parts.is_empty() {
            parts.push(said(String::new()));
        }
        self.cost(cache, &self.prompt(cache, &conversation, &parts)?)
    }

    fn preview_new(&self, system_prompt: &str, text: String) -> Result<Answer> {
        let head = Head {
            system_prompt,
            created_at: self.desk.now_ms(),
        };
        let cache = self.model()?;
        self.cost(cache, &self.prompt(cache, head, &[said(text)])?)
    }

    fn context(&self, conversation: &ConversationId) -> Result<Answer> {
        let conversation = self.find(conversation)?;
        let cache = self.model()?;
        let leaf = conversation.active_leaf.as_ref();
        let parts = prompt::branch(&self.desk.history(), leaf)?;
        let prompt = match parts.is_empty() {
            true => Prompt::empty(),
            false => self.prompt(cache, &conversation, &parts)?,
        };
        let limit = cache.context_tokens();
        let is_full = prompt.needed + 1 > limit;
        let too_long = match is_full {
            true => shorten::too_long(self.desk, cache, &conversation, &parts)?,
            false => None,
        };
        let mut choices = shorten::choices(&parts, cache, too_long);
        if is_full && too_long.is_none() {
            shorten::keep_possible(&mut choices, self.desk, cache, &conversation, &parts);
        }
        Ok(Answer::Context(ContextUse {
            used: prompt.needed as u32,
            at_least: !prompt.is_whole,
            limit: limit as u32,
            choices,
        }))
    }

    /// Counted as far as there is room.
    fn prompt<'a>(
        &self,
        cache: &Cache,
        head: impl Into<Head<'a>>,
        parts: &[Part],
    ) -> Result<Prompt> {
        let mut go_on = || true;
        let mut extent = Extent::new(cache.context_tokens(), &mut go_on);
        let history = self.desk.shared_history();
        prompt::build(history, cache.model(), head, parts, &mut extent)
    }

    fn cost(&self, cache: &Cache, prompt: &Prompt) -> Result<Answer> {
        let typed = self.drafted.iter().zip(&prompt.tokens);
        let typed = typed.take_while(|(a, b)| a == b).count();
        // A turn does the same: it drops blocks that are computed faster than read.
        let mut found = cache.tree.find(&prompt.tokens);
        cache.give_up_slow_end(&mut found);
        let cached = found.num_tokens();
        let keeps = cached.max(typed.min(prompt.tokens.len().saturating_sub(1)));
        let to_read = prompt.needed - keeps;
        Ok(Answer::Cost(EditCost {
            keeps: keeps as u32,
            of: prompt.needed as u32,
            at_least: !prompt.is_whole,
            limit: cache.context_tokens() as u32,
            read_ms: cache.rates.prefill_ms(to_read).map(|ms| ms as u32),
        }))
    }

    fn find(&self, id: &ConversationId) -> Result<Conversation> {
        self.desk
            .history()
            .conversation(id)
            .map_err(|_| Error::ConversationMissing(id.to_string()))
    }

    fn model(&self) -> Result<&Cache> {
        self.cache
            .ok_or_else(|| Error::ModelMissing("no model is loaded yet".into()))
    }
}

/// A message of the person that is not stored.
fn said(text: String) -> Part {
    Part {
        id: None,
        role: Role::User,
        text,
    }
}

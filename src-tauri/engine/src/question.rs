//! Questions that change nothing (law 7): what an edit costs, how full the context is, what is on disk and in memory.

use std::sync::Mutex;

use models::Role;
use store::{BlockStore, ConversationId};

use crate::cache::Cache;
use crate::desk::Desk;
use crate::device::DeviceList;
use crate::memory::MemoryStats;
use crate::privacy::PrivacyState;
use crate::prompt::{self, Part};
use crate::request::{Answer, Request};
use crate::turn::{ContextUse, EditCost};
use crate::writer::lock;
use crate::{Error, Result, shorten};

/// Answers `Preview`, `Context`, `CacheStats`, `Privacy`, `Devices` and `Memory`. `drafted` are the tokens that have been read of a message that
/// is being typed.
///
/// # Errors
/// When what is asked about does not exist, or no model is loaded.
pub(crate) fn answer(
    question: Request,
    desk: &Desk,
    cache: Option<&Cache>,
    store: &Mutex<BlockStore>,
    drafted: &[u32],
) -> Result<Answer> {
    let history = desk.history();
    let find = |id: &ConversationId| {
        history
            .conversation(id)
            .map_err(|_| Error::ConversationMissing(id.to_string()))
    };
    let no_model = || Error::ModelMissing("no model is loaded yet".into());
    match question {
        Request::Preview {
            conversation,
            message,
            text,
        } => {
            let conversation = find(&conversation)?;
            let cache = cache.ok_or_else(no_model)?;
            let (role, above) = match &message {
                Some(message) => {
                    let old = history
                        .message(message)
                        .map_err(|_| Error::MessageMissing(message.to_string()))?;
                    (Part::from(old.clone()).role, old.parent)
                }
                None => (Role::User, conversation.active_leaf.clone()),
            };
            let mut parts = prompt::branch(&history, above.as_ref())?;
            parts.push(Part {
                id: None,
                role,
                text,
            });
            let prompt = prompt::build(&history, cache.model(), &conversation, &parts)?;
            let typed = drafted.iter().zip(&prompt.tokens);
            let typed = typed.take_while(|(a, b)| a == b).count();
            // As a turn would: what is sooner computed than read is not kept.
            let mut found = cache.tree.find(&prompt.tokens);
            cache.give_up_slow_end(&mut found);
            let cached = found.num_tokens();
            let keeps = cached.max(typed.min(prompt.tokens.len().saturating_sub(1))) as u32;
            Ok(Answer::Cost(EditCost {
                keeps,
                of: prompt.tokens.len() as u32,
            }))
        }
        Request::Context { conversation } => {
            let conversation = find(&conversation)?;
            let cache = cache.ok_or_else(no_model)?;
            let parts = prompt::branch(&history, conversation.active_leaf.as_ref())?;
            let used = match parts.is_empty() {
                true => 0,
                false => prompt::build(&history, cache.model(), &conversation, &parts)?
                    .tokens
                    .len() as u32,
            };
            Ok(Answer::Context(ContextUse {
                used,
                limit: cache.context_tokens() as u32,
                choices: shorten::choices(&parts, cache),
            }))
        }
        Request::Privacy => {
            let state = PrivacyState::of(&history, &lock(store));
            Ok(Answer::Privacy(state))
        }
        Request::Devices => Ok(Answer::Devices(DeviceList::now())),
        Request::Memory => Ok(Answer::Memory(Box::new(MemoryStats::of(cache, store)))),
        _ => Ok(Answer::CacheStats(lock(store).stats())),
    }
}

//! A conversation that does not fit goes on in a new, shorter branch: without its oldest turns, or with a summary in their
//! place. The full branch stays as it is: its messages, their token ids and its blocks.
//!
//! The new branch is stored as a whole when everything in it is known, so a stop or a failure leaves nothing half-made.

use models::Extent;
use store::{BranchPart, Conversation, Message, MessageKind, MessageState, WhenFull};

use crate::cache::Cache;
use crate::desk::Desk;
use crate::intake::Accepted;
use crate::prompt::{self, Part, Prompt};
use crate::turn::{ContextChoice, Shorten, TooLong, TurnEvent};
use crate::{Error, Result, summary};

/// What the new branch takes over, by index into the turns of the full one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    /// Turns `[0, summarised_from)` are in neither the summary nor the new branch.
    summarised_from: usize,
    /// Turns `[kept_from, ..)` are copied as they are.
    kept_from: usize,
}

/// The possible choices for a full context. A branch cannot be shortened if it has a single turn or if one part alone
/// is too long.
pub(crate) fn choices(
    parts: &[Part],
    cache: &Cache,
    too_long: Option<TooLong>,
) -> Vec<ContextChoice> {
    let mut choices = Vec::new();
    if too_long.is_none()
        && cache.could_hold_more()
        && cache.larger_context(cache.machine()).is_ok()
    {
        choices.push(ContextChoice::LargerContext);
    }
    match too_long {
        // A new conversation with the same system prompt would be full as well.
        Some(TooLong::SystemPrompt) => choices.push(ContextChoice::EditSystemPrompt),
        None if turn_starts(parts).len() > 1 => {
            choices.extend([ContextChoice::Compact, ContextChoice::DropOldest]);
        }
        Some(TooLong::Message) | None => {
            choices.extend([ContextChoice::EditEarlier, ContextChoice::NewConversation]);
        }
    }
    choices.push(ContextChoice::Stop);
    choices
}

/// The part of a branch that alone does not fit into the context, if there is one.
///
/// # Errors
/// Those of building its prompt.
pub(crate) fn too_long(
    desk: &Desk,
    cache: &Cache,
    conversation: &Conversation,
    parts: &[Part],
) -> Result<Option<TooLong>> {
    let is_too_long = |text: &str| -> Result<bool> {
        let alone = [Part {
            id: None,
            role: models::Role::User,
            text: text.to_owned(),
        }];
        let prompt = prompt_within(desk, cache, conversation, &alone)?;
        Ok(prompt.needed + 1 > cache.context_tokens())
    };
    if is_too_long("")? {
        return Ok(Some(TooLong::SystemPrompt));
    }
    let last = (parts.iter()).rfind(|part| part.role == models::Role::User);
    match last {
        Some(last) if is_too_long(&last.text)? => Ok(Some(TooLong::Message)),
        _ => Ok(None),
    }
}

/// Removes from `choices` the ways to shorten a branch that would fail because the part that stays, or the part to be
/// summarised, does not fit either.
pub(crate) fn keep_possible(
    choices: &mut Vec<ContextChoice>,
    desk: &Desk,
    cache: &Cache,
    conversation: &Conversation,
    parts: &[Part],
) {
    let starts = turn_starts(parts);
    let branch = Branch {
        desk,
        cache,
        conversation,
        parts,
        starts: &starts,
    };
    choices.retain(|choice| match choice {
        ContextChoice::DropOldest => branch.cut_oldest().is_ok(),
        ContextChoice::Compact => branch.cut_for_summary(true).is_ok(),
        _ => true,
    });
    let shortens = |it| matches!(it, ContextChoice::DropOldest | ContextChoice::Compact);
    if starts.len() > 1 && !choices.iter().copied().any(shortens) {
        let other = [ContextChoice::EditEarlier, ContextChoice::NewConversation];
        let missing = other.into_iter().filter(|it| !choices.contains(it));
        let missing: Vec<_> = missing.collect();
        choices.splice(0..0, missing);
    }
}

/// Builds a prompt up to the limit of the context, unless the turn is stopped.
fn prompt_within(
    desk: &Desk,
    cache: &Cache,
    conversation: &Conversation,
    parts: &[Part],
) -> Result<Prompt> {
    let mut go_on = || !desk.poll();
    let mut extent = Extent::new(cache.context_tokens(), &mut go_on);
    let history = desk.shared_history();
    prompt::build(history, cache.model(), conversation, parts, &mut extent)
}

/// What the conversation does by itself when a turn does not fit.
pub(crate) fn by_itself(conversation: &Conversation) -> Option<Shorten> {
    match conversation.when_full {
        WhenFull::Compact => Some(Shorten::Compact),
        WhenFull::DropOldest => Some(Shorten::DropOldest),
        WhenFull::Ask | WhenFull::Stop => None,
    }
}

/// Makes the shorter branch of the one that ends in the turn's leaf, and shows it. Returns its last message.
///
/// # Errors
/// When there is nothing to shorten, what must stay does not fit, or the summary fails or is stopped; nothing has changed
/// then.
pub(crate) fn shorten(
    desk: &mut Desk,
    cache: &mut Cache,
    conversation: &Conversation,
    turn: &Accepted,
    how: Shorten,
) -> Result<Message> {
    let messages = desk.history().branch(&turn.leaf)?;
    let parts: Vec<Part> = messages.iter().cloned().map(Part::from).collect();
    let starts = turn_starts(&parts);
    let branch = Branch {
        desk,
        cache,
        conversation,
        parts: &parts,
        starts: &starts,
    };
    let cut = match how {
        Shorten::DropOldest => branch.cut_oldest()?,
        Shorten::Compact => {
            let leaf = messages.last().ok_or(Error::NothingToShorten)?;
            branch.cut_for_summary(turn.extend || wants_more(leaf))?
        }
    };
    let summarised = match how {
        Shorten::Compact => Some(branch.summary_prompt(cut)?),
        Shorten::DropOldest => None,
    };
    turn.emit(TurnEvent::Shortening {
        how,
        turns: cut.kept_from as u32,
        left_out: cut.summarised_from as u32,
    });
    let mut new = Vec::new();
    if let Some(prompt) = summarised {
        let most = summary::most_tokens(cache.context_tokens());
        let words = summary::write(desk, cache, conversation, turn, &prompt.tokens, most)?;
        new.push(BranchPart::Summary {
            text: summary::headed(&words, cut.summarised_from),
            model: Some(cache.model().name().to_owned()),
        });
    }
    let first = starts.get(cut.kept_from).copied().unwrap_or(parts.len());
    for (index, message) in messages[first..].iter().enumerate() {
        new.push(BranchPart::Copy {
            of: message.id.clone(),
            // The ids of a message depend on what stands directly before it.
            with_tokens: index > 0,
        });
    }
    let now_ms = desk.now_ms();
    let stored = desk.history().add_branch(&conversation.id, &new, now_ms)?;
    let last = stored.last().cloned().ok_or(Error::NothingToShorten)?;
    turn.emit(TurnEvent::Shortened {
        how,
        messages: stored,
        turns: cut.kept_from as u32,
        left_out: cut.summarised_from as u32,
    });
    Ok(last)
}

/// Whether the model is to go on after this message: it asks something, or broke off because the context was full.
pub(crate) fn wants_more(leaf: &Message) -> bool {
    let asks = leaf.role == store::Role::User && leaf.kind == MessageKind::Said;
    asks || leaf.state == MessageState::ContextFull
}

/// Where the turns of a branch begin: at each message of the person.
fn turn_starts(parts: &[Part]) -> Vec<usize> {
    (0..parts.len())
        .filter(|&index| index == 0 || parts[index].role == models::Role::User)
        .collect()
}

struct Branch<'a> {
    desk: &'a Desk,
    cache: &'a Cache,
    conversation: &'a Conversation,
    parts: &'a [Part],
    starts: &'a [usize],
}

impl Branch<'_> {
    /// At least one turn goes, and more until half of the context is free; the last one stays.
    fn cut_oldest(&self) -> Result<Cut> {
        let limit = self.cache.context_tokens();
        let last = self.last_turn()?;
        let kept_from = first_that(1, last, |turn| Ok(self.kept_tokens(turn)? <= limit / 2))?;
        self.must_fit(self.kept_tokens(kept_from)? + 1)?;
        Ok(Cut {
            summarised_from: 0,
            kept_from,
        })
    }

    /// The turns that stay fill at most a quarter of the context; the last one always stays when it is to go on. Of the
    /// others the oldest are left out of the summary until it has room.
    fn cut_for_summary(&self, last_stays: bool) -> Result<Cut> {
        let limit = self.cache.context_tokens();
        let most = match last_stays {
            true => self.last_turn()?,
            false => self.starts.len(),
        };
        let kept_from = first_that(1, most, |turn| Ok(self.kept_tokens(turn)? <= limit / 4))?;
        let summary_tokens = summary::most_tokens(limit);
        self.must_fit(self.kept_tokens(kept_from)? + summary_tokens + 1)?;
        let cut = |summarised_from| Cut {
            summarised_from,
            kept_from,
        };
        let needed = |turn: usize| -> Result<usize> {
            Ok(self.summary_prompt(cut(turn))?.needed + summary_tokens)
        };
        let summarised_from = first_that(0, kept_from - 1, |turn| Ok(needed(turn)? <= limit))?;
        self.must_fit(needed(summarised_from)?)?;
        Ok(cut(summarised_from))
    }

    fn last_turn(&self) -> Result<usize> {
        match self.starts.len() {
            0 | 1 => Err(Error::NothingToShorten),
            num_turns => Ok(num_turns - 1),
        }
    }

    fn must_fit(&self, needed: usize) -> Result<()> {
        let limit = self.cache.context_tokens();
        match needed <= limit {
            true => Ok(()),
            // Counting ended at the limit of the context.
            false => Err(Error::ContextFull {
                needed,
                at_least: true,
                limit,
            }),
        }
    }

    fn kept_tokens(&self, turn: usize) -> Result<usize> {
        match self.starts.get(turn) {
            Some(&start) => Ok(self.prompt(self.parts[start..].to_vec())?.needed),
            None => Ok(0),
        }
    }

    /// The turns that are summarised as the model saw them, and the instruction after them.
    fn summary_prompt(&self, cut: Cut) -> Result<Prompt> {
        let start = self.starts[cut.summarised_from];
        let end = self.starts.get(cut.kept_from).copied();
        let mut parts = self.parts[start..end.unwrap_or(self.parts.len())].to_vec();
        parts.push(Part {
            id: None,
            role: models::Role::User,
            text: summary::instruction(self.cache.context_tokens()),
        });
        self.prompt(parts)
    }

    /// A prompt of a part of the branch. Its new beginning has no stored ids.
    fn prompt(&self, mut parts: Vec<Part>) -> Result<Prompt> {
        let first = &self.parts[0].id;
        if let Some(part) = parts.first_mut().filter(|part| part.id != *first) {
            part.id = None;
        }
        prompt_within(self.desk, self.cache, self.conversation, &parts)
    }
}

/// The first of `[from, last]` that passes, where all after it pass too; `last` when none before it does.
fn first_that(
    from: usize,
    last: usize,
    mut passes: impl FnMut(usize) -> Result<bool>,
) -> Result<usize> {
    let (mut low, mut high) = (from, last.max(from));
    while low < high {
        let middle = low + (high - low) / 2;
        if passes(middle)? {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::first_that;

    #[test]
    fn the_first_that_passes_is_found_and_the_last_stands_in() {
        for first in 0..9 {
            assert_eq!(first_that(0, 8, |n| Ok(n >= first)).unwrap(), first.min(8));
        }
        assert_eq!(first_that(1, 1, |_| Ok(false)).unwrap(), 1);
    }
}

//! From a branch of the history to the tokens of a prompt.
//!
//! Messages keep the token ids the model saw; only what has none yet is tokenised (law 10). Nothing here touches blocks.

use std::sync::{Mutex, PoisonError};

use models::{ChatMessage, Ends, Extent, Model, Role};
use store::{Conversation, History, Message, MessageId};

use crate::Result;

/// The tokens of a branch.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// In order; all of them if `is_whole`, with the generation prompt if the branch ends with a user message.
    pub tokens: Vec<u32>,
    /// Whether `tokens` is the whole prompt. Otherwise it is a prefix: counting ended once the prompt exceeded the
    /// bound.
    pub is_whole: bool,
    /// Number of tokens of the prompt; a lower bound unless `is_whole`.
    pub needed: usize,
    /// So many of them, from the first on, are the conversation's system prompt.
    pub num_system_tokens: usize,
    /// Messages that had no stored tokens, and theirs.
    pub new: Vec<(MessageId, Vec<u32>)>,
}

impl Prompt {
    /// The prompt of a branch without messages.
    pub fn empty() -> Self {
        Self {
            tokens: Vec::new(),
            is_whole: true,
            needed: 0,
            num_system_tokens: 0,
            new: Vec::new(),
        }
    }
}

/// The beginning of every prompt of a conversation.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// May be empty.
    pub system_prompt: &'a str,
    /// Unix time in milliseconds.
    pub created_at: i64,
}

impl<'a> From<&'a Conversation> for Head<'a> {
    fn from(conversation: &'a Conversation) -> Self {
        Self {
            system_prompt: &conversation.system_prompt,
            created_at: conversation.created_at,
        }
    }
}

/// One message of a branch as the prompt sees it: stored, or about to be.
#[derive(Clone, Debug)]
pub struct Part {
    /// Absent for a message that does not exist yet.
    pub id: Option<MessageId>,
    /// Who speaks.
    pub role: Role,
    /// The words.
    pub text: String,
}

impl From<Message> for Part {
    fn from(message: Message) -> Self {
        let role = match message.role {
            store::Role::System => Role::System,
            store::Role::User => Role::User,
            store::Role::Assistant => Role::Assistant,
        };
        Self {
            id: Some(message.id),
            role,
            text: message.text,
        }
    }
}

/// The messages from the root to `leaf`, or none.
///
/// # Errors
/// When history cannot be read.
pub fn branch(history: &History, leaf: Option<&MessageId>) -> Result<Vec<Part>> {
    match leaf {
        Some(leaf) => Ok(history.branch(leaf)?.into_iter().map(Part::from).collect()),
        None => Ok(Vec::new()),
    }
}

/// Tokens of `parts` under the system prompt, to the end of the last part's turn, within `extent`. Writes nothing: the
/// caller may store `new`. History is locked while it is read, not while text is tokenized, so that sent messages do
/// not wait.
///
/// # Errors
/// When history cannot be read, the model's template refuses the messages, or `extent` is interrupted.
pub fn build<'a>(
    history: &Mutex<History>,
    model: &Model,
    head: impl Into<Head<'a>>,
    parts: &[Part],
    extent: &mut Extent<'_>,
) -> Result<Prompt> {
    build_to(Ends::WithTurn, history, model, head, parts, extent)
}

/// Builds a prompt like [`build`], with an end as given by `ends`.
///
/// # Errors
/// Those of [`build`].
pub fn build_to<'a>(
    ends: Ends,
    history: &Mutex<History>,
    model: &Model,
    head: impl Into<Head<'a>>,
    parts: &[Part],
    extent: &mut Extent<'_>,
) -> Result<Prompt> {
    let head = head.into();
    let tokenizer = model.tokenizer();
    let stored = stored_tokens(history, parts, &tokenizer.digest())?;
    let system = (!head.system_prompt.is_empty()).then_some(ChatMessage {
        role: Role::System,
        content: head.system_prompt,
        tokens: None,
    });
    let num_system = usize::from(system.is_some());
    let messages: Vec<_> = system
        .into_iter()
        .chain(parts.iter().zip(&stored).map(|(part, tokens)| ChatMessage {
            role: part.role,
            content: &part.text,
            tokens: tokens.as_deref(),
        }))
        .collect();
    let date = iso_date_time(head.created_at);
    let most_tokens = extent.tokens_left();
    let mut lists = model
        .template()
        .tokenize_within(tokenizer, &messages, &date, ends, extent)?;
    let is_whole = !extent.is_used_up();
    let mut tokens = Vec::with_capacity(lists.iter().map(Vec::len).sum());
    for list in &lists {
        tokens.extend_from_slice(list);
    }
    let own = lists.split_off(num_system.min(lists.len()));
    let num_system_tokens = lists.iter().map(Vec::len).sum();
    // The part in which the extent was used up is incomplete, and the parts after it are missing.
    let num_done = own.len().saturating_sub(usize::from(!is_whole));
    let beyond = stored.iter().skip(num_done + 1).flatten();
    let needed = tokens.len() + beyond.map(Vec::len).sum::<usize>();
    let new = parts
        .iter()
        .zip(stored)
        .zip(own)
        .take(num_done)
        .filter_map(|((part, stored), list)| (stored.is_none()).then_some((part.id.clone()?, list)))
        .collect();
    Ok(Prompt {
        tokens,
        num_system_tokens,
        new,
        is_whole,
        needed: match is_whole {
            true => needed,
            // The extent ends at the first token beyond its maximum.
            false => needed.max(most_tokens.saturating_add(1)),
        },
    })
}

/// The stored token ids of each part; `None` for parts without stored ids.
fn stored_tokens(
    history: &Mutex<History>,
    parts: &[Part],
    tokenizer: &[u8; 32],
) -> Result<Vec<Option<Vec<u32>>>> {
    let history = history.lock().unwrap_or_else(PoisonError::into_inner);
    let stored = parts.iter().map(|part| match &part.id {
        Some(id) => history.tokens(id, tokenizer),
        None => Ok(None),
    });
    Ok(stored.collect::<store::Result<_>>()?)
}

/// `YYYY-MM-DDTHH:MM:SS` in UTC of Unix milliseconds. Frozen per conversation, so that a template with a clock renders
/// the same text every time. Days to date after Howard Hinnant, "chrono-compatible low-level date algorithms".
fn iso_date_time(unix_ms: i64) -> String {
    let seconds = unix_ms.div_euclid(1000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 {
        month_index + 3
    } else {
        month_index - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (second / 3600, second % 3600 / 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}",
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::iso_date_time;

    #[test]
    fn dates_are_civil_dates() {
        assert_eq!(iso_date_time(0), "1970-01-01T00:00:00");
        assert_eq!(iso_date_time(951_827_696_000), "2000-02-29T12:34:56");
        assert_eq!(iso_date_time(1_735_689_599_999), "2024-12-31T23:59:59");
        assert_eq!(iso_date_time(-1), "1969-12-31T23:59:59");
    }
}

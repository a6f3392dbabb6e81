//! From a branch of the history to the tokens of a prompt.
//!
//! Messages keep the token ids the model saw; only what has none yet is tokenised (law 10). Nothing here touches blocks.

use models::{ChatMessage, Model, Role};
use store::{Conversation, History, Message, MessageId};

use crate::Result;

/// The tokens of a branch.
#[derive(Clone, Debug, Default)]
pub struct Prompt {
    /// All of them, in order; ends with the generation prompt when the branch ends with a user message.
    pub tokens: Vec<u32>,
    /// So many of them, from the first on, are the conversation's system prompt.
    pub num_system_tokens: usize,
    /// Messages that had no stored tokens, and theirs.
    pub new: Vec<(MessageId, Vec<u32>)>,
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

/// Tokens of `parts` under the conversation's system prompt. Writes nothing: the caller stores `new` when it means to.
///
/// # Errors
/// When history cannot be read, or the model's template refuses the messages.
pub fn build(
    history: &History,
    model: &Model,
    conversation: &Conversation,
    parts: &[Part],
) -> Result<Prompt> {
    let tokenizer = model.tokenizer();
    let digest = tokenizer.digest();
    let stored = parts
        .iter()
        .map(|part| {
            part.id
                .as_ref()
                .map_or(Ok(None), |id| history.tokens(id, &digest))
        })
        .collect::<store::Result<Vec<_>>>()?;
    let system = (!conversation.system_prompt.is_empty()).then_some(ChatMessage {
        role: Role::System,
        content: &conversation.system_prompt,
        tokens: None,
    });
    let messages: Vec<_> = system
        .into_iter()
        .chain(parts.iter().zip(&stored).map(|(part, tokens)| ChatMessage {
            role: part.role,
            content: &part.text,
            tokens: tokens.as_deref(),
        }))
        .collect();
    let date = iso_date_time(conversation.created_at);
    let mut lists = model.template().tokenize(tokenizer, &messages, &date)?;
    let mut tokens = Vec::with_capacity(lists.iter().map(Vec::len).sum());
    for list in &lists {
        tokens.extend_from_slice(list);
    }
    let own = lists.split_off(lists.len() - parts.len());
    let num_system_tokens = lists.iter().map(Vec::len).sum();
    let new = parts
        .iter()
        .zip(stored)
        .zip(own)
        .filter_map(|((part, stored), list)| (stored.is_none()).then_some((part.id.clone()?, list)))
        .collect();
    Ok(Prompt {
        tokens,
        num_system_tokens,
        new,
    })
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

//! The model's own summary of a conversation, written aside: no block of it is kept, and no message until it is whole.

use models::StopStrings;
use store::Conversation;

use crate::cache::Cache;
use crate::desk::Desk;
use crate::intake::Accepted;
use crate::reply::sampler_config;
use crate::reply_text::ReplyText;
use crate::session::Session;
use crate::turn::TurnEvent;
use crate::{Error, Result, chat_turn};

/// Tokens that a summary may take in a context of `limit` tokens.
pub(crate) fn most_tokens(limit: usize) -> usize {
    (limit / 8).min(512)
}

/// What the model is asked, after the turns to summarise.
pub(crate) fn instruction(limit: usize) -> String {
    format!(
        "Summarize our conversation so far in at most {} words, so that it can go on without its text: what was asked and \
         answered, names, numbers, decisions and open questions. Write only the summary.",
        most_tokens(limit) / 2
    )
}

/// The words of the message that carries a summary; `left_out` turns were too old to have room in it.
pub(crate) fn headed(summary: &str, left_out: usize) -> String {
    let without = match left_out {
        0 => String::new(),
        1 => ", without its first turn".to_owned(),
        turns => format!(", without its first {turns} turns"),
    };
    format!("Summary of the earlier conversation{without}:\n\n{summary}")
}

/// Has the model answer `prompt` with at most `most` tokens; what it writes is shown as it comes.
///
/// # Errors
/// [`Error::Cancelled`] when the person stopped it, [`Error::NoSummary`] when the model wrote none, or when the model fails.
pub(crate) fn write(
    desk: &mut Desk,
    cache: &mut Cache,
    conversation: &Conversation,
    turn: &Accepted,
    prompt: &[u32],
    most: usize,
) -> Result<String> {
    let mut session = Session::aside();
    let written = decode(&mut session, desk, cache, conversation, turn, prompt, most);
    session.abandon(cache);
    // The summary leaves out the model's thought.
    let summary = models::answer(&written?).trim().to_owned();
    match summary.is_empty() {
        true => Err(Error::NoSummary),
        false => Ok(summary),
    }
}

fn decode(
    session: &mut Session,
    desk: &mut Desk,
    cache: &mut Cache,
    conversation: &Conversation,
    turn: &Accepted,
    prompt: &[u32],
    most: usize,
) -> Result<String> {
    let synced = session.sync(cache, prompt, &mut chat_turn::reading(desk, turn))?;
    let logits = synced.logits.ok_or(Error::Cancelled)?;
    let sampling = turn.options.over(&conversation.sampling);
    let config = sampler_config(&sampling, turn.leaf.as_str(), 0);
    let mut sampler = cache.model().tokenizer().sampler(config);
    let mut summary = ReplyText::new(
        cache.model().tokenizer().detokenizer(),
        StopStrings::new(sampling.stop),
    );
    let mut timeline = prompt.to_vec();
    let mut id = sampler.sample(&logits, &timeline);
    let show = |text: String| turn.emit(TurnEvent::Token { text });
    let mut was_cut = false;
    if let Some(opening) = cache.model().tokenizer().opened_thought(prompt) {
        summary.open(&opening);
        show(opening);
    }
    while timeline.len() < prompt.len() + most {
        if desk.poll() {
            return Err(Error::Cancelled);
        }
        chat_turn::answer_questions(desk, cache);
        timeline.push(id);
        if cache.model().tokenizer().is_end(id) {
            break;
        }
        show(summary.push(id));
        was_cut = timeline.len() == prompt.len() + most;
        if summary.has_stopped() || was_cut {
            break;
        }
        id = session.next(cache, &timeline, &mut sampler)?;
    }
    show(summary.end(was_cut));
    Ok(summary.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::headed;

    #[test]
    fn a_summary_says_what_it_leaves_out() {
        assert_eq!(
            headed("Birds.", 0),
            "Summary of the earlier conversation:\n\nBirds."
        );
        assert!(headed("Birds.", 1).contains("without its first turn:"));
        assert!(headed("Birds.", 3).contains("without its first 3 turns:"));
    }
}

//! One chat turn, after the user's words are stored: prompt, prefill, decode, store the reply, refs to its blocks.

use std::ops::ControlFlow;
use std::time::Instant;

use models::{Extent, StopStrings};
use store::{
    BlockId, Conversation, Message, MessageId, MessageState, Prefill, TokenRow, TurnStats,
};

use crate::cache::Cache;
use crate::desk::Desk;
use crate::intake::Accepted;
use crate::prompt::{self, Prompt};
use crate::question::{self, Asked};
use crate::reply::Reply;
use crate::reply_text::ReplyText;
use crate::request::Answer;
use crate::session::{Session, Synced};
use crate::turn::TurnEvent;
use crate::{Error, Result, loading};

/// Runs the turn. Takes `draft` over, the prefilled part of its message; `is_open` pins the blocks of the conversation that
/// somebody looks at. Returns the last event.
///
/// # Errors
/// When the prompt does not fit, or the model, the disk or the device fails. The session gives its slots back all the same.
pub(crate) fn run(
    turn: &Accepted,
    conversation: &Conversation,
    desk: &mut Desk,
    cache: &mut Cache,
    draft: &mut Option<Session>,
    is_open: bool,
) -> Result<TurnEvent> {
    let start = Instant::now();
    let prompt = prompt_of(desk, cache, conversation, &turn.leaf)?;
    // The prompt and one token of the reply.
    if !prompt.is_whole || prompt.needed + 1 > cache.context_tokens() {
        return Err(loading::too_long(
            cache,
            prompt.needed + 1,
            !prompt.is_whole,
        ));
    }
    let (prompt, message, ids, text) = begin(desk, cache, conversation, turn, prompt)?;
    turn.emit(TurnEvent::Started {
        user: None,
        reply: Some(Box::new(message.clone())),
    });

    let mut session = draft.take().unwrap_or_default().kept();
    let mut reply = Reply::new(message.clone(), ids, text, conversation, turn, cache);
    let outcome = generate(&mut session, &mut reply, cache, desk, turn, &prompt.tokens);
    let (state, stats, failure) = match outcome {
        Ok((state, synced)) => (
            state,
            Some(stats(&synced, &reply, prompt.tokens.len(), start)),
            None,
        ),
        Err(error) => (MessageState::Failed, None, Some(error)),
    };
    let ended = reply.end(desk, turn, state);
    let tokens = TokenRow {
        tokenizer: cache.model().tokenizer().digest(),
        ids: reply.ids.clone(),
    };
    let stored = ended.and_then(|()| {
        let mut history = desk.history();
        let text = reply.text.as_str();
        Ok(history.finish_reply(&message.id, text, &tokens, state, stats)?)
    });
    let (chain, timeline) = (session.chain().to_vec(), session.tokens().to_vec());
    // Also when the reply was not stored: only the session gives its slots back.
    let last = session.close(cache);
    debug_assert!(cache.check(&[]).is_ok(), "{:?}", cache.check(&[]));
    if let Err(error) = stored {
        return Err(failure.unwrap_or(error));
    }
    if is_open {
        cache.pin_open(&timeline);
    }
    refer(desk, cache, &message, chain, last)?;
    match (failure, stats) {
        (None, Some(stats)) => Ok(finished(message, reply.text.as_str(), state, &stats)),
        (failure, _) => Err(failure.unwrap_or(Error::Stopped)),
    }
}

/// The tokens of the branch that ends in `leaf`, at most as many as the model's context holds. Stores the tokens of messages that
/// had none. Ends early when the turn is stopped.
fn prompt_of(
    desk: &Desk,
    cache: &mut Cache,
    conversation: &Conversation,
    leaf: &MessageId,
) -> Result<Prompt> {
    let parts = prompt::branch(&desk.history(), Some(leaf))?;
    let model = cache.model();
    let mut go_on = || !desk.poll();
    let mut extent = Extent::new(model.config().context_length, &mut go_on);
    let history = desk.shared_history();
    let prompt = prompt::build(history, model, conversation, &parts, &mut extent)?;
    let digest = model.tokenizer().digest();
    for (message, tokens) in &prompt.new {
        desk.history().set_tokens(message, &digest, tokens)?;
    }
    let system = &prompt.tokens[..prompt.num_system_tokens];
    cache.begins_with(conversation.id.as_str(), system);
    Ok(prompt)
}

/// Stores an empty reply, or reopens the reply that is continued and returns its tokens and text, without the end-of-turn token,
/// after which the model would not continue.
fn begin(
    desk: &Desk,
    cache: &Cache,
    conversation: &Conversation,
    turn: &Accepted,
    mut prompt: Prompt,
) -> Result<(Prompt, Message, Vec<u32>, ReplyText)> {
    let (name, tokenizer) = (cache.model().name(), cache.model().tokenizer());
    let mut history = desk.history();
    let stops = StopStrings::new(turn.options.over(&conversation.sampling).stop);
    let (message, ids, text) = if turn.extend {
        let mut ids = history
            .tokens(&turn.leaf, &tokenizer.digest())?
            .unwrap_or_default();
        while ids.last().is_some_and(|&id| tokenizer.is_end(id)) {
            ids.pop();
            prompt.tokens.pop();
        }
        let tokens = TokenRow {
            tokenizer: tokenizer.digest(),
            ids,
        };
        let stored = history.message(&turn.leaf)?.text;
        let num_before = prompt.tokens.len().saturating_sub(tokens.ids.len());
        let opening = tokenizer.opened_thought(&prompt.tokens[..num_before]);
        let text = ReplyText::resumed(
            &stored,
            opening.as_deref().unwrap_or_default(),
            &tokens.ids,
            tokenizer.detokenizer(),
            stops,
        );
        let reply = history.reopen_reply(&turn.leaf, text.as_str(), Some(name), &tokens)?;
        (reply, tokens.ids, text)
    } else {
        let reply = history.begin_reply(
            &conversation.id,
            &turn.leaf,
            Some(name),
            &tokenizer.digest(),
            desk.now_ms(),
        )?;
        let text = ReplyText::new(tokenizer.detokenizer(), stops);
        (reply, Vec::new(), text)
    };
    history.set_active_leaf(&conversation.id, Some(&message.id))?;
    Ok((prompt, message, ids, text))
}

/// Prefill and decode.
fn generate(
    session: &mut Session,
    reply: &mut Reply,
    cache: &mut Cache,
    desk: &mut Desk,
    turn: &Accepted,
    prompt: &[u32],
) -> Result<(MessageState, Synced)> {
    let mut synced = session.sync(cache, prompt, &mut reading(desk, turn))?;
    let Some(logits) = synced.logits.take() else {
        return Ok((MessageState::Stopped, synced));
    };
    let state = reply.decode(session, cache, desk, turn, logits, &mut |desk, cache| {
        answer_questions(desk, cache);
    })?;
    Ok((state, synced))
}

/// Emits the progress of prefill, and breaks when the turn is stopped.
pub(crate) fn reading<'a>(
    desk: &'a mut Desk,
    turn: &'a Accepted,
) -> impl FnMut(&Prefill, usize) -> ControlFlow<()> + 'a {
    |prefill, total| {
        turn.emit(TurnEvent::Prefill {
            done: prefill.resident + prefill.restored + prefill.computed,
            total: total as u32,
            resident: prefill.resident,
            restored: prefill.restored,
        });
        if desk.poll() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// Answers the waiting questions in the middle of a turn.
pub(crate) fn answer_questions(desk: &Desk, cache: &Cache) {
    while let Some((question, answers)) = desk.next_question() {
        let asked = Asked {
            desk,
            cache: Some(cache),
            store: cache.store(),
            drafted: &[],
        };
        let answer = question::answer(question, &asked);
        let _ = answers.send(answer.unwrap_or_else(|error| Answer::from(&error)));
    }
}

/// Gives the reply a ref to its last block. It replaces the refs of the messages before it, whose blocks are part of the same chain.
fn refer(
    desk: &Desk,
    cache: &mut Cache,
    message: &Message,
    chain: Vec<BlockId>,
    last: Option<BlockId>,
) -> Result<()> {
    let Some(last) = last else { return Ok(()) };
    let ancestors = desk.history().branch(&message.id)?;
    let replaces = ancestors
        .iter()
        .filter(|old| old.id != message.id)
        .map(|old| old.id.to_string())
        .collect();
    cache.refer_later(message.id.to_string(), last, replaces, chain, desk.now_ms());
    Ok(())
}

fn stats(synced: &Synced, reply: &Reply, prompt_tokens: usize, start: Instant) -> TurnStats {
    TurnStats {
        prefill: synced.prefill,
        prompt_tokens: prompt_tokens as u32,
        completion_tokens: reply.num_sampled,
        ttft_ms: reply
            .first_token
            .map_or(0.0, |first| (first - start).as_secs_f64() * 1e3),
        tokens_per_s: reply.tokens_per_s(),
        restore_ms: synced.restore_ms,
    }
}

fn finished(message: Message, text: &str, state: MessageState, stats: &TurnStats) -> TurnEvent {
    let TurnStats {
        prefill,
        prompt_tokens,
        completion_tokens,
        ttft_ms,
        tokens_per_s,
        restore_ms,
    } = *stats;
    TurnEvent::Finished {
        message: message.id,
        model: message.model,
        text: text.to_owned(),
        state,
        prefill,
        prompt_tokens,
        completion_tokens,
        ttft_ms,
        tokens_per_s,
        restore_ms,
    }
}

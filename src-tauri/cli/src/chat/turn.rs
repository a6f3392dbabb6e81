//! One turn: its events as they happen, and Ctrl-C.

use engine::{ContextChoice, Shorten, TooLong, Turn, TurnEvent};
use store::{ConversationId, MessageState, Prefill, TurnStats};

use super::interrupt::stoppable;
use super::progress::Progress;
use crate::app::App;
use crate::error::{Error, Result};
use crate::output::{Output, grouped, milliseconds};

/// Runs the turn, prints its events and shuts the engine down, which saves. Ctrl-C stops the turn through the engine,
/// which keeps the text shown so far.
pub(super) fn run(app: &App, turn: Turn, output: &Output) -> Result<()> {
    let engine = app.engine()?;
    let conversation = turn.conversation().clone();
    let events = engine.submit(turn);
    let (shown, was_interrupted) = stoppable(engine, &conversation, || {
        let shown = show(events, &conversation, output);
        engine.shutdown();
        shown
    })?;
    match was_interrupted {
        true => Err(Error::Interrupted),
        false => shown,
    }
}

/// Runs the turn and prints its events; the engine keeps running. Returns whether Ctrl-C stopped the turn.
pub(super) fn one_of_many(app: &App, turn: Turn, output: &Output) -> Result<bool> {
    let engine = app.engine()?;
    let conversation = turn.conversation().clone();
    let events = engine.submit(turn);
    let (shown, was_interrupted) = stoppable(engine, &conversation, || {
        show(events, &conversation, output)
    })?;
    match shown {
        Err(Error::Turn { code, .. }) if was_interrupted && code == "stopped" => Ok(true),
        shown => shown.map(|()| was_interrupted),
    }
}

fn show(
    events: impl Iterator<Item = TurnEvent>,
    conversation: &ConversationId,
    output: &Output,
) -> Result<()> {
    let mut wrote_text = false;
    let progress = Progress::new(output.json);
    for event in events {
        progress.see(&event);
        match event {
            TurnEvent::Error { code, message } => {
                end_line(wrote_text, output)?;
                return Err(Error::Turn { code, message });
            }
            TurnEvent::ContextFull { .. } => {
                if output.json {
                    output.object(&event)?;
                }
                return Err(full(conversation, &event));
            }
            finished @ TurnEvent::Finished { .. } => {
                if output.json {
                    return output.object(&finished);
                }
                end_line(wrote_text, output)?;
                return output.quiet(&counts(&finished));
            }
            event if output.json => output.object(&event)?,
            TurnEvent::Token { text } => {
                wrote_text = true;
                output.text(&text)?;
            }
            TurnEvent::ModelFallback {
                wanted,
                reason,
                model,
                ..
            } => {
                end_line(wrote_text, output)?;
                wrote_text = false;
                output.quiet(&instead(conversation, &wanted, &reason, &model))?;
            }
            TurnEvent::Shortened {
                how,
                turns,
                left_out,
                ..
            } => {
                end_line(wrote_text, output)?;
                wrote_text = false;
                output.quiet(&shortened(how, turns, left_out))?;
            }
            // A continued reply is printed from its beginning.
            TurnEvent::Started {
                reply: Some(reply), ..
            } if reply.state == MessageState::Generating && !reply.text.is_empty() => {
                wrote_text = true;
                output.text(&reply.text)?;
            }
            TurnEvent::Started { .. }
            | TurnEvent::Shortening { .. }
            | TurnEvent::Prefill { .. } => {}
        }
    }
    Err(engine::Error::Stopped.into())
}

fn end_line(wrote_text: bool, output: &Output) -> Result<()> {
    if wrote_text && !output.json {
        output.text("\n")
    } else {
        Ok(())
    }
}

/// The error for a turn that does not fit into the context, with the commands that can help.
fn full(conversation: &ConversationId, event: &TurnEvent) -> Error {
    let TurnEvent::ContextFull {
        needed_tokens: needed,
        at_least,
        too_long,
        limit_tokens: limit,
        choices,
        ..
    } = event
    else {
        return engine::Error::Stopped.into();
    };
    let what = match too_long {
        Some(TooLong::SystemPrompt) => "with its system prompt alone the conversation",
        Some(TooLong::Message) => "with this message alone the conversation",
        None => "the conversation",
    };
    let least = if *at_least { "at least " } else { "" };
    let advice = advice(conversation, choices);
    Error::Turn {
        code: "context_full".to_owned(),
        message: format!(
            "{what} needs {least}{needed} tokens and there is room for {limit}; {advice}"
        ),
    }
}

fn advice(conversation: &ConversationId, choices: &[ContextChoice]) -> String {
    let commands: Vec<_> = choices
        .iter()
        .filter_map(|choice| match choice {
            ContextChoice::Compact => Some(format!("`chat compact {conversation}`")),
            ContextChoice::DropOldest => Some(format!("`chat drop-oldest {conversation}`")),
            ContextChoice::EditEarlier => Some("`chat edit` with fewer words".to_owned()),
            ContextChoice::EditSystemPrompt => Some(format!(
                "`chat system {conversation}` and a shorter system prompt"
            )),
            ContextChoice::NewConversation => Some("`chat new`".to_owned()),
            ContextChoice::LargerContext | ContextChoice::Stop => None,
        })
        .collect();
    match commands.is_empty() {
        true => "it is set to stop there".to_owned(),
        false => format!("go on with {}", commands.join(" or ")),
    }
}

/// The message about a fallback model, with the command to choose another.
fn instead(conversation: &ConversationId, wanted: &str, reason: &str, model: &str) -> String {
    format!(
        "{wanted} cannot answer: {reason}. {model} answers from now on; choose another with `chat model {conversation} NAME`"
    )
}

/// `a new branch with a summary of 12 turns, without the first 2; the full one stays`
fn shortened(how: Shorten, turns: u32, left_out: u32) -> String {
    let num = |turns: u32| match turns {
        1 => "1 turn".to_owned(),
        turns => format!("{turns} turns"),
    };
    let what = match (how, left_out) {
        (Shorten::DropOldest, _) => format!("without the oldest {}", num(turns)),
        (Shorten::Compact, 0) => format!("with a summary of {}", num(turns)),
        (Shorten::Compact, left_out) => format!(
            "with a summary of {}, without the oldest {}",
            num(turns - left_out),
            num(left_out)
        ),
    };
    format!("a new branch {what}; the full one stays")
}

/// `restored 3 120 tokens in 40 ms, computed 12 · first token after 85 ms · 34 tokens at 55.1/s`
fn counts(finished: &TurnEvent) -> String {
    let TurnEvent::Finished {
        state,
        prefill,
        prompt_tokens,
        completion_tokens,
        ttft_ms,
        tokens_per_s,
        restore_ms,
        ..
    } = *finished
    else {
        return String::new();
    };
    if prompt_tokens == 0 {
        return "stored".to_owned();
    }
    let stats = TurnStats {
        prefill,
        prompt_tokens,
        completion_tokens,
        ttft_ms,
        tokens_per_s,
        restore_ms,
    };
    let mut parts = vec![sources(&stats)];
    if completion_tokens > 0 {
        parts.push(format!("first token after {}", milliseconds(ttft_ms)));
        parts.push(format!(
            "{} tokens at {tokens_per_s:.1}/s",
            grouped(completion_tokens.into())
        ));
    }
    let ended = match state {
        MessageState::Stopped => Some("stopped"),
        MessageState::Length => Some("cut off at its limit"),
        MessageState::ContextFull => Some("context full"),
        _ => None,
    };
    parts.extend(ended.map(str::to_owned));
    parts.join(" · ")
}

fn sources(stats: &TurnStats) -> String {
    let Prefill {
        resident,
        restored,
        computed,
    } = stats.prefill;
    let mut parts = Vec::new();
    if resident > 0 {
        parts.push(format!("reused {} tokens", grouped(resident.into())));
    }
    if restored > 0 {
        let ms = milliseconds(stats.restore_ms);
        parts.push(format!(
            "restored {} tokens in {ms}",
            grouped(restored.into())
        ));
    }
    parts.push(format!("computed {}", grouped(computed.into())));
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use store::{Prefill, TurnStats};

    use engine::{ContextChoice, Shorten};

    use super::{advice, shortened, sources};

    #[test]
    fn a_shorter_branch_is_told_in_one_line() {
        assert_eq!(
            shortened(Shorten::DropOldest, 1, 0),
            "a new branch without the oldest 1 turn; the full one stays"
        );
        assert_eq!(
            shortened(Shorten::Compact, 12, 2),
            "a new branch with a summary of 10 turns, without the oldest 2 turns; the full one stays"
        );
    }

    #[test]
    fn a_full_context_names_the_commands_that_help() {
        let choices = [ContextChoice::Compact, ContextChoice::DropOldest];
        let advised = advice(&"c".into(), &choices);
        assert_eq!(
            advised,
            "go on with `chat compact c` or `chat drop-oldest c`"
        );
        assert_eq!(advice(&"c".into(), &[]), "it is set to stop there");
    }

    #[test]
    fn the_quiet_line_names_only_what_there_was() {
        let stats = |resident, restored, computed| TurnStats {
            prefill: Prefill {
                resident,
                restored,
                computed,
            },
            restore_ms: 40.2,
            ..TurnStats::default()
        };
        assert_eq!(sources(&stats(0, 0, 57)), "computed 57");
        assert_eq!(
            sources(&stats(64, 3120, 12)),
            "reused 64 tokens, restored 3 120 tokens in 40 ms, computed 12"
        );
    }
}

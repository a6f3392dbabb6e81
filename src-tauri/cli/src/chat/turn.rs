//! One turn: its events as they happen, and Ctrl-C.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use engine::{Engine, Turn, TurnEvent};
use store::{ConversationId, MessageState, Prefill, TurnStats};

use crate::app::App;
use crate::error::{Error, Result};
use crate::output::{Output, grouped, milliseconds};

/// Whether Ctrl-C was pressed.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// What wakes the thread that stops a turn.
enum Wake {
    Interrupted,
    Ended,
}

/// Does the turn and prints its events. Ctrl-C stops it through the engine, which keeps what was shown.
pub(super) fn run(app: &App, turn: Turn, output: &Output) -> Result<()> {
    let engine = app.engine()?;
    let conversation = turn.conversation().clone();
    let events = engine.submit(turn);
    // Only now: before, Ctrl-C ends the process and there is nothing to keep.
    let (wake, woken) = channel();
    catch_interrupt(wake.clone())?;
    let shown = std::thread::scope(|scope| {
        scope.spawn(|| stop_when_woken(engine, &conversation, woken));
        let shown = show(events, output);
        // The thread may have ended on its own.
        let _ = wake.send(Wake::Ended);
        shown
    });
    engine.shutdown();
    if INTERRUPTED.load(Ordering::SeqCst) {
        return Err(Error::Interrupted);
    }
    shown
}

fn catch_interrupt(wake: Sender<Wake>) -> Result<()> {
    ctrlc::set_handler(move || {
        // The second time nobody wants to wait; the words are in history already.
        if INTERRUPTED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        // Without a listener the turn has ended.
        let _ = wake.send(Wake::Interrupted);
    })
    .map_err(|error| Error::Internal(format!("Ctrl-C cannot be caught: {error}")))
}

fn stop_when_woken(engine: &Engine, conversation: &ConversationId, woken: Receiver<Wake>) {
    if let Ok(Wake::Interrupted) = woken.recv()
        && let Err(error) = engine.cancel(conversation.clone())
    {
        tracing::debug!(%error, "nothing to stop");
    }
}

fn show(events: impl Iterator<Item = TurnEvent>, output: &Output) -> Result<()> {
    let mut wrote_text = false;
    for event in events {
        match event {
            TurnEvent::Error { code, message } => {
                end_line(wrote_text, output)?;
                return Err(Error::Turn { code, message });
            }
            TurnEvent::ContextFull {
                needed_tokens,
                limit_tokens,
                ..
            } => {
                if output.json {
                    output.object(&event)?;
                }
                return Err(full(needed_tokens, limit_tokens));
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
            TurnEvent::Started { .. } | TurnEvent::Prefill { .. } => {}
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

fn full(needed: u32, limit: u32) -> Error {
    let error = engine::Error::ContextFull {
        needed: needed as usize,
        limit: limit as usize,
    };
    Error::Turn {
        code: error.code().to_owned(),
        message: error.to_string(),
    }
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

    use super::sources;

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

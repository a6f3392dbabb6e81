//! Ctrl-C and termination signals: the running reply stops, and the text shown so far is kept.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use engine::Engine;
use store::ConversationId;

use crate::error::{Error, Result};

/// Status of a process that was interrupted: 128 + SIGINT.
const INTERRUPTED: i32 = 130;

/// The running turn, and whether it is to stop. A static, since the signal handler has no other access to it.
static RUNNING: Mutex<Option<Running>> = Mutex::new(None);

struct Running {
    wake: Sender<Wake>,
    is_interrupted: bool,
}

/// Messages to the thread that stops a turn.
enum Wake {
    Interrupted,
    Ended,
}

/// Runs a closure during which Ctrl-C stops the turn of `conversation` through the engine. Also returns whether Ctrl-C
/// was pressed.
pub(super) fn stoppable<T>(
    engine: &Engine,
    conversation: &ConversationId,
    work: impl FnOnce() -> T,
) -> Result<(T, bool)> {
    let (wake, woken) = channel();
    *running() = Some(Running {
        wake: wake.clone(),
        is_interrupted: false,
    });
    catch()?;
    let done = std::thread::scope(|scope| {
        scope.spawn(|| stop_when_woken(engine, conversation, woken));
        let done = work();
        // The thread may have ended already.
        let _ = wake.send(Wake::Ended);
        done
    });
    let was_interrupted = running().take().is_some_and(|turn| turn.is_interrupted);
    Ok((done, was_interrupted))
}

fn running() -> MutexGuard<'static, Option<Running>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Installs the signal handler at the first turn. Before that, Ctrl-C ends the process, and there is no text to keep.
fn catch() -> Result<()> {
    static CAUGHT: OnceLock<Result<(), String>> = OnceLock::new();
    CAUGHT
        .get_or_init(|| ctrlc::set_handler(interrupt).map_err(|error| error.to_string()))
        .clone()
        .map_err(|error| Error::Internal(format!("Ctrl-C cannot be caught: {error}")))
}

fn interrupt() {
    match &mut *running() {
        Some(turn) if !turn.is_interrupted => {
            turn.is_interrupted = true;
            // If there is no receiver, the turn has ended.
            let _ = turn.wake.send(Wake::Interrupted);
        }
        // The second signal ends the process at once; the text is already in history.
        _ => std::process::exit(INTERRUPTED),
    }
}

fn stop_when_woken(engine: &Engine, conversation: &ConversationId, woken: Receiver<Wake>) {
    if let Ok(Wake::Interrupted) = woken.recv()
        && let Err(error) = engine.cancel(conversation.clone())
    {
        tracing::debug!(%error, "nothing to stop");
    }
}

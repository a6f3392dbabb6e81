//! The desk: what the engine thread sees of what has come in. Requests are taken in by the [`Intake`], on a thread of its own.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use store::History;

use crate::intake::{Accepted, Board, Intake, Waiting};
use crate::question::Question;
use crate::request::{Answer, Envelope, Request};
use crate::{Error, Result};

/// Longest wait between two looks at the clock.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// How long the disk is given between two looks at what is left to do.
const IDLE_PAUSE: Duration = Duration::from_millis(2);

/// The engine thread's side. Dropping it ends the intake.
#[derive(Debug)]
pub(crate) struct Desk {
    board: Arc<Board>,
    history: Arc<Mutex<History>>,
    clock: fn() -> i64,
    /// Wakes the intake, so that it sees the end.
    wake: Option<Sender<Envelope>>,
    intake: Option<JoinHandle<()>>,
}

impl Desk {
    /// Starts to take requests in from `inbox`; `wake` leads there.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the thread cannot be started.
    pub(crate) fn open(
        wake: Sender<Envelope>,
        inbox: Receiver<Envelope>,
        history: Arc<Mutex<History>>,
        clock: fn() -> i64,
    ) -> Result<Self> {
        let mut desk = Self::new(history, clock);
        let intake = desk.intake();
        let thread = std::thread::Builder::new()
            .name("intake".into())
            .spawn(move || intake.run(&inbox))
            .map_err(|_| Error::Stopped)?;
        desk.wake = Some(wake);
        desk.intake = Some(thread);
        Ok(desk)
    }

    fn new(history: Arc<Mutex<History>>, clock: fn() -> i64) -> Self {
        Self {
            board: Arc::default(),
            history,
            clock,
            wake: None,
            intake: None,
        }
    }

    /// What takes requests in for this desk.
    fn intake(&self) -> Intake {
        Intake {
            board: Arc::clone(&self.board),
            history: Arc::clone(&self.history),
            clock: self.clock,
        }
    }

    /// History rolls back what a panic interrupts, so the lock is taken whether or not another thread panicked. Not for long:
    /// the words that are sent meanwhile wait for it.
    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The history, for work that takes it only now and then.
    pub(crate) fn shared_history(&self) -> &Mutex<History> {
        &self.history
    }

    pub(crate) fn now_ms(&self) -> i64 {
        (self.clock)()
    }

    /// Waits for work: the next turn, else the next other request. While there is none `idle` is called, again and again as
    /// long as it says that something is left to do. When nobody wants the model at `idle_at` (Unix time in milliseconds) or
    /// later it is `Idle`. `None` when the engine is to end.
    pub(crate) fn next(
        &mut self,
        idle_at: Option<i64>,
        idle: &mut dyn FnMut() -> bool,
    ) -> Option<Work> {
        self.ended();
        loop {
            let left_ms = idle_at.map(|at| at - self.now_ms());
            if let Some(work) = self.board.lock().pick(left_ms) {
                return Some(work);
            }
            let wait = match (idle(), left_ms) {
                (true, _) => IDLE_PAUSE,
                // In short waits: while the machine sleeps the clock goes on, and waiting does not.
                (false, Some(ms)) => Duration::from_millis(ms.unsigned_abs()).min(LONGEST_WAIT),
                (false, None) => LONGEST_WAIT,
            };
            let waiting = self.board.lock();
            if waiting.is_empty() {
                if waiting.is_deserted {
                    return None;
                }
                // Woken for nothing, or poisoned: looked at again either way.
                drop(self.board.arrived.wait_timeout(waiting, wait));
            }
        }
    }

    /// The running turn has ended. Said before its last event: who has seen that may send the next one.
    pub(crate) fn ended(&self) {
        self.board.lock().running = None;
    }

    /// Whether the running turn is to stop.
    pub(crate) fn poll(&self) -> bool {
        self.board.lock().stop
    }

    /// Whether a turn waits, so that side work should make way.
    pub(crate) fn has_turn(&self) -> bool {
        let waiting = self.board.lock();
        !waiting.turns.is_empty() || waiting.closing
    }

    /// Whether another conversation waits to be opened: its reader has left the one before.
    pub(crate) fn has_open(&self) -> bool {
        self.board.lock().has_open()
    }

    /// Whether another conversation waits to be opened or warmed.
    pub(crate) fn has_warm(&self) -> bool {
        self.board.lock().has_warm()
    }

    /// Whether anything waits to be done.
    pub(crate) fn is_waited_for(&self) -> bool {
        let waiting = self.board.lock();
        !waiting.is_empty() || waiting.closing
    }

    /// The next request that may be answered in the middle of a reply, and where its answer goes.
    pub(crate) fn next_question(&self) -> Option<(Question, Sender<Answer>)> {
        let mut waiting = self.board.lock();
        let mut all = waiting.later.iter().enumerate();
        let (index, question) =
            all.find_map(|(index, it)| Some((index, Question::of(&it.request)?)))?;
        let answers = waiting.later.remove(index)?.answers;
        Some((question, answers))
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        {
            let mut waiting = self.board.lock();
            waiting.has_ended = true;
            waiting.turns.clear();
            waiting.later.clear();
        }
        let (Some(wake), Some(intake)) = (self.wake.take(), self.intake.take()) else {
            return;
        };
        let (answers, _) = channel();
        // It may have ended by itself.
        let _ = wake.send(Envelope {
            request: Request::Loaded,
            answers,
        });
        let _ = intake.join();
    }
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.turns.is_empty() && self.later.is_empty()
    }

    /// The next work that is there. A draft is read when there is nothing else to do.
    fn pick(&mut self, left_ms: Option<i64>) -> Option<Work> {
        if let Some(turn) = self.turns.pop_front() {
            self.running = Some(turn.conversation.clone());
            self.stop = self.closing;
            return Some(Work::Turn(turn));
        }
        let in_use = self.later.iter().any(|waiting| waiting.request.is_use());
        if left_ms.is_some_and(|ms| ms <= 0) && !in_use {
            return Some(Work::Idle);
        }
        let first = (self.later.iter())
            .position(|envelope| !matches!(envelope.request, Request::Draft { .. }));
        let envelope = self.later.remove(first.unwrap_or(0))?;
        Some(Work::Other(envelope))
    }
}

/// What the engine thread does next.
pub(crate) enum Work {
    Turn(Accepted),
    Other(Envelope),
    /// Nothing has been asked for as long as was agreed.
    Idle,
}

#[cfg(test)]
mod tests;

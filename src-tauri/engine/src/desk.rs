//! The desk: the engine thread's side of the request queue. The [`Intake`] receives requests on a thread of its own.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use store::History;

use crate::intake::{Accepted, Intake, RequestQueue, SharedQueue};
use crate::request::{Answer, Envelope, Question, Request};
use crate::{Error, Result};

/// Longest wait between two looks at the clock.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// How long the disk is given between two looks at what is left to do.
const IDLE_PAUSE: Duration = Duration::from_millis(2);

/// The engine thread's side. Dropping it ends the intake.
#[derive(Debug)]
pub(crate) struct Desk {
    queue: Arc<SharedQueue>,
    history: Arc<Mutex<History>>,
    clock: fn() -> i64,
    /// Wakes the intake thread when the engine ends.
    wake: Option<Sender<Envelope>>,
    intake: Option<JoinHandle<()>>,
}

impl Desk {
    /// Starts the intake thread, which receives from `inbox`; `wake` is a sender to `inbox`.
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
            queue: Arc::default(),
            history,
            clock,
            wake: None,
            intake: None,
        }
    }

    /// The intake of this desk.
    fn intake(&self) -> Intake {
        Intake {
            queue: Arc::clone(&self.queue),
            history: Arc::clone(&self.history),
            clock: self.clock,
        }
    }

    /// Locks the history, also after a panic in another thread, since history rolls back an interrupted transaction.
    /// Hold it briefly: a message that is sent meanwhile waits for it.
    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shared history, for work that locks it only briefly.
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
            if let Some(work) = self.queue.lock().pick(left_ms) {
                return Some(work);
            }
            let wait = match (idle(), left_ms) {
                (true, _) => IDLE_PAUSE,
                // In short waits: while the machine sleeps the clock goes on, and waiting does not.
                (false, Some(ms)) => Duration::from_millis(ms.unsigned_abs()).min(LONGEST_WAIT),
                (false, None) => LONGEST_WAIT,
            };
            let waiting = self.queue.lock();
            if waiting.is_empty() {
                if waiting.is_deserted {
                    return None;
                }
                // After a spurious wake-up or a poisoned lock the loop checks again.
                drop(self.queue.arrived.wait_timeout(waiting, wait));
            }
        }
    }

    /// Marks the running turn as ended. Called before its last event is emitted, since the receiver of that event may
    /// send the next turn.
    pub(crate) fn ended(&self) {
        self.queue.lock().running = None;
    }

    /// Whether the running turn is to stop.
    pub(crate) fn poll(&self) -> bool {
        self.queue.lock().stop
    }

    /// Whether a turn waits, so that side work should make way.
    pub(crate) fn has_turn(&self) -> bool {
        let waiting = self.queue.lock();
        !waiting.turns.is_empty() || waiting.closing
    }

    /// Whether another conversation waits to be opened: its reader has left the one before.
    pub(crate) fn has_open(&self) -> bool {
        self.queue.lock().has_open()
    }

    /// Whether another conversation waits to be opened or warmed.
    pub(crate) fn has_warm(&self) -> bool {
        self.queue.lock().has_warm()
    }

    /// Whether anything waits to be done.
    pub(crate) fn is_waited_for(&self) -> bool {
        let waiting = self.queue.lock();
        !waiting.is_empty() || waiting.closing
    }

    /// The next waiting question, and the sender for its answer.
    pub(crate) fn next_question(&self) -> Option<(Question, Sender<Answer>)> {
        let mut waiting = self.queue.lock();
        let is_question = |it: &Envelope| matches!(it.request, Request::Question { .. });
        let index = waiting.later.iter().position(is_question)?;
        let Envelope { request, answers } = waiting.later.remove(index)?;
        let Request::Question { question } = request else {
            return None;
        };
        Some((question, answers))
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        {
            let mut waiting = self.queue.lock();
            waiting.has_ended = true;
            waiting.turns.clear();
            waiting.later.clear();
        }
        let (Some(wake), Some(intake)) = (self.wake.take(), self.intake.take()) else {
            return;
        };
        let (answers, _) = channel();
        // The thread may have ended already.
        let _ = wake.send(Envelope {
            request: Question::Loaded.into(),
            answers,
        });
        let _ = intake.join();
    }
}

impl RequestQueue {
    fn is_empty(&self) -> bool {
        self.turns.is_empty() && self.later.is_empty()
    }

    /// Takes the next work from the queue. A draft is prefilled only when there is no other work.
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

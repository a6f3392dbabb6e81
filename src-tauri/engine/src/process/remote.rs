//! The parent's side: one thread writes requests, another starts the process, reads its answers and starts it again.

use std::collections::HashMap;
use std::process::ChildStdin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use store::Passphrase;

#[cfg(windows)]
use super::program::job_of;
use super::program::{EngineProcess, Reaped, greet};
use super::{Call, Opening, Reply, frame};
use crate::request::{Answer, Envelope, Request};
use crate::{Error, Result};

/// A process that lived shorter than this ended at its start.
const SHORT_LIFE: Duration = Duration::from_secs(10);
/// Short lives in a row after which it is only started again when somebody asks for something.
const MOST_SHORT_LIVES: u32 = 3;

/// A request whose last answer has not come.
struct Pending {
    request: Request,
    answers: Sender<Answer>,
    was_retried: bool,
    /// Whether something came back. A turn of which nothing did has not begun to be written.
    was_answered: bool,
}

impl Pending {
    /// Whether another process may be asked, when the one that was asked has ended.
    fn may_be_retried(&self) -> bool {
        let is_unheard = !self.was_answered && self.request.may_be_repeated_unheard();
        !self.was_retried && (is_unheard || self.request.may_be_repeated())
    }
}

/// What the two threads share.
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    link: Link,
    pending: HashMap<u64, Pending>,
    next_id: u64,
    /// The end of the process is wanted.
    is_closing: bool,
    /// The model to load again: the last one that was asked for.
    load: Option<Request>,
    /// What may unlock the history, the newest first: whether a change of it came about is not known when the process ends
    /// in the middle of it.
    passphrases: Vec<Passphrase>,
}

enum Link {
    Starting,
    Up(ChildStdin),
    /// It cannot be had, and why; it is tried again when something is asked for.
    Down {
        code: String,
        message: String,
    },
}

/// Starts the process and the threads that talk to it. Waits until it is ready or cannot be.
pub(crate) fn spawn(process: EngineProcess, inbox: Receiver<Envelope>) -> Result<JoinHandle<()>> {
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            link: Link::Starting,
            pending: HashMap::new(),
            next_id: 0,
            is_closing: false,
            load: None,
            passphrases: process.passphrase.iter().cloned().collect(),
        }),
        changed: Condvar::new(),
    });
    let (first, started) = channel();
    let reader = {
        let shared = Arc::clone(&shared);
        // This thread lives as long as the process that it starts: a process asks to be told of its parent's death by the
        // thread that started it.
        let supervise = move || Supervisor { process, shared }.run(&first);
        thread::Builder::new()
            .name("engine-process".into())
            .spawn(supervise)
    };
    let reader = reader.map_err(|_| Error::Stopped)?;
    started.recv().map_err(|_| Error::Stopped)??;
    let writer = move || {
        for envelope in inbox {
            let is_last = matches!(envelope.request, Request::Shutdown);
            shared.pass_on(envelope);
            if is_last {
                break;
            }
        }
        shared.close();
        // Its panics are its own; there is nothing left to save here.
        let _ = reader.join();
    };
    thread::Builder::new()
        .name("engine-requests".into())
        .spawn(writer)
        .map_err(|_| Error::Stopped)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request, waiting while the process is being started.
    fn pass_on(&self, Envelope { request, answers }: Envelope) {
        let mut state = self.lock();
        let is_last = matches!(request, Request::Shutdown);
        if matches!(state.link, Link::Down { .. }) && !is_last {
            state.link = Link::Starting;
            self.changed.notify_all();
        }
        while matches!(state.link, Link::Starting) && !state.is_closing {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.is_closing |= is_last;
        match &request {
            Request::Load { .. } => state.load = Some(request.clone()),
            Request::Protect { secret } | Request::ChangeSecret { secret, .. } => {
                if let Some(passphrase) = secret.passphrase() {
                    state.passphrases.insert(0, passphrase.clone());
                    state.passphrases.truncate(2);
                }
            }
            // Whatever else uses a model has it loaded.
            request if request.is_use() && state.load.is_none() => {
                state.load = Some(Request::Load { name: None });
            }
            _ => {}
        }
        if let Link::Down { code, message } = &state.link {
            let (code, message) = (code.clone(), message.clone());
            // Who does not wait for an answer has none.
            let _ = answers.send(Answer::Error { code, message });
            return;
        }
        state.send(Pending {
            request,
            answers,
            was_retried: false,
            was_answered: false,
        });
    }

    /// Ends the stream, at which the process saves and ends.
    fn close(&self) {
        let mut state = self.lock();
        state.is_closing = true;
        state.link = Link::Down {
            code: Error::Stopped.code().to_owned(),
            message: Error::Stopped.to_string(),
        };
        self.changed.notify_all();
    }
}

impl State {
    /// A process that does not take it has died: whoever reads its answers will notice.
    fn send(&mut self, pending: Pending) {
        let Link::Up(requests) = &mut self.link else {
            return;
        };
        self.next_id += 1;
        let call = Call {
            id: self.next_id,
            request: pending.request.clone(),
        };
        if let Err(error) = frame::write(requests, &call) {
            tracing::debug!(%error, "the engine takes no request");
        }
        self.pending.insert(call.id, pending);
    }

    fn take(&mut self, reply: Reply) {
        match reply {
            Reply::Answer { id, answer } => {
                if let Some(pending) = self.pending.get_mut(&id) {
                    pending.was_answered = true;
                    let _ = pending.answers.send(answer);
                }
            }
            Reply::End { id } => drop(self.pending.remove(&id)),
            other => tracing::warn!(?other, "the engine says what it should not"),
        }
    }
}

/// Starts the process, reads its answers, and starts it again when it ends unasked.
struct Supervisor {
    process: EngineProcess,
    shared: Arc<Shared>,
}

impl Supervisor {
    fn run(self, first: &Sender<Result<()>>) {
        let mut short_lives = 0;
        let mut is_first = true;
        loop {
            let started = Instant::now();
            let outcome = self.live(|| {
                // Nobody waits for the second one.
                let _ = is_first.then(|| first.send(Ok(())));
                is_first = false;
            });
            short_lives = match started.elapsed() < SHORT_LIFE {
                true => short_lives + 1,
                false => 0,
            };
            let mut state = self.shared.lock();
            if state.is_closing {
                // Who still waits is told by the end of the channel.
                state.pending.clear();
                return;
            }
            let reason = match outcome {
                Ok(()) if short_lives < MOST_SHORT_LIVES => {
                    state.link = Link::Starting;
                    continue;
                }
                Ok(()) => Error::Process(
                    "the engine keeps stopping; see its messages, or choose another model".into(),
                ),
                Err(error) => error,
            };
            tracing::error!(%reason, "the engine is down");
            let (code, message) = (reason.code().to_owned(), reason.to_string());
            for (_, pending) in state.pending.drain() {
                let (code, message) = (code.clone(), message.clone());
                let _ = pending.answers.send(Answer::Error { code, message });
            }
            state.link = Link::Down { code, message };
            self.shared.changed.notify_all();
            if is_first {
                let _ = first.send(Err(reason));
                return;
            }
            while matches!(state.link, Link::Down { .. }) && !state.is_closing {
                state = self
                    .shared
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            short_lives = 0;
        }
    }

    /// One life of the process, from its start to its end, in which `ready` is called when it is. An error when it did not
    /// get that far.
    fn live(&self, ready: impl FnOnce()) -> Result<()> {
        let (child, mut requests, mut replies) = self.process.start()?;
        let mut child = Reaped(child);
        #[cfg(windows)]
        let _job = job_of(&child.0)?;
        let passphrases = self.shared.lock().passphrases.clone();
        greet(&mut requests, &mut replies, Opening { passphrases })?;
        self.up(requests);
        ready();
        let read = loop {
            match frame::read(&mut replies) {
                Ok(Some(reply)) => self.shared.lock().take(reply),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        // Its stream is closed, so that it ends if it has not.
        self.shared.lock().link = Link::Starting;
        let status = child.end();
        if !self.shared.lock().is_closing {
            tracing::error!(?status, ?read, "the engine stopped; it is started again");
        }
        Ok(())
    }

    /// The process is ready: what waited is asked again where that does no harm, and refused where it would.
    fn up(&self, requests: ChildStdin) {
        let mut state = self.shared.lock();
        if state.is_closing {
            // The stream is dropped, and with it the process ends.
            return;
        }
        state.link = Link::Up(requests);
        let waiting: Vec<Pending> = state.pending.drain().map(|(_, pending)| pending).collect();
        let had_died = state.next_id > 0;
        if let Some(request) = state.load.clone().filter(|_| had_died) {
            let (answers, _) = channel();
            state.send(Pending {
                request,
                answers,
                was_retried: true,
                was_answered: false,
            });
        }
        for pending in waiting {
            if pending.may_be_retried() {
                state.send(Pending {
                    was_retried: true,
                    ..pending
                });
            } else {
                let _ = pending.answers.send(Answer::from(&Error::Restarted));
            }
        }
        self.shared.changed.notify_all();
    }
}

//! The desk: takes requests in, also while a turn runs, and puts the user's words into history at once (law 6).

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use store::{ConversationId, History, Message, MessageId, MessageState, NewMessage, Role};

use crate::request::{Answer, Envelope, Request};
use crate::turn::{Shorten, Turn, TurnEvent, TurnOptions};
use crate::{Error, Result};

/// Longest wait between two looks at the clock.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// How long the disk is given between two looks at what is left to do.
const IDLE_PAUSE: Duration = Duration::from_millis(2);

/// A turn whose words are stored and whose reply is still to be written.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub conversation: ConversationId,
    /// Last message of the prompt.
    pub leaf: MessageId,
    /// The leaf is a reply that goes on.
    pub extend: bool,
    /// A shorter branch is made first.
    pub shorten: Option<Shorten>,
    pub options: TurnOptions,
    pub events: Sender<Answer>,
}

impl Accepted {
    pub(crate) fn emit(&self, event: TurnEvent) {
        // A listener that went away does not end the reply: it is stored all the same.
        let _ = self.events.send(Answer::Turn(event));
    }
}

/// Requests that have come in and not been done.
#[derive(Debug)]
pub(crate) struct Desk {
    inbox: Receiver<Envelope>,
    history: Arc<Mutex<History>>,
    clock: fn() -> i64,
    turns: VecDeque<Accepted>,
    later: VecDeque<Envelope>,
    running: Option<ConversationId>,
    stop: bool,
    closing: bool,
}

impl Desk {
    pub(crate) fn new(
        inbox: Receiver<Envelope>,
        history: Arc<Mutex<History>>,
        clock: fn() -> i64,
    ) -> Self {
        Self {
            inbox,
            history,
            clock,
            turns: VecDeque::new(),
            later: VecDeque::new(),
            running: None,
            stop: false,
            closing: false,
        }
    }

    /// History rolls back what a panic interrupts, so the lock is taken whether or not another thread panicked.
    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
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
        loop {
            // Before anything is taken in: who has seen the last event of a turn may send the next one.
            self.running = None;
            self.poll();
            if let Some(turn) = self.turns.pop_front() {
                self.running = Some(turn.conversation.clone());
                self.stop = self.closing;
                return Some(Work::Turn(turn));
            }
            let left_ms = idle_at.map(|at| at - self.now_ms());
            let in_use = self.later.iter().any(|waiting| waiting.request.is_use());
            if left_ms.is_some_and(|ms| ms <= 0) && !in_use {
                return Some(Work::Idle);
            }
            // A draft is read when there is nothing else to do.
            let first = self.later.iter().position(|envelope| !is_draft(envelope));
            if let Some(envelope) = self.later.remove(first.unwrap_or(0)) {
                return Some(Work::Other(envelope));
            }
            let wait = match (idle(), left_ms) {
                (true, _) => Some(IDLE_PAUSE),
                // In short waits: while the machine sleeps the clock goes on, and waiting does not.
                (false, Some(ms)) => {
                    Some(Duration::from_millis(ms.unsigned_abs()).min(LONGEST_WAIT))
                }
                (false, None) => None,
            };
            let arrived = match wait {
                None => self.inbox.recv().map_err(RecvTimeoutError::from),
                Some(wait) => self.inbox.recv_timeout(wait),
            };
            match arrived {
                Ok(envelope) => self.take(envelope),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Takes in what has arrived without waiting. True when the running turn is to stop.
    pub(crate) fn poll(&mut self) -> bool {
        while let Ok(envelope) = self.inbox.try_recv() {
            self.take(envelope);
        }
        self.stop
    }

    /// Whether a turn waits, so that side work should make way.
    pub(crate) fn has_turn(&self) -> bool {
        !self.turns.is_empty() || self.closing
    }

    /// Whether another conversation waits to be opened: its reader has left the one before.
    pub(crate) fn has_open(&self) -> bool {
        self.later.iter().any(is_open)
    }

    /// Whether another conversation waits to be opened or warmed.
    pub(crate) fn has_warm(&self) -> bool {
        self.later.iter().any(|it| is_open(it) || is_warm(it))
    }

    /// Whether anything waits to be done.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.has_turn() || !self.later.is_empty()
    }

    /// The next request that may be answered in the middle of a reply.
    pub(crate) fn next_question(&mut self) -> Option<Envelope> {
        let is_question = |envelope: &Envelope| {
            matches!(
                envelope.request,
                Request::Preview { .. }
                    | Request::Context { .. }
                    | Request::Loaded
                    | Request::CacheStats
                    | Request::Devices
                    | Request::Memory
                    | Request::Privacy
            )
        };
        let index = self.later.iter().position(is_question)?;
        self.later.remove(index)
    }

    fn take(&mut self, Envelope { request, answers }: Envelope) {
        match request {
            Request::Turn { turn } => match self.accept(&turn, &answers) {
                Ok(Some(accepted)) => {
                    self.forget_drafts(|conversation| *conversation == accepted.conversation);
                    self.turns.push_back(accepted);
                }
                Ok(None) => {}
                Err(error) => {
                    let _ = answers.send(Answer::Turn(TurnEvent::from(&error)));
                }
            },
            Request::Cancel { conversation } => {
                self.cancel(&conversation);
                let _ = answers.send(Answer::Done);
            }
            Request::Shutdown => {
                self.closing = true;
                self.stop = true;
                self.later.push_back(Envelope {
                    request: Request::Shutdown,
                    answers,
                });
            }
            Request::Open { .. } | Request::Warm { .. } => {
                // There is one reader: who opens a conversation has left the one before. Pointing at another leaves nothing.
                let opens = matches!(request, Request::Open { .. });
                let is_left = |it: &Envelope| is_warm(it) || (opens && is_open(it));
                let (left, kept) = self.later.drain(..).partition(is_left);
                self.later = kept;
                let left: VecDeque<Envelope> = left;
                for envelope in left {
                    let _ = envelope.answers.send(Answer::Done);
                }
                self.later.push_back(Envelope { request, answers });
            }
            request => {
                if matches!(request, Request::Draft { .. }) {
                    // Only what was typed last counts.
                    self.forget_drafts(|_| true);
                }
                self.later.push_back(Envelope { request, answers });
            }
        }
    }

    fn forget_drafts(&mut self, which: impl Fn(&ConversationId) -> bool) {
        self.later.retain(|envelope| match &envelope.request {
            Request::Draft { conversation, .. } if which(conversation) => {
                let _ = envelope.answers.send(Answer::Drafted { tokens: 0 });
                false
            }
            _ => true,
        });
    }

    fn cancel(&mut self, conversation: &ConversationId) {
        if self.running.as_ref() == Some(conversation) {
            self.stop = true;
        }
        let (cancelled, kept) = self
            .turns
            .drain(..)
            .partition(|turn: &Accepted| turn.conversation == *conversation);
        self.turns = kept;
        let cancelled: VecDeque<Accepted> = cancelled;
        for turn in cancelled {
            turn.emit(TurnEvent::Error {
                code: "stopped".into(),
                message: "stopped before it began".into(),
            });
        }
    }

    /// Stores the words of a turn. `None` when there is nothing left to do.
    fn accept(&mut self, turn: &Turn, answers: &Sender<Answer>) -> Result<Option<Accepted>> {
        let id = turn.conversation();
        let conversation = self
            .history()
            .conversation(id)
            .map_err(|_| Error::ConversationMissing(id.to_string()))?;
        if self.running.as_ref() == Some(id)
            || self.turns.iter().any(|turn| turn.conversation == *id)
        {
            return Err(Error::Busy);
        }
        let accepted = |leaf: MessageId, extend: bool| Accepted {
            conversation: id.clone(),
            leaf,
            extend,
            shorten: None,
            options: turn.options().clone(),
            events: answers.clone(),
        };
        match turn {
            Turn::Send { parent, text, .. } => {
                let parent = match parent {
                    Some(parent) => Some(self.message(id, parent)?.id),
                    None => conversation.active_leaf.clone(),
                };
                let user = match self.unanswered(parent.as_ref(), text)? {
                    Some(user) => user,
                    None => self.append(id, parent, Role::User, text, None)?,
                };
                let accepted = accepted(user.id.clone(), false);
                accepted.emit(TurnEvent::Started {
                    user: Some(Box::new(user)),
                    reply: None,
                });
                Ok(Some(accepted))
            }
            Turn::Edit { message, text, .. } => {
                let old = self.message(id, message)?;
                let new = self.append(id, old.parent, old.role, text, Some(old.id))?;
                let accepted = accepted(new.id.clone(), false);
                if new.role == Role::User {
                    accepted.emit(TurnEvent::Started {
                        user: Some(Box::new(new)),
                        reply: None,
                    });
                    return Ok(Some(accepted));
                }
                accepted.emit(TurnEvent::Started {
                    user: None,
                    reply: Some(Box::new(new.clone())),
                });
                accepted.emit(TurnEvent::stored(new));
                Ok(None)
            }
            Turn::Regenerate { message, .. } => {
                let message = self.message(id, message)?;
                let user = match (message.role, message.parent) {
                    (Role::Assistant, Some(parent)) => self.message(id, &parent)?,
                    (Role::User, _) => self.message(id, &message.id)?,
                    _ => {
                        return Err(Error::InvalidArgument(
                            "only a reply can be written again".into(),
                        ));
                    }
                };
                Ok(Some(accepted(user.id, false)))
            }
            Turn::Continue { message, .. } => {
                let reply = self.message(id, message)?;
                let unfinished = !matches!(
                    reply.state,
                    MessageState::Complete | MessageState::Generating
                );
                if reply.role != Role::Assistant || !unfinished {
                    return Err(Error::InvalidArgument(
                        "only a reply that was cut off can go on".into(),
                    ));
                }
                Ok(Some(accepted(reply.id, true)))
            }
            Turn::Shorten { how, .. } => {
                let leaf = conversation.active_leaf.ok_or(Error::NothingToShorten)?;
                Ok(Some(Accepted {
                    shorten: Some(*how),
                    ..accepted(leaf, false)
                }))
            }
        }
    }

    fn message(&self, conversation: &ConversationId, id: &MessageId) -> Result<Message> {
        match self.history().message(id) {
            Ok(message) if message.conversation == *conversation => Ok(message),
            _ => Err(Error::MessageMissing(id.to_string())),
        }
    }

    /// The message itself, if it has these words and waits for its reply: they were sent before, and are not stored twice.
    fn unanswered(&self, id: Option<&MessageId>, text: &str) -> Result<Option<Message>> {
        let history = self.history();
        let Some(message) = id.map(|id| history.message(id)).transpose()? else {
            return Ok(None);
        };
        if message.role != Role::User || message.text != text {
            return Ok(None);
        }
        let all = history.messages(&message.conversation)?;
        let is_answered = all.iter().any(|it| it.parent.as_ref() == Some(&message.id));
        Ok((!is_answered).then_some(message))
    }

    fn append(
        &self,
        conversation: &ConversationId,
        parent: Option<MessageId>,
        role: Role,
        text: &str,
        edited_from: Option<MessageId>,
    ) -> Result<Message> {
        if text.trim().is_empty() {
            return Err(Error::InvalidArgument(
                "the message is empty; write something first".into(),
            ));
        }
        let new = NewMessage {
            conversation: conversation.clone(),
            parent,
            role,
            text: text.to_owned(),
            state: MessageState::Complete,
            model: None,
            edited_from,
        };
        let now_ms = self.now_ms();
        let mut history = self.history();
        let message = history.append_message(new, now_ms)?;
        history.set_active_leaf(conversation, Some(&message.id))?;
        Ok(message)
    }
}

fn is_draft(envelope: &Envelope) -> bool {
    matches!(envelope.request, Request::Draft { .. })
}

/// What the engine thread does next.
pub(crate) enum Work {
    Turn(Accepted),
    Other(Envelope),
    /// Nothing has been asked for as long as was agreed.
    Idle,
}

fn is_open(envelope: &Envelope) -> bool {
    matches!(envelope.request, Request::Open { .. })
}

fn is_warm(envelope: &Envelope) -> bool {
    matches!(envelope.request, Request::Warm { .. })
}

#[cfg(test)]
mod tests;

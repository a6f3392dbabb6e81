//! The intake: a thread that takes requests in and puts the user's words into history at once (law 6), whatever the engine
//! thread is doing: loading a model, tokenizing a long text, reading a prompt.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use store::{ConversationId, History, Message, MessageId, MessageState, NewMessage, Role};

use crate::request::{Answer, Envelope, Request};
use crate::turn::{Shorten, Turn, TurnEvent, TurnOptions};
use crate::{Error, Result};

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

/// The request queue, and the state of the running turn.
#[derive(Debug, Default)]
pub(crate) struct RequestQueue {
    pub turns: VecDeque<Accepted>,
    pub later: VecDeque<Envelope>,
    /// The conversation whose turn is running.
    pub running: Option<ConversationId>,
    /// The running turn is to stop.
    pub stop: bool,
    /// The engine is to end.
    pub closing: bool,
    /// Every handle to the engine is gone: no further request can come.
    pub is_deserted: bool,
    /// The engine thread has ended: nothing is done any more.
    pub has_ended: bool,
}

impl RequestQueue {
    fn put(&mut self, Envelope { request, answers }: Envelope) {
        match request {
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
                    // A newer draft replaces the waiting one.
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

    /// Whether another conversation waits to be opened.
    pub(crate) fn has_open(&self) -> bool {
        self.later.iter().any(is_open)
    }

    /// Whether another conversation waits to be opened or warmed.
    pub(crate) fn has_warm(&self) -> bool {
        self.later.iter().any(|it| is_open(it) || is_warm(it))
    }

    /// Whether a turn of the conversation runs or waits. Only the intake adds turns, so that the answer holds until it adds one.
    fn is_busy(&self, conversation: &ConversationId) -> bool {
        self.running.as_ref() == Some(conversation)
            || (self.turns.iter()).any(|turn| turn.conversation == *conversation)
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
}

/// What the intake and the engine thread share. Neither holds it while it works.
#[derive(Debug, Default)]
pub(crate) struct SharedQueue {
    waiting: Mutex<RequestQueue>,
    pub arrived: Condvar,
}

impl SharedQueue {
    pub(crate) fn lock(&self) -> MutexGuard<'_, RequestQueue> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread's side.
#[derive(Debug)]
pub(crate) struct Intake {
    pub queue: Arc<SharedQueue>,
    pub history: Arc<Mutex<History>>,
    pub clock: fn() -> i64,
}

impl Intake {
    /// Takes in what comes until nobody can ask any more, or the engine thread has ended.
    pub(crate) fn run(&self, inbox: &Receiver<Envelope>) {
        for envelope in inbox {
            if self.queue.lock().has_ended {
                return;
            }
            self.take(envelope);
            self.queue.arrived.notify_all();
        }
        self.queue.lock().is_deserted = true;
        self.queue.arrived.notify_all();
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one request in. The words of a turn are durable, and answered with their message, when this returns.
    pub(crate) fn take(&self, Envelope { request, answers }: Envelope) {
        match request {
            Request::Turn { turn } => match self.accept(&turn, &answers) {
                Ok(Some(accepted)) => {
                    let mut waiting = self.queue.lock();
                    // After the end of the engine thread nothing is queued: the dropped sender tells the caller that the engine has stopped.
                    if !waiting.has_ended {
                        waiting.forget_drafts(|it| *it == accepted.conversation);
                        waiting.turns.push_back(accepted);
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    let _ = answers.send(Answer::Turn(TurnEvent::from(&error)));
                }
            },
            request => {
                let mut waiting = self.queue.lock();
                if !waiting.has_ended {
                    waiting.put(Envelope { request, answers });
                }
            }
        }
    }

    /// Stores the words of a turn. `None` when there is nothing left to do.
    fn accept(&self, turn: &Turn, answers: &Sender<Answer>) -> Result<Option<Accepted>> {
        let id = turn.conversation();
        let conversation = self
            .history()
            .conversation(id)
            .map_err(|_| Error::ConversationMissing(id.to_string()))?;
        if self.queue.lock().is_busy(id) {
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

    /// The message, if it has this text and no reply: the same send was repeated, and is not stored twice.
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
        let now_ms = (self.clock)();
        let mut history = self.history();
        let message = history.append_message(new, now_ms)?;
        history.set_active_leaf(conversation, Some(&message.id))?;
        Ok(message)
    }
}

fn is_open(envelope: &Envelope) -> bool {
    matches!(envelope.request, Request::Open { .. })
}

fn is_warm(envelope: &Envelope) -> bool {
    matches!(envelope.request, Request::Warm { .. })
}

//! The engine thread: owns the model and the pool, and does one thing after another.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use models::DigestCache;
use store::{BlockStore, Conversation, ConversationId, MessageId};

use crate::cache::Cache;
use crate::desk::{Desk, Work};
use crate::device::Devices;
use crate::intake::Accepted;
use crate::privacy::Rewriting;
use crate::question::Asked;
use crate::request::{Answer, Envelope, Question, Request};
use crate::session::Session;
use crate::turn::TurnEvent;
use crate::writer::lock;
use crate::{Error, MemoryLimits, Result, chat_turn, question};

/// The state of the engine thread.
pub(crate) struct Worker {
    pub(crate) desk: Desk,
    pub(crate) store: Arc<Mutex<BlockStore>>,
    pub(crate) models_folder: PathBuf,
    pub(crate) digests: DigestCache,
    pub(crate) limits: MemoryLimits,
    pub(crate) threads: usize,
    pub(crate) cache: Option<Cache>,
    pub(crate) devices: Devices,
    /// When the model was used last, in Unix milliseconds.
    pub(crate) last_used_ms: i64,
    /// The prefilled part of a message that is being typed.
    pub(crate) draft: Option<Session>,
    /// The conversation that somebody looks at.
    pub(crate) open: Option<ConversationId>,
    pub(crate) rewriting: Rewriting,
}

impl Worker {
    /// Works until it is told to shut down or every handle is gone; then saves.
    ///
    /// A GPU that failed computes nothing more for this process: then the thread ends without an answer, and whoever supervises
    /// the process starts another.
    pub(crate) fn run(mut self) {
        let mut shutdown = None;
        while let Some(work) = self.next() {
            match work {
                Work::Turn(turn) => {
                    if self.turn(&turn).is_break() {
                        return;
                    }
                    self.last_used_ms = self.desk.now_ms();
                }
                Work::Idle => {
                    self.release();
                }
                Work::Other(Envelope {
                    request: Request::Shutdown,
                    answers,
                }) => {
                    shutdown = Some(answers);
                    break;
                }
                Work::Other(Envelope { request, answers }) => {
                    if request.is_use() {
                        self.last_used_ms = self.desk.now_ms();
                    }
                    let outcome = self.answer(request);
                    let is_lost = outcome.as_ref().is_err_and(Error::is_of_device);
                    let answer = outcome.unwrap_or_else(|error| Answer::from(&error));
                    let _ = answers.send(answer);
                    if is_lost {
                        return;
                    }
                }
            }
        }
        self.unload();
        if let Some(answers) = shutdown {
            let _ = answers.send(Answer::Done);
        }
    }

    /// The next work; until it comes, what was held back is saved, and a change of encryption goes on.
    fn next(&mut self) -> Option<Work> {
        let idle_at = self.idle_at_ms();
        let (cache, rewriting) = (&mut self.cache, &mut self.rewriting);
        self.desk.next(idle_at, &mut || {
            cache.as_mut().is_some_and(Cache::save_some) || rewriting.step()
        })
    }

    /// Breaks when the GPU has failed.
    fn turn(&mut self, turn: &Accepted) -> ControlFlow<()> {
        let outcome = match turn.shorten {
            Some(how) => self.shorten(turn, how),
            None => match self.reply(turn) {
                Err(full @ Error::ContextFull { .. }) => self.make_room(turn, full),
                outcome => outcome,
            },
        };
        // A turn that did not come to read took nothing over.
        self.discard_draft();
        let (last, failure) = match outcome {
            Ok(finished) => (finished, None),
            Err(Error::ContextFull {
                needed,
                at_least,
                limit,
            }) => (self.context_full(turn, needed, at_least, limit), None),
            Err(error) => (TurnEvent::from(&error), Some(error)),
        };
        self.desk.ended();
        turn.emit(last);
        if let Some(error) = failure {
            self.leave_full_device(&error);
            if error.is_of_device() {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    /// One chat turn, after the user's words are stored.
    pub(crate) fn reply(&mut self, turn: &Accepted) -> Result<TurnEvent> {
        let conversation = self.load_for_turn(turn)?;
        let cache = self.cache.as_mut().ok_or(Error::Stopped)?;
        let is_open = self.open.as_ref() == Some(&turn.conversation);
        let (desk, draft) = (&mut self.desk, &mut self.draft);
        chat_turn::run(turn, &conversation, desk, cache, draft, is_open)
    }

    fn answer(&mut self, request: Request) -> Result<Answer> {
        match request {
            Request::Question { question } => self.answer_question(question),
            Request::Draft {
                conversation,
                message,
                text,
            } => {
                let tokens = self.draft(&conversation, message.as_ref(), &text)?;
                Ok(Answer::Drafted { tokens })
            }
            Request::Open { conversation } => self.open(conversation).map(|()| Answer::Done),
            Request::Warm { conversation } => self.warm(&conversation).map(|()| Answer::Done),
            Request::Load { name } => {
                match name {
                    Some(name) => self.load(&name)?,
                    None => self.load_any()?,
                }
                Ok(Answer::Model {
                    info: self.loaded(),
                })
            }
            Request::RaiseContext => self.raise_context().map(|()| Answer::Done),
            Request::Forget { messages } => {
                self.forget(&messages);
                Ok(Answer::Done)
            }
            Request::CacheVerify => {
                if let Some(cache) = &mut self.cache {
                    cache.flush();
                }
                let report = lock(&self.store).verify();
                self.refresh();
                Ok(Answer::Verify(report))
            }
            Request::CacheClear => {
                self.discard_draft();
                if let Some(cache) = &mut self.cache {
                    cache.flush();
                }
                lock(&self.store).clear();
                self.forget_lost();
                Ok(Answer::Done)
            }
            Request::Protect { secret } => self.set_privacy(Some(&secret)).map(Answer::Privacy),
            Request::Unprotect => self.set_privacy(None).map(Answer::Privacy),
            Request::ChangeSecret { current, secret } => self
                .change_secret(current.as_ref(), &secret)
                .map(Answer::Privacy),
            Request::Release => Ok(Answer::Released(self.release())),
            Request::Reserve {
                model,
                whole_context,
            } => self.reserve(&model, whole_context).map(|()| Answer::Done),
            Request::Limit { limits } => {
                self.limit(limits);
                Ok(Answer::Done)
            }
            // The intake thread takes these itself.
            Request::Turn { .. } | Request::Cancel { .. } | Request::Shutdown => {
                Err(Error::Corrupt("a request went astray".into()))
            }
        }
    }

    fn answer_question(&mut self, question: Question) -> Result<Answer> {
        if let (Question::CacheStats, Some(cache)) = (&question, &mut self.cache) {
            cache.flush();
        }
        let asked = Asked {
            desk: &self.desk,
            cache: self.cache.as_ref(),
            store: &self.store,
            drafted: self.draft.as_ref().map_or(&[][..], Session::tokens),
        };
        question::answer(question, &asked)
    }

    fn forget(&mut self, messages: &[MessageId]) {
        self.discard_draft();
        if let Some(cache) = &mut self.cache {
            cache.flush();
        }
        {
            let mut store = lock(&self.store);
            for message in messages {
                store.drop_ref(message.as_str());
            }
            let report = store.gc(&std::collections::HashSet::new());
            tracing::debug!(?report, "swept the block store");
        }
        self.forget_lost();
    }

    /// After blocks were taken from the disk on purpose: they go from memory too.
    fn forget_lost(&mut self) {
        self.refresh();
        if let Some(cache) = &mut self.cache {
            cache.drop_unsaved();
        }
    }

    pub(crate) fn refresh(&mut self) {
        if let Some(cache) = &mut self.cache {
            cache.refresh();
        }
    }

    pub(crate) fn conversation(&self, id: &ConversationId) -> Result<Conversation> {
        self.desk
            .history()
            .conversation(id)
            .map_err(|_| Error::ConversationMissing(id.to_string()))
    }
}

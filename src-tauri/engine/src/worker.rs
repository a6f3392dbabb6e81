//! The engine thread: owns the model and the pool, and does one thing after another.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use models::{DigestCache, Extent, StopStrings};
use store::{
    BlockId, BlockStore, Conversation, ConversationId, Message, MessageId, MessageState, Prefill,
    TokenRow, TurnStats,
};

use crate::cache::Cache;
use crate::desk::{Desk, Work};
use crate::device::Devices;
use crate::intake::Accepted;
use crate::privacy::Rewriting;
use crate::prompt::{self, Prompt};
use crate::question::{Asked, Question};
use crate::reply::Reply;
use crate::reply_text::ReplyText;
use crate::request::{Answer, Envelope, Request};
use crate::session::{Session, Synced};
use crate::turn::TurnEvent;
use crate::writer::lock;
use crate::{Error, MemoryLimits, Result, loading, question};

/// What the engine thread works with.
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
    /// What has been read of a message that is being typed.
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

    /// One chat turn, after the user's words are stored: prompt, sync, decode, store, save.
    pub(crate) fn reply(&mut self, turn: &Accepted) -> Result<TurnEvent> {
        let conversation = self.load_for_turn(turn)?;
        let cache = self.cache.as_mut().ok_or(Error::Stopped)?;
        let desk = &mut self.desk;
        let start = Instant::now();
        let prompt = prompt_of(desk, cache, &conversation, &turn.leaf)?;
        // The prompt and one token of the reply.
        if !prompt.is_whole || prompt.needed + 1 > cache.context_tokens() {
            return Err(loading::too_long(
                cache,
                prompt.needed + 1,
                !prompt.is_whole,
            ));
        }
        let (prompt, message, ids, text) = begin(desk, cache, &conversation, turn, prompt)?;
        turn.emit(TurnEvent::Started {
            user: None,
            reply: Some(Box::new(message.clone())),
        });

        let mut session = self.draft.take().unwrap_or_default().kept();
        let mut reply = Reply::new(message.clone(), ids, text, &conversation, turn, cache);
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
        // Whatever became of the words: nobody else gives its slots back.
        let last = session.close(cache);
        debug_assert!(cache.check(&[]).is_ok(), "{:?}", cache.check(&[]));
        if let Err(error) = stored {
            return Err(failure.unwrap_or(error));
        }
        if self.open.as_ref() == Some(&turn.conversation) {
            cache.pin_open(&timeline);
        }
        refer(desk, cache, &message, chain, last)?;
        match (failure, stats) {
            (None, Some(stats)) => Ok(finished(message, reply.text.as_str(), state, &stats)),
            (failure, _) => Err(failure.unwrap_or(Error::Stopped)),
        }
    }

    fn answer(&mut self, request: Request) -> Result<Answer> {
        if let Some(question) = Question::of(&request) {
            return self.answer_question(question);
        }
        match request {
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
            // Questions were answered, and these are taken in by the intake.
            Request::Preview { .. }
            | Request::PreviewSystem { .. }
            | Request::PreviewNew { .. }
            | Request::Context { .. }
            | Request::Loaded
            | Request::CacheStats
            | Request::Devices
            | Request::Memory
            | Request::Privacy
            | Request::Turn { .. }
            | Request::Cancel { .. }
            | Request::Shutdown => Err(Error::Corrupt("a request went astray".into())),
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

/// The tokens of the branch that ends in `leaf`, as many as the model could hold; what had none before is stored. Ends early
/// when the turn is to stop.
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

/// Stores an empty reply, or opens the one that goes on: then its tokens and text so far are returned, without the end-of-turn
/// token that would keep the model from going on.
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

/// Shows how far a prompt is read, and stops when the turn is to.
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

/// Answers what may be answered in the middle of a turn.
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

/// Lets the reply hold its chain of blocks; what its ancestors held is part of it.
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

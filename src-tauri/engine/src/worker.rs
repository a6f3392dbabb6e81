//! The engine thread: owns the model and the pool, and does one thing after another.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use candle_core::Device;
use models::{DigestCache, Model, ModelInfo};
use store::{
    BlockId, BlockStore, Conversation, ConversationId, Message, MessageId, MessageState, TokenRow,
    TurnStats,
};

use crate::cache::Cache;
use crate::desk::{Accepted, Desk, Work};
use crate::prompt::{self, Prompt};
use crate::rates::Rates;
use crate::reply::Reply;
use crate::request::{Answer, Envelope, Request};
use crate::session::{Session, Synced};
use crate::turn::{ContextChoice, TurnEvent};
use crate::writer::lock;
use crate::{Error, Result, catalog, question};

/// What the engine thread works with.
pub(crate) struct Worker {
    pub(crate) desk: Desk,
    pub(crate) store: Arc<Mutex<BlockStore>>,
    pub(crate) models_folder: PathBuf,
    pub(crate) digests: DigestCache,
    pub(crate) pool_bytes: u64,
    pub(crate) device: Device,
    pub(crate) threads: usize,
    pub(crate) cache: Option<Cache>,
}

impl Worker {
    /// Works until it is told to shut down or every handle is gone; then saves.
    pub(crate) fn run(mut self) {
        let mut shutdown = None;
        while let Some(work) = self.next() {
            match work {
                Work::Turn(turn) => self.turn(&turn),
                Work::Other(Envelope {
                    request: Request::Shutdown,
                    answers,
                }) => {
                    shutdown = Some(answers);
                    break;
                }
                Work::Other(Envelope { request, answers }) => {
                    let answer = self
                        .answer(request)
                        .unwrap_or_else(|error| Answer::from(&error));
                    let _ = answers.send(answer);
                }
            }
        }
        self.unload();
        if let Some(answers) = shutdown {
            let _ = answers.send(Answer::Done);
        }
    }

    /// The next work; until it comes, what was held back is saved.
    fn next(&mut self) -> Option<Work> {
        let cache = &mut self.cache;
        self.desk
            .next(&mut || cache.as_mut().is_some_and(Cache::save_some))
    }

    fn turn(&mut self, turn: &Accepted) {
        match self.reply(turn) {
            Ok(finished) => turn.emit(finished),
            Err(Error::ContextFull { needed, limit }) => turn.emit(TurnEvent::ContextFull {
                message: Some(turn.leaf.clone()),
                needed_tokens: needed as u32,
                limit_tokens: limit as u32,
                choices: vec![
                    ContextChoice::NewConversation,
                    ContextChoice::EditEarlier,
                    ContextChoice::LargerContext,
                ],
            }),
            Err(error) => turn.emit(TurnEvent::from(&error)),
        }
    }

    /// One chat turn, after the user's words are stored: prompt, sync, decode, store, save.
    fn reply(&mut self, turn: &Accepted) -> Result<TurnEvent> {
        let conversation = self.conversation(&turn.conversation)?;
        self.load(conversation.model.as_deref())?;
        let cache = self.cache.as_mut().ok_or(Error::Stopped)?;
        let desk = &mut self.desk;
        let start = Instant::now();
        let prompt = prompt_of(desk, cache, &conversation, &turn.leaf)?;
        // The prompt and one token of the reply.
        if prompt.tokens.len() + 1 > cache.context_tokens() {
            return Err(Error::ContextFull {
                needed: prompt.tokens.len() + 1,
                limit: cache.context_tokens(),
            });
        }
        let (prompt, message, ids) = begin(desk, cache, &conversation, turn, prompt)?;
        turn.emit(TurnEvent::Started {
            user: None,
            reply: Some(Box::new(message.clone())),
        });

        let mut session = Session::new();
        let mut reply = Reply::new(message.clone(), ids, &conversation, turn, cache);
        let outcome = generate(&mut session, &mut reply, cache, desk, turn, &prompt.tokens);
        let (state, stats, failure) = match outcome {
            Ok((state, synced)) => (
                state,
                Some(stats(&synced, &reply, prompt.tokens.len(), start)),
                None,
            ),
            Err(error) => (MessageState::Failed, None, Some(error)),
        };
        let tokens = TokenRow {
            tokenizer: cache.model().tokenizer().digest(),
            ids: reply.ids.clone(),
        };
        desk.history()
            .finish_reply(&message.id, &reply.text, &tokens, state, stats)?;
        let chain = session.chain().to_vec();
        let last = session.close(cache);
        refer(desk, cache, &message, chain, last)?;
        debug_assert!(cache.check(&[]).is_ok(), "{:?}", cache.check(&[]));
        match (failure, stats) {
            (None, Some(stats)) => Ok(finished(message.id, reply.text, state, &stats)),
            (failure, _) => Err(failure.unwrap_or(Error::Stopped)),
        }
    }

    fn answer(&mut self, request: Request) -> Result<Answer> {
        match request {
            Request::Warm { conversation } => self.warm(&conversation).map(|()| Answer::Done),
            Request::Load { name } => {
                self.load(name.as_deref())?;
                Ok(Answer::Model {
                    info: self.loaded(),
                })
            }
            Request::Loaded => Ok(Answer::Model {
                info: self.loaded(),
            }),
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
                if let Some(cache) = &mut self.cache {
                    cache.flush();
                }
                lock(&self.store).clear();
                self.refresh();
                Ok(Answer::Done)
            }
            Request::CacheStats => {
                if let Some(cache) = &mut self.cache {
                    cache.flush();
                }
                question::answer(
                    Request::CacheStats,
                    &self.desk,
                    self.cache.as_ref(),
                    &self.store,
                )
            }
            question @ (Request::Preview { .. } | Request::Context { .. }) => {
                question::answer(question, &self.desk, self.cache.as_ref(), &self.store)
            }
            Request::Turn { .. } | Request::Cancel { .. } | Request::Shutdown => Ok(Answer::Done),
        }
    }

    /// Loads a model unless it is the one in use; without a name, whatever is in use will do.
    fn load(&mut self, name: Option<&str>) -> Result<()> {
        let loaded = self
            .cache
            .as_ref()
            .map(|cache| cache.model().name().to_owned());
        if loaded.is_some() && (name.is_none() || name == loaded.as_deref()) {
            return Ok(());
        }
        let path = catalog::resolve(&self.desk.history(), &self.models_folder, name)?;
        let model = Arc::new(Model::load(&path, self.threads, &self.digests)?);
        self.unload();
        let mut cache = Cache::open(
            model,
            self.pool_bytes,
            Arc::clone(&self.store),
            &self.device,
        )?;
        let setting = Rates::setting(&cache.fingerprint);
        if let Some(known) = self.desk.history().setting(&setting)? {
            // Of another version, or not ours: they are measured again.
            cache.rates = serde_json::from_value(known).unwrap_or_default();
        }
        self.cache = Some(cache);
        Ok(())
    }

    fn unload(&mut self) {
        let Some(mut cache) = self.cache.take() else {
            return;
        };
        cache.save_all();
        let setting = Rates::setting(&cache.fingerprint);
        let kept = match serde_json::to_value(cache.rates) {
            Ok(rates) => self.desk.history().set_setting(&setting, &rates),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = kept {
            tracing::warn!(%error, "how fast this machine restores is not kept; it is measured again");
        }
    }

    fn loaded(&self) -> Option<ModelInfo> {
        self.cache
            .as_ref()
            .map(|cache| cache.model().info().clone())
    }

    /// Brings a conversation's blocks into the pool while its reader reads; makes way for a turn, and for the
    /// conversation that the reader went to instead.
    fn warm(&mut self, id: &ConversationId) -> Result<()> {
        let conversation = self.conversation(id)?;
        self.load(conversation.model.as_deref())?;
        let (Some(cache), Some(leaf)) = (self.cache.as_mut(), &conversation.active_leaf) else {
            return Ok(());
        };
        let parts = prompt::branch(&self.desk.history(), Some(leaf))?;
        let prompt = prompt::build(&self.desk.history(), cache.model(), &conversation, &parts)?;
        let found: Vec<BlockId> = cache.tree.find(&prompt.tokens).blocks().collect();
        cache.tree.touch(&found);
        for blocks in found.chunks(cache.blocks_per_restore()) {
            self.desk.poll();
            if self.desk.has_turn() || self.desk.has_warm() {
                break;
            }
            let Some(slots) = cache.hold(blocks)? else {
                break;
            };
            slots.iter().for_each(|slot| cache.pool.release(*slot));
        }
        Ok(())
    }

    fn forget(&mut self, messages: &[MessageId]) {
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
        self.refresh();
    }

    fn refresh(&mut self) {
        if let Some(cache) = &mut self.cache {
            cache.refresh();
        }
    }

    fn conversation(&self, id: &ConversationId) -> Result<Conversation> {
        self.desk
            .history()
            .conversation(id)
            .map_err(|_| Error::ConversationMissing(id.to_string()))
    }
}

/// The tokens of the branch that ends in `leaf`; what had none before is stored.
fn prompt_of(
    desk: &Desk,
    cache: &Cache,
    conversation: &Conversation,
    leaf: &MessageId,
) -> Result<Prompt> {
    let mut history = desk.history();
    let parts = prompt::branch(&history, Some(leaf))?;
    let prompt = prompt::build(&history, cache.model(), conversation, &parts)?;
    let digest = cache.model().tokenizer().digest();
    for (message, tokens) in &prompt.new {
        history.set_tokens(message, &digest, tokens)?;
    }
    Ok(prompt)
}

/// Stores an empty reply, or opens the one that goes on: then its tokens so far are returned, without the end-of-turn
/// token that would keep the model from going on.
fn begin(
    desk: &Desk,
    cache: &Cache,
    conversation: &Conversation,
    turn: &Accepted,
    mut prompt: Prompt,
) -> Result<(Prompt, Message, Vec<u32>)> {
    let tokenizer = cache.model().tokenizer();
    let mut history = desk.history();
    let (message, ids) = if turn.extend {
        let mut ids = history
            .tokens(&turn.leaf, &tokenizer.digest())?
            .unwrap_or_default();
        while ids.last().is_some_and(|&id| tokenizer.is_end(id)) {
            ids.pop();
            prompt.tokens.pop();
        }
        (history.reopen_reply(&turn.leaf)?, ids)
    } else {
        let name = cache.model().name();
        let reply = history.begin_reply(
            &conversation.id,
            &turn.leaf,
            Some(name),
            &tokenizer.digest(),
            desk.now_ms(),
        )?;
        (reply, Vec::new())
    };
    history.set_active_leaf(&conversation.id, Some(&message.id))?;
    Ok((prompt, message, ids))
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
    let mut synced = session.sync(cache, prompt, &mut |prefill, total| {
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
    })?;
    let Some(logits) = synced.logits.take() else {
        return Ok((MessageState::Stopped, synced));
    };
    let state = reply.decode(session, cache, desk, turn, logits, &mut |desk, cache| {
        while let Some(Envelope { request, answers }) = desk.next_question() {
            let answer = match request {
                Request::Loaded => Answer::Model {
                    info: Some(cache.model().info().clone()),
                },
                question => question::answer(question, desk, Some(cache), cache.store())
                    .unwrap_or_else(|error| Answer::from(&error)),
            };
            let _ = answers.send(answer);
        }
    })?;
    Ok((state, synced))
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

fn finished(message: MessageId, text: String, state: MessageState, stats: &TurnStats) -> TurnEvent {
    let TurnStats {
        prefill,
        prompt_tokens,
        completion_tokens,
        ttft_ms,
        tokens_per_s,
        restore_ms,
    } = *stats;
    TurnEvent::Finished {
        message,
        text,
        state,
        prefill,
        prompt_tokens,
        completion_tokens,
        ttft_ms,
        tokens_per_s,
        restore_ms,
    }
}

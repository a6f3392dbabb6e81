//! A reply while it is written: sample, detokenize to whole UTF-8, store, show.

use std::time::Instant;

use models::{Sampler, SamplerConfig};
use store::{Conversation, Message, MessageState, Sampling};

use crate::cache::Cache;
use crate::desk::Desk;
use crate::intake::Accepted;
use crate::reply_text::ReplyText;
use crate::session::Session;
use crate::turn::TurnEvent;
use crate::{Error, Result};

/// Text and tokens so far, and what turns logits into more of them.
pub(crate) struct Reply {
    message: Message,
    /// Ids of the whole reply, also of what stood before it was continued.
    pub ids: Vec<u32>,
    /// Text of the whole reply.
    pub text: ReplyText,
    /// Tokens sampled in this turn.
    pub num_sampled: u32,
    pub first_token: Option<Instant>,
    pub last_token: Option<Instant>,
    max_tokens: u32,
    sampler: Sampler,
}

impl Reply {
    /// Continues `message`, whose tokens so far are `ids` and whose text is `text`.
    pub(crate) fn new(
        message: Message,
        ids: Vec<u32>,
        text: ReplyText,
        conversation: &Conversation,
        turn: &Accepted,
        cache: &Cache,
    ) -> Self {
        let sampling = turn.options.over(&conversation.sampling);
        let config = sampler_config(&sampling, message.id.as_str(), ids.len());
        Self {
            text,
            message,
            ids,
            num_sampled: 0,
            first_token: None,
            last_token: None,
            max_tokens: sampling.max_tokens.unwrap_or(u32::MAX),
            sampler: cache.model().tokenizer().sampler(config),
        }
    }

    /// Samples until a stop token or string, the limit of tokens or context, or a stop request. Every piece of text is
    /// in history before it is shown (law 6). `logits` are those after the session's last token.
    pub(crate) fn decode(
        &mut self,
        session: &mut Session,
        cache: &mut Cache,
        desk: &mut Desk,
        turn: &Accepted,
        logits: Vec<f32>,
        answer: &mut dyn FnMut(&mut Desk, &mut Cache),
    ) -> Result<MessageState> {
        let mut timeline = session.tokens().to_vec();
        if self.ids.is_empty() && self.text.as_str().is_empty() {
            // If the prompt ends with an opening thought tag, the reply's text begins with it, but its tokens are only
            // those that the model generated.
            let opening = cache.model().tokenizer().opened_thought(&timeline);
            let opening = opening.unwrap_or_default();
            self.text.open(&opening);
            self.show(desk, turn, opening, &[])?;
        }
        // Sampled, and not yet taken.
        let mut next = None;
        // A reply that was killed right after a stop string is complete.
        while !self.text.has_stopped() {
            if self.num_sampled >= self.max_tokens {
                return Ok(MessageState::Length);
            }
            if desk.poll() {
                return Ok(MessageState::Stopped);
            }
            answer(desk, cache);
            let id = match next {
                Some(id) => id,
                None => self.sampler.sample(&logits, &timeline),
            };
            timeline.push(id);
            self.took(id);
            if cache.model().tokenizer().is_end(id) {
                desk.history().append_reply(&self.message.id, "", &[id])?;
                return Ok(MessageState::Complete);
            }
            let text = self.text.push(id);
            self.show(desk, turn, text, &[id])?;
            if self.text.has_stopped() {
                break;
            }
            // The last token's keys and values are not needed before something follows it.
            if self.num_sampled >= self.max_tokens {
                return Ok(MessageState::Length);
            }
            if timeline.len() >= cache.context_tokens() {
                return Ok(MessageState::ContextFull);
            }
            next = Some(session.next(cache, &timeline, &mut self.sampler)?);
        }
        Ok(MessageState::Complete)
    }

    /// Shows the text that was held back, when the reply ends or is cut.
    pub(crate) fn end(&mut self, desk: &Desk, turn: &Accepted, state: MessageState) -> Result<()> {
        let rest = self.text.end(state != MessageState::Complete);
        self.show(desk, turn, rest, &[])
    }

    fn took(&mut self, id: u32) {
        let now = Instant::now();
        self.first_token.get_or_insert(now);
        self.last_token = Some(now);
        self.ids.push(id);
        self.num_sampled += 1;
    }

    fn show(
        &mut self,
        desk: &Desk,
        turn: &Accepted,
        text: String,
        ids: &[u32],
    ) -> Result<(), Error> {
        if !text.is_empty() || !ids.is_empty() {
            desk.history().append_reply(&self.message.id, &text, ids)?;
        }
        if !text.is_empty() {
            turn.emit(TurnEvent::Token { text });
        }
        Ok(())
    }

    /// Tokens per second after the first one; 0 for fewer than two.
    pub(crate) fn tokens_per_s(&self) -> f64 {
        match (self.first_token, self.last_token) {
            (Some(first), Some(last)) if self.num_sampled > 1 => {
                f64::from(self.num_sampled - 1) / (last - first).as_secs_f64().max(1e-9)
            }
            _ => 0.0,
        }
    }
}

/// How a turn samples. Without a fixed seed, `message` and the number of tokens it has give one.
pub(crate) fn sampler_config(
    sampling: &Sampling,
    message: &str,
    num_tokens: usize,
) -> SamplerConfig {
    SamplerConfig {
        temperature: sampling.temperature,
        top_k: sampling.top_k.map(|k| k as usize),
        top_p: sampling.top_p,
        min_p: sampling.min_p,
        repetition_penalty: sampling.repetition_penalty,
        repetition_window: 64,
        seed: sampling
            .seed
            .unwrap_or_else(|| seed_of(message, num_tokens)),
    }
}

/// A seed that differs from reply to reply and can be had again: FNV-1a over the message's id and the tokens before
/// (Fowler, Noll, Vo; <http://www.isthe.com/chongo/tech/comp/fnv/>).
fn seed_of(message: &str, num_tokens: usize) -> u64 {
    message
        .bytes()
        .chain(num_tokens.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
}

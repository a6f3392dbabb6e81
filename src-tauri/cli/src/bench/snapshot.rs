//! `bench snapshot`: what saving costs. Bytes that each turn writes against the keys and values of its new tokens and
//! one tail block, and decoding speed with and without saving.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use candle_core::Device;
use engine::{Cache, Session};
use models::{DigestCache, Model};
use serde::Serialize;
use store::{BlockStore, Budget, DataFolder};

use super::place::Place;
use super::speed::Track;
use super::text::Text;
use super::{Setup, Spread, one_length};
use crate::arguments::BenchFlags;
use crate::error::{Error, Result};
use crate::output::{Output, bytes, grouped};

const TOKENS: u32 = 1024;
const POOL_BYTES: u64 = 2 << 30;
const RUNS: u32 = 3;
/// Turns after the first; each adds a message and a reply.
const TURNS: usize = 4;
const MESSAGE_TOKENS: usize = 24;
const REPLY_TOKENS: usize = 96;

#[derive(Serialize)]
struct TurnRow {
    bench: &'static str,
    what: &'static str,
    turn: usize,
    /// Tokens that had no keys and values before.
    new_tokens: usize,
    bytes_written: u64,
    new_tokens_bytes: u64,
    tail_block_bytes: u64,
    /// Law 9: at most the new tokens and one tail block.
    within_limit: bool,
}

#[derive(Serialize)]
struct DecodeRow {
    bench: &'static str,
    what: &'static str,
    model: String,
    depth: usize,
    tokens: usize,
    tokens_per_s_saving: f64,
    tokens_per_s_not_saving: f64,
    saving_over_not_saving: f64,
    threads: usize,
    runs: u32,
}

pub(super) fn run(setup: &Setup, flags: &BenchFlags, output: &Output) -> Result<()> {
    let tokens = one_length(flags, TOKENS)?;
    let runs = flags.runs.unwrap_or(RUNS);
    let model = Arc::new(Model::load(
        &setup.model,
        setup.num_threads,
        &DigestCache::new(None),
    )?);
    let (mut saving, mut not_saving) = (Vec::new(), Vec::new());
    for run in 0..runs {
        // Interleaved, so that a machine that slows down slows both.
        let track = Track::new(&model, tokens, REPLY_TOKENS)?;
        track.run(&model, tokens, 1, 1)?;
        let start = Instant::now();
        track.run(&model, tokens, REPLY_TOKENS, 1)?;
        not_saving.push(REPLY_TOKENS as f64 / start.elapsed().as_secs_f64());
        let (speed, rows) = conversation(setup, &model, tokens)?;
        saving.push(speed);
        if run == 0 {
            rows.iter()
                .try_for_each(|row| output.line(row, || turn_line(row)))?;
        }
    }
    let (saving, not_saving) = (Spread::of(saving).median, Spread::of(not_saving).median);
    let row = DecodeRow {
        bench: "snapshot",
        what: "decode",
        model: setup.model_name(),
        depth: tokens,
        tokens: REPLY_TOKENS,
        tokens_per_s_saving: saving,
        tokens_per_s_not_saving: not_saving,
        saving_over_not_saving: saving / not_saving,
        threads: setup.num_threads,
        runs,
    };
    output.line(&row, || {
        format!(
            "decoding {REPLY_TOKENS} tokens at depth {}: {saving:.1}/s while saving, {not_saving:.1}/s without ({:.0} %)",
            grouped(tokens as u64),
            100.0 * row.saving_over_not_saving
        )
    })
}

/// A prompt of `tokens` and its reply, then some turns more, all saved: the speed of the first reply, and what each turn
/// wrote.
fn conversation(setup: &Setup, model: &Arc<Model>, tokens: usize) -> Result<(f64, Vec<TurnRow>)> {
    let place = Place::new(setup)?;
    let data = DataFolder::open(Some(place.path().to_owned()))?;
    let store = Arc::new(Mutex::new(BlockStore::open(
        &data.kv_path(),
        Budget::Default,
    )));
    let mut cache = Cache::open(Arc::clone(model), POOL_BYTES, store, &Device::Cpu)?;
    let words = model
        .tokenizer()
        .encode(&Text::new(11).words(tokens + TURNS * MESSAGE_TOKENS));
    let mut words = words.into_iter().cycle();
    let mut timeline: Vec<u32> = Vec::new();
    let mut rows = Vec::new();
    let mut first_speed = 0.0;
    for turn in 0..=TURNS {
        let before = cache.bytes_written();
        let known = timeline.len();
        timeline.extend(
            words
                .by_ref()
                .take(if turn == 0 { tokens } else { MESSAGE_TOKENS }),
        );
        let speed = reply(&mut cache, &mut timeline)?;
        if turn == 0 {
            first_speed = speed;
        }
        cache.flush();
        let new_tokens = timeline.len() - known;
        let layout = model.kv_layout();
        let bytes_written = cache.bytes_written() - before;
        let new_tokens_bytes = (new_tokens * layout.bytes_per_token()) as u64;
        let tail_block_bytes = layout.slot_bytes() as u64;
        rows.push(TurnRow {
            bench: "snapshot",
            what: "turn",
            turn,
            new_tokens,
            bytes_written,
            new_tokens_bytes,
            tail_block_bytes,
            within_limit: bytes_written <= new_tokens_bytes + tail_block_bytes,
        });
    }
    Ok((first_speed, rows))
}

/// Reads the timeline's new end and decodes a reply behind it: decoded tokens per second.
fn reply(cache: &mut Cache, timeline: &mut Vec<u32>) -> Result<f64> {
    let mut session = Session::new();
    let synced = session.sync(cache, timeline, &mut |_, _| {
        std::ops::ControlFlow::Continue(())
    })?;
    let mut logits = synced
        .logits
        .ok_or_else(|| Error::Internal("the prompt was not read to its end".into()))?;
    let start = Instant::now();
    for _ in 0..REPLY_TOKENS {
        let id = most_likely(&logits);
        timeline.push(id);
        logits = session.advance(cache, &[id])?;
    }
    let speed = REPLY_TOKENS as f64 / start.elapsed().as_secs_f64();
    session.close(cache);
    Ok(speed)
}

fn most_likely(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(id, _)| id as u32)
}

fn turn_line(row: &TurnRow) -> String {
    format!(
        "turn {}: {} new tokens, wrote {}; their KV {} and one tail block {}{}",
        row.turn,
        grouped(row.new_tokens as u64),
        bytes(row.bytes_written),
        bytes(row.new_tokens_bytes),
        bytes(row.tail_block_bytes),
        if row.within_limit {
            ""
        } else {
            ": MORE THAN ALLOWED"
        }
    )
}

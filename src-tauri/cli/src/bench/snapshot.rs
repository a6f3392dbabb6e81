//! `bench snapshot`: what saving costs. Bytes that each turn writes against the keys and values of its new tokens and
//! one tail block; and one turn with saving, without, and while the writer is at work, in turn over the same code.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use engine::{Cache, Session};
use kernels::Team;
use models::{DigestCache, Model};
use serde::Serialize;
use store::{BlockStore, Budget};

use super::text::Text;
use super::{Setup, Spread, one_length};
use crate::arguments::BenchFlags;
use crate::error::{Error, Result};
use crate::output::{Output, bytes, grouped};

const TOKENS: u32 = 1024;
const POOL_BYTES: u64 = 2 << 30;
const RUNS: u32 = 5;
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
    /// While the prompt's blocks are being written, as once in a while in a long reply.
    tokens_per_s_writing: f64,
    /// Medians of the runs' ratios.
    saving_over_not_saving: f64,
    writing_over_not_saving: f64,
    /// From the prompt to the logits of its last token.
    ttft_ms_saving: f64,
    ttft_ms_not_saving: f64,
    /// After the last token: until the session is closed, and then until everything is on disk, which nobody waits for.
    close_ms: f64,
    flush_ms: f64,
    threads: usize,
    runs: u32,
}

/// What is done with the blocks of a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Saving {
    No,
    Yes,
    /// And the prompt's go to the writer before the first token.
    AtOnce,
}

/// What one turn took.
struct Timing {
    ttft_ms: f64,
    tokens_per_s: f64,
    close_ms: f64,
    flush_ms: f64,
}

pub(super) fn run(setup: &Setup, flags: &BenchFlags, output: &Output) -> Result<()> {
    let tokens = one_length(flags, TOKENS)?;
    let runs = flags.runs.unwrap_or(RUNS);
    let team = Team::new(setup.num_threads);
    let digests = DigestCache::new(None);
    let model = Model::load_with(&setup.model, team, &digests, setup.options())?;
    let model = Arc::new(model);
    for row in conversation(&model, tokens)? {
        output.line(&row, || turn_line(&row))?;
    }
    let mut timings: Vec<[Timing; 3]> = Vec::new();
    for run in 0..runs as usize {
        // In turn, and each of them first once in three runs, so that a machine that slows down slows all.
        let mut order = [Saving::No, Saving::Yes, Saving::AtOnce];
        order.rotate_left(run % 3);
        let mut timed = Vec::new();
        for saving in order {
            timed.push((saving, turn(&model, tokens, saving)?));
        }
        timed.sort_by_key(|(saving, _)| *saving as u8);
        let timed: Vec<Timing> = timed.into_iter().map(|(_, timing)| timing).collect();
        timings.extend(<[Timing; 3]>::try_from(timed));
    }
    let row = decode_row(setup, tokens, runs, &timings);
    output.line(&row, || decode_line(&row))
}

fn decode_row(setup: &Setup, depth: usize, runs: u32, timings: &[[Timing; 3]]) -> DecodeRow {
    let median = |of: &dyn Fn(&[Timing; 3]) -> f64| Spread::of(timings.iter().map(of)).median;
    DecodeRow {
        bench: "snapshot",
        what: "decode",
        model: setup.model_name(),
        depth,
        tokens: REPLY_TOKENS,
        tokens_per_s_saving: median(&|[_, saving, _]| saving.tokens_per_s),
        tokens_per_s_not_saving: median(&|[not, ..]| not.tokens_per_s),
        tokens_per_s_writing: median(&|[_, _, writing]| writing.tokens_per_s),
        saving_over_not_saving: median(&|[not, it, _]| it.tokens_per_s / not.tokens_per_s),
        writing_over_not_saving: median(&|[not, _, it]| it.tokens_per_s / not.tokens_per_s),
        ttft_ms_saving: median(&|[_, saving, _]| saving.ttft_ms),
        ttft_ms_not_saving: median(&|[not, ..]| not.ttft_ms),
        close_ms: median(&|[_, saving, _]| saving.close_ms),
        flush_ms: median(&|[_, saving, _]| saving.flush_ms),
        threads: setup.num_threads,
        runs,
    }
}

fn decode_line(row: &DecodeRow) -> String {
    format!(
        "decoding {} tokens at depth {}: {:.1}/s while saving, {:.1}/s without ({:.1} %), {:.1}/s while blocks are being written ({:.1} %)\n\
         first token after {:.0} ms while saving, {:.0} ms without; closing takes {:.1} ms, and {:.0} ms later all is on disk",
        row.tokens,
        grouped(row.depth as u64),
        row.tokens_per_s_saving,
        row.tokens_per_s_not_saving,
        100.0 * row.saving_over_not_saving,
        row.tokens_per_s_writing,
        100.0 * row.writing_over_not_saving,
        row.ttft_ms_saving,
        row.ttft_ms_not_saving,
        row.close_ms,
        row.flush_ms
    )
}

/// A folder of the system's choice (`TMPDIR` moves it).
fn folder() -> Result<tempfile::TempDir> {
    tempfile::tempdir().map_err(|error| Error::Internal(format!("no temporary folder: {error}")))
}

fn cache(model: &Arc<Model>, folder: &Path, budget: Budget) -> Result<Cache> {
    let store = BlockStore::open(&folder.join("kv"), budget);
    let store = Arc::new(Mutex::new(store));
    Ok(Cache::open(Arc::clone(model), POOL_BYTES, store)?)
}

/// Ordinary tokens without end.
fn words(model: &Model, about: usize) -> impl Iterator<Item = u32> {
    let words = model.tokenizer().encode(&Text::new(11).words(about));
    words.into_iter().cycle()
}

/// A prompt of `tokens` and its reply, then some turns more, all saved: what each turn wrote.
fn conversation(model: &Arc<Model>, tokens: usize) -> Result<Vec<TurnRow>> {
    let folder = folder()?;
    let mut cache = cache(model, folder.path(), Budget::Default)?;
    let mut words = words(model, tokens + TURNS * MESSAGE_TOKENS);
    let mut timeline: Vec<u32> = Vec::new();
    let mut rows = Vec::new();
    for turn in 0..=TURNS {
        let before = cache.bytes_written();
        let known = timeline.len();
        let new = if turn == 0 { tokens } else { MESSAGE_TOKENS };
        timeline.extend(words.by_ref().take(new));
        reply(&mut cache, &mut timeline, Saving::Yes)?;
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
    Ok(rows)
}

/// One turn with a new cache: a prompt of `tokens` and its reply.
fn turn(model: &Arc<Model>, tokens: usize, saving: Saving) -> Result<Timing> {
    let folder = folder()?;
    let budget = match saving {
        // A payload fits into it and its header does not.
        Saving::No => Budget::Bytes(model.kv_layout().slot_bytes() as u64),
        Saving::Yes | Saving::AtOnce => Budget::Default,
    };
    let mut cache = cache(model, folder.path(), budget)?;
    let mut timeline = words(model, tokens).take(tokens).collect();
    reply(&mut cache, &mut timeline, saving)
}

/// Reads the timeline's new end, decodes a reply behind it, and saves.
fn reply(cache: &mut Cache, timeline: &mut Vec<u32>, saving: Saving) -> Result<Timing> {
    let ms_since = |start: Instant| start.elapsed().as_secs_f64() * 1e3;
    let mut session = Session::new();
    let start = Instant::now();
    let synced = session.sync(cache, timeline, &mut |_, _| {
        std::ops::ControlFlow::Continue(())
    })?;
    let ttft_ms = ms_since(start);
    let mut logits = synced
        .logits
        .ok_or_else(|| Error::Internal("the prompt was not read to its end".into()))?;
    if saving == Saving::AtOnce {
        (0..4).for_each(|_| _ = cache.save_some());
    }
    let start = Instant::now();
    for _ in 0..REPLY_TOKENS {
        let id = most_likely(&logits);
        timeline.push(id);
        logits = session.advance(cache, &[id])?;
    }
    let tokens_per_s = REPLY_TOKENS as f64 / start.elapsed().as_secs_f64();
    let start = Instant::now();
    session.close(cache);
    let close_ms = ms_since(start);
    let start = Instant::now();
    cache.flush();
    Ok(Timing {
        ttft_ms,
        tokens_per_s,
        close_ms,
        flush_ms: ms_since(start),
    })
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

//! `bench edit`: one word of a long message changes, after a restart, against the same prompt without the cache.

use engine::Turn;
use serde::Serialize;
use store::NewConversation;

use super::place::{Place, finish, options, words_for};
use super::text::Text;
use super::{Setup, Spread, one_length};
use crate::app::now_ms;
use crate::arguments::BenchFlags;
use crate::error::{Error, Result};
use crate::output::{Output, grouped, milliseconds};

const TOKENS: u32 = 2048;
const RUNS: u32 = 3;
const PERCENTS: [u32; 2] = [50, 90];

#[derive(Serialize)]
struct Row {
    bench: &'static str,
    model: String,
    tokens: u32,
    at_percent: u32,
    prompt_tokens: u32,
    /// Tokens that the preview promised to keep.
    keeps: u32,
    resident: u32,
    restored: u32,
    computed: u32,
    ttft_ms: f64,
    min_ttft_ms: f64,
    max_ttft_ms: f64,
    cold_ttft_ms: f64,
    cold_over_ttft: f64,
    threads: usize,
    runs: u32,
}

/// One edit.
struct Sample {
    row: Row,
    cold_ttft_ms: f64,
}

pub(super) fn run(setup: &Setup, flags: &BenchFlags, output: &Output) -> Result<()> {
    let tokens = one_length(flags, TOKENS)?;
    let runs = flags.runs.unwrap_or(RUNS);
    for percent in PERCENTS {
        let samples: Vec<Sample> = (0..runs)
            .map(|_| measure(setup, tokens, percent))
            .collect::<Result<_>>()?;
        let ttft = Spread::of(samples.iter().map(|sample| sample.row.ttft_ms));
        let cold = Spread::of(samples.iter().map(|sample| sample.cold_ttft_ms)).median;
        let Some(Sample { row, .. }) = samples.into_iter().next_back() else {
            continue;
        };
        let row = Row {
            ttft_ms: ttft.median,
            min_ttft_ms: ttft.min,
            max_ttft_ms: ttft.max,
            cold_ttft_ms: cold,
            cold_over_ttft: cold / ttft.median,
            runs,
            ..row
        };
        output.line(&row, || line(&row))?;
    }
    Ok(())
}

/// A message of `tokens` tokens is read without a cache; after a restart one word of it changes.
fn measure(setup: &Setup, tokens: usize, percent: u32) -> Result<Sample> {
    let place = Place::new(setup)?;
    let app = place.start()?;
    let words: Vec<String> = Text::new(7)
        .words(words_for(&app, tokens)?)
        .split(' ')
        .map(str::to_owned)
        .collect();
    let id = app
        .history()
        .create_conversation(NewConversation::default(), now_ms())?
        .id;
    let send = Turn::Send {
        conversation: id.clone(),
        parent: None,
        text: words.join(" "),
        options: options(),
    };
    let cold = finish(&app, send)?;
    drop(app);

    let app = place.start()?;
    let message = app
        .history()
        .message(&cold.message)?
        .parent
        .ok_or_else(|| Error::Internal("the reply answers nothing".into()))?;
    let text = changed(words, percent);
    let cost = app
        .engine()?
        .preview(id.clone(), Some(message.clone()), text.clone())?;
    let edit = finish(
        &app,
        Turn::Edit {
            conversation: id,
            message,
            text,
            options: options(),
        },
    )?;
    let row = Row {
        bench: "edit",
        model: setup.model_name(),
        tokens: tokens as u32,
        at_percent: percent,
        prompt_tokens: edit.prompt_tokens,
        keeps: cost.keeps,
        resident: edit.prefill.resident,
        restored: edit.prefill.restored,
        computed: edit.prefill.computed,
        ttft_ms: edit.ttft_ms,
        min_ttft_ms: edit.ttft_ms,
        max_ttft_ms: edit.ttft_ms,
        cold_ttft_ms: cold.ttft_ms,
        cold_over_ttft: cold.ttft_ms / edit.ttft_ms,
        threads: setup.num_threads,
        runs: 1,
    };
    Ok(Sample {
        row,
        cold_ttft_ms: cold.ttft_ms,
    })
}

fn changed(mut words: Vec<String>, percent: u32) -> String {
    let at = words.len() * percent as usize / 100;
    if let Some(word) = words.get_mut(at) {
        *word = "however".to_owned();
    }
    words.join(" ")
}

fn line(row: &Row) -> String {
    format!(
        "edit at {} % of {} tokens after a restart: computed {} of {}, first token {}, without the cache {} ({:.1} ×)",
        row.at_percent,
        grouped(row.tokens.into()),
        grouped(row.computed.into()),
        grouped(row.prompt_tokens.into()),
        milliseconds(row.ttft_ms),
        milliseconds(row.cold_ttft_ms),
        row.cold_over_ttft
    )
}

//! `bench resume`: the time to the first token of the next reply, by where the conversation's keys and values are.

use std::path::PathBuf;

use models::Footprint;
use serde::Serialize;
use store::{ConversationId, MessageId};

use super::place::{Outcome, Place, conversation, finish, question};
use super::{Setup, Spread, disk};
use crate::app::App;
use crate::arguments::BenchFlags;
use crate::error::Result;
use crate::output::{Output, bytes, grouped, milliseconds};

const LENGTHS: [u32; 3] = [512, 2048, 4096];
const RUNS: u32 = 3;
/// What a pool has room for beside a conversation: its question, its reply, and a block to copy from.
const ROOM_TOKENS: usize = 192;

/// Where the conversation is when the next message comes, coldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Cold,
    Dropped,
    Warm,
    /// On a GPU only.
    Host,
    Resident,
}

impl State {
    const ALL: [State; 5] = [
        State::Cold,
        State::Dropped,
        State::Warm,
        State::Host,
        State::Resident,
    ];

    /// State, process, page cache.
    fn names(self) -> [&'static str; 3] {
        match self {
            State::Cold => ["cold", "running, no cache", "not read"],
            State::Dropped => [
                "restarted, page cache dropped",
                "new engine over the same folder",
                "dropped",
            ],
            State::Warm => [
                "restarted, page cache warm",
                "new engine over the same folder",
                "warm",
            ],
            State::Host => ["in the machine's memory", "running", "not read"],
            State::Resident => ["resident", "running", "not read"],
        }
    }

    fn reads_disk(self) -> bool {
        matches!(self, State::Dropped | State::Warm)
    }

    fn restores(self) -> bool {
        self.reads_disk() || self == State::Host
    }
}

/// One turn in one state; the disk's speed where it was read.
struct Sample {
    state: State,
    outcome: Outcome,
    disk_bytes_per_s: Option<f64>,
}

#[derive(Serialize)]
struct Row<'a> {
    bench: &'static str,
    model: &'a str,
    tokens: u32,
    state: &'static str,
    process: &'static str,
    page_cache: &'static str,
    prompt_tokens: u32,
    resident: u32,
    restored: u32,
    computed: u32,
    ttft_ms: f64,
    min_ttft_ms: f64,
    max_ttft_ms: f64,
    cold_over_ttft: f64,
    restore_ms: f64,
    restore_bytes_per_s: Option<f64>,
    disk_bytes_per_s: Option<f64>,
    threads: usize,
    runs: u32,
    folder: String,
}

pub(super) fn run(setup: &Setup, flags: &BenchFlags, output: &Output) -> Result<()> {
    let lengths = if flags.tokens.is_empty() {
        &LENGTHS[..]
    } else {
        &flags.tokens
    };
    let runs = flags.runs.unwrap_or(RUNS);
    let (_, bytes_per_token) = Footprint::read(&setup.model)?.kv(setup.kv);
    if !output.json {
        output.text(&format!(
            "{}, {} threads, medians of {runs}; folders below {}\n",
            setup.model_name(),
            setup.num_threads,
            std::env::temp_dir().display()
        ))?;
    }
    for &tokens in lengths {
        let mut samples = Vec::new();
        for _ in 0..runs {
            samples.extend(measure(setup, tokens as usize, bytes_per_token)?);
        }
        report(setup, tokens, runs, bytes_per_token, &samples, output)?;
    }
    Ok(())
}

/// All states once, in a folder of their own. Every turn asks another question after the same leaf, so that only the
/// conversation itself can be reused.
fn measure(setup: &Setup, tokens: usize, bytes_per_token: u64) -> Result<Vec<Sample>> {
    let place = Place::new(setup)?;
    let app = place.start()?;
    let (id, leaf) = conversation(&app, tokens)?;
    let mut samples = vec![
        sample(&app, State::Cold, &id, &leaf)?,
        sample(&app, State::Resident, &id, &leaf)?,
    ];
    // A conversation of another length, since conversations of one length have the same text. It is created here, while
    // there is room to count its tokens.
    let (other, other_leaf) = conversation(&app, tokens - 1)?;
    let kv_folder = app.kv_folder();
    let has_host_tier = app.engine()?.memory()?.host.budget_bytes > 0;
    drop(app);
    if has_host_tier {
        // Room for this conversation or another one.
        let pool_bytes = (tokens + ROOM_TOKENS) as u64 * bytes_per_token;
        let app = place.start_with(Some(pool_bytes))?;
        sample(&app, State::Warm, &id, &leaf)?;
        sample(&app, State::Cold, &other, &other_leaf)?;
        samples.push(sample(&app, State::Host, &id, &leaf)?);
    }

    let app = place.start()?;
    let warm = sample(&app, State::Warm, &id, &leaf)?;
    drop(app);
    let files = disk::pool_files(&kv_folder)?;
    samples.push(Sample {
        disk_bytes_per_s: Some(disk::read_speed(&files)?),
        ..warm
    });

    if disk::drop_page_cache(&files)? {
        let app = place.start()?;
        let dropped = sample(&app, State::Dropped, &id, &leaf)?;
        drop(app);
        samples.push(Sample {
            disk_bytes_per_s: Some(cold_read_speed(&files)?),
            ..dropped
        });
    }
    Ok(samples)
}

fn cold_read_speed(files: &[PathBuf]) -> Result<f64> {
    disk::drop_page_cache(files)?;
    disk::read_speed(files)
}

fn sample(app: &App, state: State, id: &ConversationId, leaf: &MessageId) -> Result<Sample> {
    let outcome = finish(app, question(id, leaf, state as u64))?;
    Ok(Sample {
        state,
        outcome,
        disk_bytes_per_s: None,
    })
}

fn report(
    setup: &Setup,
    tokens: u32,
    runs: u32,
    bytes_per_token: u64,
    samples: &[Sample],
    output: &Output,
) -> Result<()> {
    let of = |state: State| samples.iter().filter(move |sample| sample.state == state);
    let cold = Spread::of(of(State::Cold).map(|sample| sample.outcome.ttft_ms)).median;
    let model = setup.model_name();
    for state in State::ALL {
        let Some(last) = of(state).next_back() else {
            // The CPU has no such tier.
            if !output.json && state != State::Host {
                output.text(&format!(
                    "  {}: this system cannot be asked for it\n",
                    state.names()[0]
                ))?;
            }
            continue;
        };
        let [name, process, page_cache] = state.names();
        let ttft = Spread::of(of(state).map(|sample| sample.outcome.ttft_ms));
        let restored = last.outcome.prefill.restored;
        let restore_ms = Spread::of(of(state).map(|sample| sample.outcome.restore_ms)).median;
        let restored_bytes = (u64::from(restored) * bytes_per_token) as f64;
        let disk_bytes_per_s =
            Spread::of(of(state).filter_map(|sample| sample.disk_bytes_per_s)).median;
        let row = Row {
            bench: "resume",
            model: &model,
            tokens,
            state: name,
            process,
            page_cache,
            prompt_tokens: last.outcome.prompt_tokens,
            resident: last.outcome.prefill.resident,
            restored,
            computed: last.outcome.prefill.computed,
            ttft_ms: ttft.median,
            min_ttft_ms: ttft.min,
            max_ttft_ms: ttft.max,
            cold_over_ttft: cold / ttft.median,
            restore_ms,
            restore_bytes_per_s: state
                .restores()
                .then(|| restored_bytes / (restore_ms / 1e3)),
            disk_bytes_per_s: state.reads_disk().then_some(disk_bytes_per_s),
            threads: setup.num_threads,
            runs,
            folder: std::env::temp_dir().display().to_string(),
        };
        output.line(&row, || line(&row))?;
    }
    Ok(())
}

fn line(row: &Row) -> String {
    let mut text = format!(
        "{:>7} tokens  {:<30} first token {:>8} ({:>6.1} × cold)  computed {}",
        grouped(row.tokens.into()),
        row.state,
        milliseconds(row.ttft_ms),
        row.cold_over_ttft,
        grouped(row.computed.into())
    );
    if let Some(restore) = row.restore_bytes_per_s {
        text.push_str(&format!(
            "  restored {} in {} at {}/s",
            grouped(row.restored.into()),
            milliseconds(row.restore_ms),
            bytes(restore as u64)
        ));
    }
    if let Some(disk) = row.disk_bytes_per_s {
        text.push_str(&format!(", plain reads {}/s", bytes(disk as u64)));
    }
    text
}

//! `bench prefill` and `bench decode`: the model over a pool, without sessions, history or disk.

use std::time::Instant;

use engine::prefill_step_tokens;
use kernels::cuda::{self, Decoder};
use kernels::{BLOCK_TOKENS, KvPool, Path, Team};
use models::{DigestCache, Model};
use serde::Serialize;

use super::llama_cpp::{Against, LlamaCpp, Work};
use super::quiet::Samples;
use super::text::Text;
use super::{Setup, Spread, one_length};
use crate::arguments::{Baseline, SpeedFlags};
use crate::error::{Error, Result};
use crate::output::{Output, grouped};

const PREFILL_TOKENS: u32 = 512;
const DECODE_TOKENS: u32 = 128;
const RUNS: u32 = 3;

#[derive(Serialize)]
struct Row {
    bench: &'static str,
    model: String,
    tokens: usize,
    depth: usize,
    threads: usize,
    instructions: &'static str,
    /// The GPU, where one computes.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<DeviceSpeed>,
    tokens_per_s: f64,
    min_tokens_per_s: f64,
    max_tokens_per_s: f64,
    runs: u32,
    /// Runs during which others used the machine.
    noisy: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    against: Option<Against>,
    /// Our speed over the other's.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
}

/// A GPU, and how much of what its memory can do decoding uses.
#[derive(Serialize)]
struct DeviceSpeed {
    name: String,
    /// What its memory moves when it copies to itself.
    copy_bytes_per_s: f64,
    /// What a token reads of weights, keys and values; absent where many tokens share it.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_token: Option<u64>,
    /// Of the tokens per second that the copies would allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    roofline_percent: Option<f64>,
}

impl DeviceSpeed {
    fn of(
        decoder: &Decoder,
        model: &Model,
        depth: Option<usize>,
        tokens_per_s: f64,
    ) -> Result<Self> {
        let copy_bytes_per_s = cuda::copy_bytes_per_s(decoder.device())?;
        let bytes_per_token = depth.map(|depth| {
            (decoder.bytes_read() + depth * model.kv_layout().bytes_per_token()) as u64
        });
        let percent = |bytes| 100.0 * tokens_per_s * bytes as f64 / copy_bytes_per_s;
        Ok(Self {
            name: decoder.device().info().name.clone(),
            copy_bytes_per_s,
            bytes_per_token,
            roofline_percent: bytes_per_token.map(percent),
        })
    }
}

/// Tokens per second over a prompt, in the steps that the engine takes.
pub(super) fn prefill(setup: &Setup, flags: &SpeedFlags, output: &Output) -> Result<()> {
    let tokens = one_length(&flags.bench, PREFILL_TOKENS)?;
    measure("prefill", setup, flags, tokens, output)
}

/// Tokens per second one at a time.
pub(super) fn decode(setup: &Setup, flags: &SpeedFlags, output: &Output) -> Result<()> {
    let tokens = one_length(&flags.bench, DECODE_TOKENS)?;
    measure("decode", setup, flags, tokens, output)
}

fn measure(
    bench: &'static str,
    setup: &Setup,
    flags: &SpeedFlags,
    tokens: usize,
    output: &Output,
) -> Result<()> {
    let is_prefill = bench == "prefill";
    let depth = flags.depth as usize;
    let runs = flags.bench.runs.unwrap_or(RUNS);
    let work = Work {
        model: &setup.model,
        num_threads: setup.num_threads,
        prompt_tokens: if is_prefill { tokens } else { 0 },
        decode_tokens: if is_prefill { 0 } else { tokens },
        depth,
    };
    let mut theirs = match flags.against {
        Some(Baseline::LlamaCpp) => Some(LlamaCpp::find(&flags.llama_bench, work)?),
        None => None,
    };
    let instructions = instructions(flags.instructions.as_deref())?;
    let team = Team::on(instructions, setup.num_threads);
    let model = Model::load_with(&setup.model, team, &DigestCache::new(None), setup.options())?;
    let track = Track::new(&model, depth, tokens)?;
    let most = prefill_step_tokens(&model);
    let step = if is_prefill { most } else { 1 };
    // Once for the pages of the weights and the pool.
    track.run(&model, depth, tokens.min(most), step)?;
    let mut ours = Samples::default();
    for _ in 0..runs {
        // In turn, so that a machine that slows down slows both.
        ours.take(|| {
            let start = Instant::now();
            track.run(&model, depth, tokens, step)?;
            Ok(tokens as f64 / start.elapsed().as_secs_f64())
        })?;
        if let Some(theirs) = &mut theirs {
            theirs.round()?;
        }
    }
    let speed = Spread::of(ours.values);
    let against = theirs.map(LlamaCpp::best);
    // In the middle of what was measured.
    let at = (!is_prefill).then_some(depth + tokens / 2);
    let device = model.device();
    let device = device.map(|decoder| DeviceSpeed::of(decoder, &model, at, speed.median));
    let row = Row {
        bench,
        model: setup.model_name(),
        tokens,
        depth,
        threads: setup.num_threads,
        instructions: instructions.name(),
        device: device.transpose()?,
        tokens_per_s: speed.median,
        min_tokens_per_s: speed.min,
        max_tokens_per_s: speed.max,
        runs,
        noisy: ours.noisy,
        ratio: against.as_ref().map(|it| speed.median / it.tokens_per_s),
        against,
    };
    output.line(&row, || lines(&row))
}

/// The instruction path of that name; the fastest where none is asked.
fn instructions(name: Option<&str>) -> Result<Path> {
    let Some(name) = name else {
        return Ok(Path::best());
    };
    let available = Path::available();
    let found = available.iter().find(|path| path.name() == name);
    found.copied().ok_or_else(|| {
        let names: Vec<&str> = available.iter().map(|path| path.name()).collect();
        let reason = format!(
            "this machine has no {name} path; choose {}",
            names.join(", ")
        );
        Error::InvalidArgument(reason)
    })
}

fn lines(row: &Row) -> String {
    let noise = |noisy: u32| match noisy {
        0 => String::new(),
        noisy => format!(", {noisy} of them noisy"),
    };
    let mut text = format!(
        "{} of {} tokens at depth {}, {} threads, {}: {:.1} tokens/s ({:.1} to {:.1} in {} runs{})",
        row.bench,
        grouped(row.tokens as u64),
        grouped(row.depth as u64),
        row.threads,
        row.instructions,
        row.tokens_per_s,
        row.min_tokens_per_s,
        row.max_tokens_per_s,
        row.runs,
        noise(row.noisy)
    );
    if let Some(device) = &row.device {
        text.push_str(&format!("\non {}", device.name));
        if let Some(percent) = device.roofline_percent {
            text.push_str(&format!(
                ", {percent:.0} % of what its memory's {:.0} GB/s allow",
                device.copy_bytes_per_s / 1e9
            ));
        }
    }
    if let (Some(it), Some(ratio)) = (&row.against, row.ratio) {
        text.push_str(&format!(
            "\n{} {}, flash attention {}: {:.1} tokens/s ({:.1} to {:.1} in {} runs{})\nours / theirs: {ratio:.2}",
            it.program,
            it.build,
            if it.flash_attention { "on" } else { "off" },
            it.tokens_per_s,
            it.min_tokens_per_s,
            it.max_tokens_per_s,
            row.runs,
            noise(it.noisy)
        ));
    }
    text
}

/// A pool whose slots stand in order, and tokens to put into it.
pub(super) struct Track {
    pool: KvPool,
    table: Vec<u32>,
    tokens: Vec<u32>,
}

impl Track {
    /// Room for `tokens` after `depth`. The tokens before are random keys and values: their content does not change how
    /// long anything takes.
    pub(super) fn new(model: &Model, depth: usize, tokens: usize) -> Result<Track> {
        let context = model.config().context_length;
        if depth + tokens > context {
            return Err(Error::InvalidArgument(format!(
                "{} tokens do not fit into this model's context of {context}; ask for fewer",
                depth + tokens
            )));
        }
        let num_slots = (depth + tokens).div_ceil(BLOCK_TOKENS);
        let pool = model.pool(num_slots)?;
        (0..num_slots as u32).try_for_each(|slot| pool.reserve(slot))?;
        let mut random = Text::new(3);
        let mut payload = vec![0; model.kv_layout().slot_bytes()];
        for slot in 0..depth.div_ceil(BLOCK_TOKENS) {
            for value in payload.chunks_exact_mut(2) {
                value.copy_from_slice(&small_f16(random.next()).to_le_bytes());
            }
            pool.write_slot(slot as u32, &payload)?;
        }
        let ordinary = model.tokenizer().encode(&Text::new(5).words(tokens));
        let tokens = ordinary.into_iter().cycle().take(tokens).collect();
        Ok(Track {
            pool,
            table: (0..num_slots as u32).collect(),
            tokens,
        })
    }

    /// Runs the first `tokens` tokens at `depth`, in pieces that end on multiples of `step`.
    pub(super) fn run(
        &self,
        model: &Model,
        depth: usize,
        tokens: usize,
        step: usize,
    ) -> Result<()> {
        let end = depth + tokens;
        let mut at = depth;
        while at < end {
            let next = end.min((at / step + 1) * step);
            let tokens = &self.tokens[at - depth..next - depth];
            match step {
                1 => model.decode(tokens, at, &self.pool, &self.table)?,
                _ => model.forward(tokens, at, &self.pool, &self.table)?,
            };
            at = next;
        }
        Ok(())
    }
}

/// An f16 with random sign and fraction, magnitude in [0.5, 1).
fn small_f16(random: u64) -> u16 {
    0x3800 | (random as u16 & 0x83ff)
}

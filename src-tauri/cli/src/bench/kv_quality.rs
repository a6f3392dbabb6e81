//! `bench kv-quality`: what a format of keys and values costs. The model reads a text, and what it says of every next token
//! is compared with what it says when keys and values are kept in f16.
//!
//! The weights are those of the file, but kept as f32 (unless asked otherwise), so that products do not round activations:
//! that rounding is moved by the smallest change of a key, and differs more from itself than q8 does from f16.

use std::path::Path;

use kernels::{BLOCK_TOKENS, KvFormat, KvPool, Team};
use models::{DigestCache, LoadOptions, Model};
use serde::Serialize;

use super::Setup;
use crate::arguments::QualityFlags;
use crate::error::{Error, Result};
use crate::output::{Output, bytes, grouped};

/// Tokens whose logits are held at a time.
const STEP: usize = 128;

#[derive(Serialize)]
struct Row {
    bench: &'static str,
    model: String,
    /// As asked for.
    kv: String,
    /// What the model gets for it, and why if that is another one.
    used: String,
    reason: Option<String>,
    tokens: usize,
    /// e to the mean surprise of the next token, in nats.
    perplexity: f64,
    /// From that of f16.
    perplexity_change_percent: f64,
    /// Kullback-Leibler divergence from f16's probabilities, mean over positions, in nats.
    mean_kl: f64,
    /// Part of the positions at which the most likely token is the same, 0 to 1.
    top1_agreement: f64,
    bytes_per_token: u64,
    float_weights: bool,
}

/// Sums over the positions compared so far.
#[derive(Clone, Copy, Default)]
struct Sums {
    positions: usize,
    surprise: f64,
    divergence: f64,
    agreed: usize,
}

pub(super) fn run(setup: &Setup, flags: &QualityFlags, output: &Output) -> Result<()> {
    let options = LoadOptions {
        float_weights: !flags.rounded_activations,
        ..LoadOptions::default()
    };
    let team = Team::new(setup.num_threads);
    let model = Model::load_with(&setup.model, team, &DigestCache::new(None), options)?;
    let tokens = tokens(&model, &flags.text, flags.tokens)?;
    let formats: Vec<_> = flags
        .kv
        .iter()
        .map(|&asked| match flags.forced {
            true => asked.fitting(model.config().head_dim),
            false => model.config().kv_format(asked),
        })
        .collect();
    let (exact, sums) = read(&model, &tokens, formats.iter().map(|(format, _)| *format))?;
    let perplexity = |sums: &Sums| (sums.surprise / sums.positions as f64).exp();
    for ((asked, (used, reason)), sums) in flags.kv.iter().zip(formats).zip(sums) {
        let row = Row {
            bench: "kv-quality",
            model: setup.model_name(),
            kv: asked.to_string(),
            used: used.to_string(),
            reason,
            tokens: tokens.len(),
            perplexity: perplexity(&sums),
            perplexity_change_percent: (perplexity(&sums) / perplexity(&exact) - 1.0) * 100.0,
            mean_kl: sums.divergence / sums.positions as f64,
            top1_agreement: sums.agreed as f64 / sums.positions as f64,
            bytes_per_token: model.config().kv_layout(used).bytes_per_token() as u64,
            float_weights: !flags.rounded_activations,
        };
        output.line(&row, || line(&row))?;
    }
    Ok(())
}

fn tokens(model: &Model, text: &Path, most: Option<u32>) -> Result<Vec<u32>> {
    let unreadable =
        |error| Error::InvalidArgument(format!("cannot read {}: {error}", text.display()));
    let text = std::fs::read_to_string(text).map_err(unreadable)?;
    let mut tokens = model.tokenizer().encode(&text);
    tokens.truncate(most.map_or(usize::MAX, |most| most as usize));
    match tokens.len() {
        0 | 1 => Err(Error::InvalidArgument(
            "the text has no two tokens; give a longer one".into(),
        )),
        _ => Ok(tokens),
    }
}

/// Reads the text, a context at a time, with keys and values in f16 and in each of the formats.
fn read(
    model: &Model,
    tokens: &[u32],
    formats: impl Iterator<Item = KvFormat>,
) -> Result<(Sums, Vec<Sums>)> {
    let context = model.config().context_length.min(tokens.len());
    let num_slots = context.div_ceil(BLOCK_TOKENS);
    let pool = |format| KvPool::reserved(model.config().kv_layout(format), num_slots);
    let table: Vec<u32> = (0..num_slots as u32).collect();
    let exact = pool(KvFormat::F16)?;
    let pools = formats.map(pool).collect::<Result<Vec<_>, _>>()?;
    let (mut exact_sums, mut sums) = (Sums::default(), vec![Sums::default(); pools.len()]);
    for window in tokens.chunks(context) {
        // The last token of a window has no next one.
        for start in (0..window.len() - 1).step_by(STEP) {
            let end = (start + STEP).min(window.len() - 1);
            let forward = |pool| model.forward_all(&window[start..end], start, pool, &table);
            let expected: Vec<_> = forward(&exact)?.into_iter().map(Prediction::new).collect();
            let next = &window[start + 1..=end];
            for (expected, next) in expected.iter().zip(next) {
                exact_sums.add(expected, expected, *next);
            }
            for (pool, sums) in pools.iter().zip(&mut sums) {
                let got = forward(pool)?.into_iter().map(Prediction::new);
                for ((got, expected), next) in got.zip(&expected).zip(next) {
                    sums.add(&got, expected, *next);
                }
            }
        }
    }
    Ok((exact_sums, sums))
}

/// What is said of one next token.
struct Prediction {
    logits: Vec<f32>,
    top: usize,
    /// Logarithm of the sum of their exponentials.
    normaliser: f64,
}

impl Prediction {
    fn new(logits: Vec<f32>) -> Self {
        let mut top = 0;
        for (id, logit) in logits.iter().enumerate() {
            if *logit > logits[top] {
                top = id;
            }
        }
        let most = logits[top];
        let sum: f64 = logits.iter().map(|l| f64::from((l - most).exp())).sum();
        Self {
            top,
            normaliser: f64::from(most) + sum.ln(),
            logits,
        }
    }
}

impl Sums {
    fn add(&mut self, got: &Prediction, expected: &Prediction, next: u32) {
        self.positions += 1;
        self.surprise += got.normaliser - f64::from(got.logits[next as usize]);
        self.agreed += usize::from(got.top == expected.top);
        let shift = expected.normaliser - got.normaliser;
        self.divergence += expected
            .logits
            .iter()
            .zip(&got.logits)
            .map(|(expected_logit, got)| {
                let log = f64::from(*expected_logit) - expected.normaliser;
                // log p - log q, where p = exp(log).
                log.exp() * (f64::from(expected_logit - got) - shift)
            })
            .sum::<f64>();
    }
}

fn line(row: &Row) -> String {
    let reason = row
        .reason
        .as_ref()
        .map_or(String::new(), |reason| format!("\n      {reason}"));
    format!(
        "{:<5} perplexity {:.3} ({:+.3} %), KL {:.6} nats, same first token {:.2} %, {} a token, over {} tokens{reason}",
        row.kv,
        row.perplexity,
        row.perplexity_change_percent,
        row.mean_kl,
        100.0 * row.top1_agreement,
        bytes(row.bytes_per_token),
        grouped(row.tokens as u64),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_surprise_divergence_and_agreement() {
        let expected = Prediction::new(vec![0.0, 0.0, 0.0, 0.0]);
        let got = Prediction::new(vec![0.0, 3f32.ln(), 0.0, 0.0]);
        let mut sums = Sums::default();
        sums.add(&got, &expected, 1);
        // q = (1, 3, 1, 1) / 6 and p = (1, 1, 1, 1) / 4.
        let divergence = 0.75 * (6f64 / 4.0).ln() + 0.25 * (6f64 / 12.0).ln();
        assert!((sums.surprise - 2f64.ln()).abs() < 1e-6);
        assert!((sums.divergence - divergence).abs() < 1e-6);
        assert_eq!((sums.positions, sums.agreed), (1, 0));
        sums.add(&expected, &expected, 0);
        assert!((sums.divergence - divergence).abs() < 1e-6);
        assert_eq!((sums.positions, sums.agreed), (2, 1));
    }
}

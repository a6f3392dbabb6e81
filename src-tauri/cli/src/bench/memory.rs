//! `bench memory`: what the memory plan says of a model and a conversation, and what this process then takes; and what
//! is left when the memory is given back.

use ::engine::machine::{peak_bytes, resident_bytes};
use ::engine::{Circumstances, plan_of};
use serde::Serialize;

use super::place::{Place, conversation, finish, question};
use super::{Setup, one_length};
use crate::arguments::BenchFlags;
use crate::error::{Error, Result};
use crate::output::{Output, bytes, grouped};

const TOKENS: u32 = 1500;

#[derive(Serialize)]
struct Row {
    bench: &'static str,
    model: String,
    prompt_tokens: u32,
    /// The plan for a context of that many tokens.
    planned_bytes: u64,
    weights_bytes: u64,
    kv_bytes: u64,
    scratch_bytes: u64,
    runtime_bytes: u64,
    /// Resident set before the model was loaded, with it, and after a turn over the whole context.
    started_bytes: u64,
    loaded_bytes: u64,
    measured_bytes: u64,
    measured_over_planned: f64,
    /// The most it has been.
    peak_bytes: u64,
    /// What the engine says it gave back, and the resident set then.
    freed_bytes: u64,
    released_bytes: u64,
    threads: usize,
}

pub(super) fn run(setup: &Setup, flags: &BenchFlags, output: &Output) -> Result<()> {
    let tokens = one_length(flags, TOKENS)?;
    let place = Place::new(setup)?;
    let started_bytes = known(resident_bytes())?;
    let app = place.start()?;
    let loaded_bytes = known(resident_bytes())?;
    let (id, leaf) = conversation(&app, tokens)?;
    let outcome = finish(&app, question(&id, &leaf, 1))?;
    // Until nothing is on its way to disk any more: what is measured depends on no race.
    app.engine()?.cache_stats()?;
    let measured_bytes = known(resident_bytes())?;
    let peak_bytes = known(peak_bytes())?;
    let around = Circumstances {
        threads: setup.num_threads as u64,
        ..Circumstances::default()
    };
    let plan = plan_of(
        &setup.model,
        Some(outcome.prompt_tokens.into()),
        setup.kv,
        &around,
    )?;
    let released = app.engine()?.release()?;
    let row = Row {
        bench: "memory",
        model: plan.model,
        prompt_tokens: outcome.prompt_tokens,
        planned_bytes: plan.total_bytes,
        weights_bytes: plan.weights_bytes,
        kv_bytes: plan.kv_bytes,
        scratch_bytes: plan.scratch_bytes,
        runtime_bytes: plan.runtime_bytes,
        started_bytes,
        loaded_bytes,
        measured_bytes,
        measured_over_planned: measured_bytes as f64 / plan.total_bytes as f64,
        peak_bytes,
        freed_bytes: released.freed_bytes,
        released_bytes: known(resident_bytes())?,
        threads: setup.num_threads,
    };
    output.line(&row, || sheet(&row))
}

fn known(bytes: Option<u64>) -> Result<u64> {
    bytes.ok_or_else(|| {
        Error::InvalidArgument(
            "this system does not say how much memory a process takes; measure on Linux or Windows"
                .into(),
        )
    })
}

fn sheet(row: &Row) -> String {
    format!(
        "{}, {} tokens, {} threads\n\
         planned    {} (weights {}, keys and values {}, scratch {}, program {})\n\
         measured   {} ({:.1} % of the plan), at most {}\n\
         before     {}, with the model {}\n\
         released   {} given back, {} left",
        row.model,
        grouped(row.prompt_tokens.into()),
        row.threads,
        bytes(row.planned_bytes),
        bytes(row.weights_bytes),
        bytes(row.kv_bytes),
        bytes(row.scratch_bytes),
        bytes(row.runtime_bytes),
        bytes(row.measured_bytes),
        100.0 * row.measured_over_planned,
        bytes(row.peak_bytes),
        bytes(row.started_bytes),
        bytes(row.loaded_bytes),
        bytes(row.freed_bytes),
        bytes(row.released_bytes)
    )
}

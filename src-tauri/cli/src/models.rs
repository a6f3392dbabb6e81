//! `models`: which files there are, adding one, what one says of itself.

use std::path::PathBuf;

use engine::{
    CONVERSATION_TOKENS, MemoryPlan, ModelEntry, Verdict, catalog, plan_of, reserve_context,
};
use serde::Serialize;
use serde_json::json;

use crate::app::App;
use crate::arguments::{ModelsCommand, When};
use crate::error::Result;
use crate::output::{Output, bytes, grouped};

pub(crate) fn run(
    command: ModelsCommand,
    data_dir: Option<PathBuf>,
    output: &Output,
) -> Result<()> {
    let app = App::open(data_dir, None)?;
    match command {
        ModelsCommand::Add { path } => {
            let entry = catalog::add(&mut app.history(), &app.models_folder(), &path)?;
            output.line(&entry, || line(&entry))
        }
        ModelsCommand::Remove { name, delete_file } => {
            let folder = app.models_folder();
            let removed = catalog::remove(&mut app.history(), &folder, &name, delete_file)?;
            output.line(&removed, || match removed.deleted {
                true => format!("{} is deleted", removed.path),
                false => format!("{name} is forgotten; {} stays", removed.path),
            })
        }
        ModelsCommand::Reserve { name, when } => {
            // A wrong name is told now.
            app.model_path(Some(&name))?;
            let whole_context = matches!(when, When::AtOnce);
            reserve_context(&mut app.history(), &name, whole_context)?;
            output.line(
                &json!({ "model": name, "reserves_context": whole_context }),
                || match whole_context {
                    true => {
                        format!("{name} takes the memory of its whole context when it is loaded")
                    }
                    false => format!("{name} takes memory as it is used"),
                },
            )
        }
        ModelsCommand::List => {
            let entries = catalog::list(&app.history(), &app.models_folder(), None)?;
            entries
                .iter()
                .try_for_each(|entry| output.line(entry, || line(entry)))
        }
        ModelsCommand::Inspect {
            name,
            context,
            pool_bytes,
            device,
        } => {
            let app = app.with_pool(pool_bytes).with_device(device);
            let path = app.model_path(Some(&name))?;
            let inspected = Inspected {
                info: ::models::inspect(&path)?,
                plan: plan_of(
                    &path,
                    context,
                    app.limits()?.kv.0,
                    &app.circumstances(&name)?,
                )?,
            };
            output.line(&inspected, || {
                format!(
                    "{}\n\n{}",
                    sheet(&inspected.info),
                    plan_sheet(&inspected.plan)
                )
            })
        }
    }
}

/// What a file says of itself, and the plan for it.
#[derive(Serialize)]
struct Inspected {
    #[serde(flatten)]
    info: ::models::ModelInfo,
    plan: MemoryPlan,
}

fn line(entry: &ModelEntry) -> String {
    let default = match entry.is_default {
        true => "  default",
        false => "",
    };
    format!(
        "{}  {}  {}  {}{default}",
        entry.name,
        entry.architecture,
        bytes(entry.file_bytes),
        entry.path
    )
}

fn sheet(info: &::models::ModelInfo) -> String {
    let heads = format!(
        "{} query, {} key/value, {} wide",
        info.num_heads, info.num_kv_heads, info.head_dim
    );
    [
        ("name", info.name.clone()),
        (
            "file",
            format!("{} ({})", info.path.display(), bytes(info.file_bytes)),
        ),
        ("architecture", info.architecture.clone()),
        (
            "weights",
            format!(
                "{}, mostly {}",
                grouped(info.num_parameters),
                info.quantization
            ),
        ),
        (
            "layers",
            format!("{}, {} wide", info.num_layers, info.hidden_size),
        ),
        ("heads", heads),
        ("vocabulary", grouped(info.vocab_size as u64)),
        (
            "context",
            format!("{} tokens", grouped(info.context_length as u64)),
        ),
        (
            "KV cache",
            format!(
                "{} a token in {}",
                bytes(info.kv_bytes_per_token),
                info.kv_format
            ),
        ),
    ]
    .into_iter()
    .chain(info.warning.clone().map(|warning| ("warning", warning)))
    .map(|(what, value)| format!("{what:<14}{value}"))
    .collect::<Vec<_>>()
    .join("\n")
}

fn plan_sheet(plan: &MemoryPlan) -> String {
    let conversation = grouped(CONVERSATION_TOKENS);
    let machine = match (plan.machine, plan.others_bytes) {
        (Some(machine), Some(others)) => format!(
            "{}, others hold {}",
            bytes(machine.total_bytes),
            bytes(others)
        ),
        _ => "this system does not say".into(),
    };
    let free = plan
        .disk
        .free_bytes
        .map_or_else(String::new, |free| format!(", {} free", bytes(free)));
    [
        (
            "memory for",
            format!(
                "{} tokens, keys and values as {}",
                grouped(plan.context_tokens),
                plan.kv.format
            ),
        ),
        ("weights", bytes(plan.weights_bytes)),
        (
            "KV cache",
            format!(
                "{} ({} a token)",
                bytes(plan.kv_bytes),
                bytes(plan.kv.bytes_per_token)
            ),
        ),
        (
            "reserved",
            match plan.reserved_bytes {
                0 => "as it is used".into(),
                reserved => format!("{} when it is loaded", bytes(reserved)),
            },
        ),
        ("scratch", bytes(plan.scratch_bytes)),
        ("program", bytes(plan.runtime_bytes)),
        (
            "together",
            format!("{}: {}", bytes(plan.total_bytes), verdict(plan)),
        ),
        ("machine", machine),
        (
            "longest",
            format!("{} tokens fit", grouped(plan.longest_context_tokens)),
        ),
        (
            "working pool",
            format!(
                "{}, {} conversations of {conversation} tokens",
                bytes(plan.pool_bytes),
                grouped(plan.resident_conversations)
            ),
        ),
        ("host memory", host_memory(plan)),
        (
            "disk",
            format!(
                "{} of {} used{free}, {} conversations of {conversation} tokens",
                bytes(plan.disk.used_bytes),
                bytes(plan.disk.budget_bytes),
                grouped(plan.disk.conversations)
            ),
        ),
    ]
    .into_iter()
    .filter(|(what, _)| plan.is_on_device || *what != "host memory")
    .map(|(what, value)| format!("{what:<14}{value}"))
    .collect::<Vec<_>>()
    .join("\n")
}

/// What the machine's memory is for, where a GPU has the working pool.
fn host_memory(plan: &MemoryPlan) -> String {
    let kept = format!(
        "{} for what makes way, {} conversations of {} tokens",
        bytes(plan.host.budget_bytes),
        grouped(plan.host.conversations),
        grouped(CONVERSATION_TOKENS)
    );
    match plan.offload {
        None => kept,
        Some(offload) => format!(
            "the GPU would need {} free; it computes {} of {} layers, the CPU the others",
            bytes(offload.needed_bytes),
            grouped(offload.device_layers),
            grouped(offload.num_layers)
        ),
    }
}

fn verdict(plan: &MemoryPlan) -> String {
    match &plan.verdict {
        Verdict::Fits => "fits".into(),
        Verdict::FitsWith { format } => format!("fits with {format}"),
        Verdict::Needs { needed_bytes } => format!("needs {}, does not fit", bytes(*needed_bytes)),
        Verdict::Unknown => "whether it fits is not known".into(),
    }
}

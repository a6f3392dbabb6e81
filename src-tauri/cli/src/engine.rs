//! `engine`: asks the process that holds the data folder for its memory. The folder's lock is not touched.

use std::path::PathBuf;

use ::engine::control::{self, Command};
use ::engine::{Answer, DeviceEntry, DeviceList, DeviceUse, MemoryStats, Released, TierUse};
use serde_json::json;
use store::DataFolder;

use crate::arguments::EngineCommand;
use crate::error::{Error, Result};
use crate::output::{Output, bytes, grouped};

pub(crate) fn run(
    command: EngineCommand,
    data_dir: Option<PathBuf>,
    output: &Output,
) -> Result<()> {
    if matches!(command, EngineCommand::Devices) {
        let list = DeviceList::now();
        return output.line(&list, || devices(&list));
    }
    let folder = DataFolder::locate(data_dir)?;
    let command = match command {
        EngineCommand::Release => Command::Release,
        EngineCommand::Memory | EngineCommand::Devices => Command::Memory,
    };
    match control::ask(&folder, command)? {
        None => output.line(&json!({ "running": false }), || {
            format!("no Reprise is running on {}", folder.display())
        }),
        Some(Answer::Released(released)) => {
            let object = json!({
                "running": true,
                "freed_bytes": released.freed_bytes,
                "was_loaded": released.was_loaded,
            });
            output.line(&object, || freed(released))
        }
        Some(Answer::Memory(stats)) => output.line(&stats, || sheet(&stats)),
        Some(other) => Err(Error::Internal(format!(
            "an answer to something else: {other:?}"
        ))),
    }
}

fn computed_on(device: &DeviceUse) -> String {
    match (&device.name, &device.reason) {
        (Some(name), reason) => {
            let part = match (device.num_layers, reason) {
                (Some(layers), Some(reason)) => {
                    format!("{name} for the first {layers} layers ({reason})")
                }
                _ => name.clone(),
            };
            let (free, total) = (bytes(device.free_bytes), bytes(device.total_bytes));
            let note = device.note.iter().map(|note| format!("; {note}"));
            format!("{part}, {free} of {total} free") + &note.collect::<String>()
        }
        (None, Some(reason)) => format!("the CPU: {reason}"),
        (None, None) => "the CPU".into(),
    }
}

fn freed(released: Released) -> String {
    match released.was_loaded {
        true => format!("{} given back", bytes(released.freed_bytes)),
        false => "no model was loaded; there is nothing to give back".into(),
    }
}

fn devices(list: &DeviceList) -> String {
    let line = |device: &DeviceEntry| {
        let memory = bytes(device.memory_bytes);
        format!(
            "{:<8}  {}, {memory}",
            device.choice.to_string(),
            device.name
        )
    };
    match &list.reason {
        Some(reason) => format!("no CUDA device, using CPU: {reason}"),
        None => list.devices.iter().map(line).collect::<Vec<_>>().join("\n"),
    }
}

fn sheet(stats: &MemoryStats) -> String {
    let tier = |tier: &TierUse| {
        format!(
            "{} in use, {} kept for later, {} taken of {}",
            bytes(tier.active_bytes),
            bytes(tier.cached_bytes),
            bytes(tier.reserved_bytes),
            bytes(tier.budget_bytes)
        )
    };
    let mut lines = vec![
        (
            "model",
            stats.model.clone().unwrap_or_else(|| "none loaded".into()),
        ),
        ("computed on", computed_on(&stats.device)),
        ("weights", bytes(stats.weights_bytes)),
        ("scratch", bytes(stats.scratch_bytes)),
        ("working pool", tier(&stats.pool)),
        (
            "",
            format!(
                "room for {} conversations of 4 096 tokens",
                grouped(stats.resident_conversations)
            ),
        ),
    ];
    if stats.host.budget_bytes > 0 {
        lines.push(("host memory", tier(&stats.host)));
        let room = grouped(stats.host_conversations);
        lines.push(("", format!("room for {room} more conversations")));
    }
    lines.push(("disk", tier(&stats.disk)));
    match (stats.machine, stats.others_bytes) {
        (Some(machine), Some(others)) => lines.extend([
            ("this process", bytes(machine.process_bytes)),
            (
                "others",
                format!("{} of {}", bytes(others), bytes(machine.total_bytes)),
            ),
        ]),
        _ => lines.push(("machine", "this system does not say".into())),
    }
    lines
        .into_iter()
        .map(|(what, value)| format!("{what:<14}{value}"))
        .collect::<Vec<_>>()
        .join("\n")
}

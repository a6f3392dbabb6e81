//! `models`: which files there are, adding one, what one says of itself.

use std::path::PathBuf;

use engine::{ModelEntry, catalog};

use crate::app::App;
use crate::arguments::ModelsCommand;
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
        ModelsCommand::List => {
            let entries = catalog::list(&app.history(), &app.models_folder(), None)?;
            entries
                .iter()
                .try_for_each(|entry| output.line(entry, || line(entry)))
        }
        ModelsCommand::Inspect { name } => {
            let info = ::models::inspect(&app.model_path(Some(&name))?)?;
            output.line(&info, || sheet(&info))
        }
    }
}

fn line(entry: &ModelEntry) -> String {
    format!(
        "{}  {}  {}  {}",
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
            format!("{} a token", bytes(info.kv_bytes_per_token)),
        ),
    ]
    .map(|(what, value)| format!("{what:<14}{value}"))
    .join("\n")
}

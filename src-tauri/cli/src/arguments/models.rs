//! `models`: model files.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use engine::DeviceChoice;

#[derive(Debug, Subcommand)]
pub(crate) enum ModelsCommand {
    /// Use a GGUF file where it is; `~` and `file://` are understood. A model whose file has moved is found again there
    Add { path: PathBuf },
    /// Which models there are
    List,
    /// Forget a model that was added by its path; its file stays
    Remove {
        name: String,
        /// Delete the file of a model that lies in the models folder
        #[arg(long)]
        delete_file: bool,
    },
    /// When the working pool takes the memory of a model's context: as it is used, or all of it when the model is loaded, so
    /// that no turn fails for memory later
    Reserve { name: String, when: When },
    /// What a model file says of itself, and what it would take in memory
    Inspect {
        name: String,
        /// Length of the context to plan for, in tokens (default: the model's own)
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        context: Option<u64>,
        /// Memory for conversations, in bytes (default: what is set, or a share of the memory that is free)
        #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
        pool_bytes: Option<u64>,
        /// What is to compute: auto, cpu, or cuda:0 (default: what is set, or auto)
        #[arg(long, value_name = "DEVICE")]
        device: Option<DeviceChoice>,
    },
}

/// When the pool allocates memory.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum When {
    AsUsed,
    AtOnce,
}

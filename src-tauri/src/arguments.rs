//! What may be said on the command line.

use std::path::PathBuf;

use clap::Parser;

/// Chat with language models on your own machine.
#[derive(Debug, Parser)]
#[command(name = "reprise", version)]
pub(crate) struct Arguments {
    /// Folder of the history, the models and the cache (default: the platform's folder for application data)
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

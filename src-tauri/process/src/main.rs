//! `reprise-engine`: the engine as a process of its own, started by the window and spoken to over the standard streams.
//!
//! It opens the data folder whose lock its parent holds, does what it is asked (`engine::process`), and ends, saved, when
//! the stream from its parent ends or a signal says so. It is not for people: `reprise-cli` is.

use std::io::{stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;
use engine::process::host::{self, Parent};
use engine::{Engine, EngineConfig, MemoryLimits};
use store::{BlockStore, DataFolder, History, Passphrase};
use tracing_subscriber::EnvFilter;

/// The engine of Reprise, for the window; people use reprise-cli
#[derive(Debug, Parser)]
#[command(name = "reprise-engine", version)]
struct Arguments {
    /// Folder of the history, the models and the cache, whose lock the parent holds
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Threads to compute with
    #[arg(long, value_name = "N")]
    threads: usize,
}

/// How long saving may take when a signal ends it.
const LONGEST_FAREWELL: Duration = Duration::from_secs(20);
/// The engine died inside this process.
const ENGINE_DIED: u8 = 70;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = EnvFilter::try_from_env("REPRISE_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    end_with_parent();
    let Ok((mut parent, passphrases)) = Parent::greet(stdin(), stdout()) else {
        return ExitCode::FAILURE;
    };
    let engine = match open(&arguments, &passphrases) {
        Ok(engine) => Arc::new(engine),
        Err(error) => {
            // Without a parent there is nobody to tell.
            let _ = parent.refuse(&error);
            return ExitCode::FAILURE;
        }
    };
    end_on_signal(Arc::clone(&engine));
    match parent.serve(&engine) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(ENGINE_DIED),
        Err(error) => {
            tracing::error!(%error, "the parent makes no sense");
            ExitCode::FAILURE
        }
    }
}

/// Starts the engine on the folder.
fn open(arguments: &Arguments, passphrases: &[Passphrase]) -> engine::Result<Engine> {
    let data = DataFolder::of_parent(&arguments.data_dir)?;
    let path = data.history_path();
    let unlocked = passphrases
        .iter()
        .find_map(|passphrase| History::join(&path, Some(passphrase)).ok());
    let history = match unlocked {
        Some(history) => history,
        // As it says itself why not.
        None => History::join(&path, passphrases.first())?,
    };
    let limits = MemoryLimits::read(&history)?;
    let seal = history.seal();
    let blocks = BlockStore::open_under(&data.kv_path(), limits.disk_budget(), seal);
    let config = EngineConfig {
        models_folder: data.models_path(),
        digests: Some(data.path().join("digests.json")),
        limits,
        threads: arguments.threads,
        clock: now_ms,
    };
    Engine::start(config, Arc::new(Mutex::new(history)), blocks)
}

/// The closed stream tells of the parent's end too; this tells also when something else holds it open.
fn end_with_parent() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, set_parent_process_death_signal};
        if let Err(error) = set_parent_process_death_signal(Some(Signal::TERM)) {
            tracing::warn!(%error, "the end of the parent will only show as a closed stream");
        }
    }
}

/// A signal that asks for the end: save, then end, whatever the parent does.
fn end_on_signal(engine: Arc<Engine>) {
    let handled = ctrlc::set_handler(move || {
        host::end_within(LONGEST_FAREWELL);
        engine.shutdown();
        std::process::exit(0);
    });
    if let Err(error) = handled {
        tracing::warn!(%error, "a signal will end the engine without saving");
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

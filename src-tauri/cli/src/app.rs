//! What the commands work on: the data folder, the history, and the engine where one is needed.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use engine::{Engine, EngineConfig, catalog};
use store::{BlockStore, Budget, DataFolder, History};

use crate::error::Result;

/// An open data folder; its lock is held for as long as this lives.
pub(crate) struct App {
    // Before the others, so that it has saved when they close.
    engine: OnceCell<Engine>,
    history: Arc<Mutex<History>>,
    data: DataFolder,
    threads: usize,
}

impl App {
    /// Takes the data folder and opens its history. No engine is started and no model loaded; when one is, it computes with
    /// `threads` threads (default: physical cores).
    pub(crate) fn open(data_dir: Option<PathBuf>, threads: Option<u16>) -> Result<Self> {
        let data = DataFolder::open(data_dir)?;
        let history = Arc::new(Mutex::new(History::open(&data.history_path())?));
        Ok(Self {
            engine: OnceCell::new(),
            history,
            data,
            threads: threads.map_or_else(EngineConfig::default_threads, usize::from),
        })
    }

    /// The engine, started at the first call.
    pub(crate) fn engine(&self) -> Result<&Engine> {
        if let Some(engine) = self.engine.get() {
            return Ok(engine);
        }
        let config = EngineConfig {
            models_folder: self.data.models_path(),
            digests: Some(self.data.path().join("digests.json")),
            pool_bytes: EngineConfig::DEFAULT_POOL_BYTES,
            threads: self.threads,
            kv: self.kv,
            clock: now_ms,
        };
        let engine = Engine::start(config, Arc::clone(&self.history), self.block_store())?;
        Ok(self.engine.get_or_init(|| engine))
    }

    /// The block store itself, for a command that runs no engine beside it.
    pub(crate) fn block_store(&self) -> BlockStore {
        BlockStore::open(&self.data.kv_path(), Budget::Default)
    }

    /// The history, for the length of one call.
    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        // A panic elsewhere leaves no half-done statement behind: SQLite rolls back.
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn models_folder(&self) -> PathBuf {
        self.data.models_path()
    }

    pub(crate) fn kv_folder(&self) -> PathBuf {
        self.data.kv_path()
    }

    /// The file of a model; of the default one without a name.
    pub(crate) fn model_path(&self, name: Option<&str>) -> Result<PathBuf> {
        Ok(catalog::resolve(
            &self.history(),
            &self.models_folder(),
            name,
        )?)
    }
}

/// The program's clock, handed down as a value.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

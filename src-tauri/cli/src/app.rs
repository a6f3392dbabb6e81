//! What the commands work on: the data folder, the history, and the engine where one is needed.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use engine::control::Control;
use engine::machine::Machine;
use engine::{
    Circumstances, DeviceChoice, DiskPlan, Engine, EngineConfig, KvChoice, MemoryLimits, catalog,
    reserves_context,
};
use kernels::KvFormat;
use store::{BlockStore, DataFolder, History};

use crate::error::{Error, Result};
use crate::passphrase;

/// An open data folder; its lock is held for as long as this lives.
pub(crate) struct App {
    // Before the others, so that it has saved when they close.
    engine: OnceCell<(Engine, Option<Control>)>,
    history: Arc<Mutex<History>>,
    data: DataFolder,
    threads: usize,
    /// Over what the user has set.
    pool_bytes: Option<u64>,
    kv: Option<KvFormat>,
    device: Option<DeviceChoice>,
}

impl App {
    /// Takes the data folder and opens its history. No engine is started and no model loaded; when one is, it computes with
    /// `threads` threads (default: physical cores).
    pub(crate) fn open(data_dir: Option<PathBuf>, threads: Option<u16>) -> Result<Self> {
        let data = DataFolder::open(data_dir)?;
        let history = passphrase::unlock(&data.history_path(), History::unlock)?;
        Ok(Self::of(data, history, threads))
    }

    /// Opens the folder for a command that changes nothing. If the folder is read-only or the disk is full, the history
    /// is opened for reading only.
    pub(crate) fn open_to_read(data_dir: Option<PathBuf>) -> Result<Self> {
        let failed = match Self::open(data_dir.clone(), None) {
            Err(Error::Store(error)) if error.is_read_only() || error.is_full() => error,
            opened => return opened,
        };
        let data = DataFolder::to_read(data_dir)?;
        if !data.history_path().exists() {
            return Err(failed.into());
        }
        tracing::debug!(%failed, "the history is only read");
        let history = passphrase::unlock(&data.history_path(), History::read)?;
        Ok(Self::of(data, history, None))
    }

    fn of(data: DataFolder, history: History, threads: Option<u16>) -> Self {
        Self {
            engine: OnceCell::new(),
            history: Arc::new(Mutex::new(history)),
            data,
            threads: threads.map_or_else(EngineConfig::default_threads, usize::from),
            pool_bytes: None,
            kv: None,
            device: None,
        }
    }

    /// With a working pool of this size, whatever the settings say.
    pub(crate) fn with_pool(self, pool_bytes: Option<u64>) -> Self {
        Self { pool_bytes, ..self }
    }

    /// With keys and values in this format, whatever the settings say.
    pub(crate) fn with_kv(self, kv: Option<KvFormat>) -> Self {
        Self { kv, ..self }
    }

    /// On this device, whatever the settings say.
    pub(crate) fn with_device(self, device: Option<DeviceChoice>) -> Self {
        Self { device, ..self }
    }

    /// What the user decided about memory.
    pub(crate) fn limits(&self) -> Result<MemoryLimits> {
        let limits = MemoryLimits::read(&self.history())?;
        Ok(MemoryLimits {
            pool_bytes: self.pool_bytes.or(limits.pool_bytes),
            kv: self.kv.map_or(limits.kv, KvChoice),
            device: self.device.unwrap_or(limits.device),
            ..limits
        })
    }

    /// The engine, started at the first call.
    pub(crate) fn engine(&self) -> Result<&Engine> {
        if let Some((engine, _)) = self.engine.get() {
            return Ok(engine);
        }
        let config = EngineConfig {
            models_folder: self.data.models_path(),
            digests: Some(self.data.path().join("digests.json")),
            limits: self.limits()?,
            threads: self.threads,
            clock: now_ms,
        };
        let engine = Engine::start(config, Arc::clone(&self.history), self.block_store()?)?;
        // Nothing is lost without it: this process ends soon and gives back what it has.
        let control = engine
            .listen(self.data.path())
            .inspect_err(|error| tracing::debug!(%error, "not to be reached from outside"))
            .ok();
        Ok(&self.engine.get_or_init(|| (engine, control)).0)
    }

    /// The block store itself, for a command that runs no engine beside it.
    pub(crate) fn block_store(&self) -> Result<BlockStore> {
        let budget = self.limits()?.disk_budget();
        let seal = self.history().seal();
        Ok(BlockStore::open_under(&self.data.kv_path(), budget, seal))
    }

    /// What a memory plan starts from besides the model.
    pub(crate) fn circumstances(&self, model: &str) -> Result<Circumstances> {
        let store = self.block_store()?;
        let stats = store.stats();
        let device = self.limits()?.device.open(self.threads).device;
        Ok(Circumstances {
            machine: match &device {
                Some(device) => Machine::of_device(device, 0),
                None => Machine::now(),
            },
            is_on_device: device.is_some(),
            host: Machine::now(),
            host_bytes: self.limits()?.host_bytes,
            threads: self.threads as u64,
            pool_bytes: self.limits()?.pool_bytes,
            reserves_context: reserves_context(&self.history(), model)?,
            disk: DiskPlan {
                budget_bytes: stats.budget_bytes,
                used_bytes: stats.file_bytes,
                free_bytes: store.free_bytes(),
                ..DiskPlan::default()
            },
        })
    }

    /// The history, to be shared.
    pub(crate) fn shared_history(&self) -> &Mutex<History> {
        &self.history
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

    /// Checks that a model of this name exists and can be used.
    pub(crate) fn require_model(&self, name: &str) -> Result<()> {
        Ok(catalog::require(
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

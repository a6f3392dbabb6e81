//! The data folder: where everything is, and the lock that lets one process use it at a time.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::file;

const LOCK_FILE: &str = "reprise.lock";

/// A locked data folder. A process that opens it hands it to the one it starts. The lock goes with this value, and with the process if that is killed.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    /// None where the process that started this one holds it.
    _lock: Option<File>,
}

impl DataFolder {
    /// The absolute path of what `open` would open. It may not exist, and another process may hold it.
    ///
    /// # Errors
    /// When the platform names no folder for application data.
    pub fn locate(path: Option<PathBuf>) -> Result<PathBuf> {
        let path = match path {
            Some(path) => path,
            None => dirs::data_dir().ok_or(Error::NoDataFolder)?.join("reprise"),
        };
        std::path::absolute(&path).map_err(|source| Error::Io { path, source })
    }

    /// Opens `path`, or `reprise` in the platform's folder for application data, and takes its lock.
    pub fn open(path: Option<PathBuf>) -> Result<Self> {
        let path = Self::locate(path)?;
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Io { path, source }
        };
        file::create_private_dir(&path).map_err(io(&path))?;
        // A folder that already holds other things keeps its mode: closing somebody's home or /tmp would do harm.
        if std::fs::read_dir(&path)
            .map_err(io(&path))?
            .next()
            .is_none()
        {
            file::make_private_dir(&path).map_err(io(&path))?;
        }
        let lock_path = path.join(LOCK_FILE);
        let lock = file::open_private(&lock_path).map_err(io(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::AlreadyRunning { folder: path }),
            Err(TryLockError::Error(source)) => {
                return Err(Error::Io {
                    path: lock_path,
                    source,
                });
            }
        }
        let folder = Self {
            path,
            _lock: Some(lock),
        };
        for own in [folder.kv_path(), folder.models_path()] {
            file::create_private_dir(&own).map_err(io(&own))?;
            file::make_private_dir(&own).map_err(io(&own))?;
        }
        Ok(folder)
    }

    /// As `open`; waits so long for another process to let it go.
    pub fn open_when_free(path: Option<PathBuf>, patience: Duration) -> Result<Self> {
        let start = Instant::now();
        loop {
            match Self::open(path.clone()) {
                Err(Error::AlreadyRunning { .. }) if start.elapsed() < patience => {
                    std::thread::sleep(patience.min(Duration::from_millis(50)));
                }
                opened => return opened,
            }
        }
    }

    /// A folder that the process which started this one has open, and keeps open.
    ///
    /// # Errors
    /// When the path cannot be made absolute.
    pub fn of_parent(path: &Path) -> Result<Self> {
        Ok(Self {
            path: Self::locate(Some(path.to_owned()))?,
            _lock: None,
        })
    }

    /// Opens a folder for reading only: nothing is created in it, and it is not locked.
    ///
    /// # Errors
    /// When the path cannot be made absolute.
    pub fn to_read(path: Option<PathBuf>) -> Result<Self> {
        Ok(Self {
            path: Self::locate(path)?,
            _lock: None,
        })
    }

    /// The folder, as an absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The history: one SQLite file.
    pub fn history_path(&self) -> PathBuf {
        self.path.join("history.db")
    }

    /// The block store's folder; it may be deleted while the application is not running.
    pub fn kv_path(&self) -> PathBuf {
        self.path.join("kv")
    }

    /// Model files the application fetched itself.
    pub fn models_path(&self) -> PathBuf {
        self.path.join("models")
    }
}

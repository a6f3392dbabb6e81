//! What the user decided about memory: kept as one setting of the history.

use kernels::KvFormat;
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::{Budget, History};
use ts_rs::TS;

use crate::device::DeviceChoice;
use crate::{Error, Result};

/// Setting that holds the limits.
const SETTING: &str = "memory_limits";
/// Idle minutes after which memory is given back where nothing else was decided.
const DEFAULT_IDLE_MINUTES: u32 = 15;
/// The least that can be given to the working pool, and to the disk.
const LEAST_BYTES: u64 = 16 << 20;

/// The format of keys and values as a setting: its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(try_from = "String", into = "String")]
#[ts(type = "string")]
pub struct KvChoice(pub KvFormat);

impl Default for KvChoice {
    fn default() -> Self {
        Self(KvFormat::Q8)
    }
}

impl TryFrom<String> for KvChoice {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse().map(Self)
    }
}

impl From<KvChoice> for String {
    fn from(choice: KvChoice) -> Self {
        choice.0.to_string()
    }
}

/// How much memory conversations may take, and when it is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct MemoryLimits {
    /// Bytes of the working pool; chosen from the memory plan when absent. Never exceeded.
    pub pool_bytes: Option<u64>,
    /// Bytes of the machine's memory for what makes way in a GPU's; chosen when absent, nothing when 0. Never exceeded.
    #[serde(default)]
    pub host_bytes: Option<u64>,
    /// Bytes of the block store on disk; its own default when absent.
    pub disk_bytes: Option<u64>,
    /// Minutes without use after which model and pool are given back; never when absent.
    pub idle_minutes: Option<u32>,
    /// Format of keys and values, where the model can have it: `f16`, `bf16`, `q8`, `q4`, or `keys/values`.
    #[serde(default)]
    pub kv: KvChoice,
    /// What is to compute, and so whose memory the working pool takes: `auto`, `cpu`, or `cuda:0`.
    #[serde(default)]
    pub device: DeviceChoice,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self {
            pool_bytes: None,
            host_bytes: None,
            disk_bytes: None,
            idle_minutes: Some(DEFAULT_IDLE_MINUTES),
            kv: KvChoice::default(),
            device: DeviceChoice::default(),
        }
    }
}

impl MemoryLimits {
    /// A pool of this size, no limit on disk but its default, nothing given back by itself.
    pub fn pool(pool_bytes: u64) -> Self {
        Self {
            pool_bytes: Some(pool_bytes),
            host_bytes: None,
            disk_bytes: None,
            idle_minutes: None,
            kv: KvChoice::default(),
            device: DeviceChoice::default(),
        }
    }

    /// What was decided, or the default. A setting that cannot be read is the default.
    ///
    /// # Errors
    /// When history cannot be read.
    pub fn read(history: &History) -> Result<Self> {
        let setting = history.setting(SETTING)?;
        Ok(setting
            .and_then(|value| serde_json::from_value(value).ok())
            .unwrap_or_default())
    }

    /// Keeps them.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when they make no sense; when history cannot be written.
    pub fn write(&self, history: &mut History) -> Result<()> {
        self.check()?;
        Ok(history.set_setting(SETTING, &json!(self))?)
    }

    /// Budget of the block store.
    pub fn disk_budget(&self) -> Budget {
        self.disk_bytes.map_or(Budget::Default, Budget::Bytes)
    }

    pub(crate) fn idle_ms(&self) -> Option<i64> {
        self.idle_minutes.map(|minutes| i64::from(minutes) * 60_000)
    }

    fn check(&self) -> Result<()> {
        let too_small = |bytes: Option<u64>| bytes.is_some_and(|bytes| bytes < LEAST_BYTES);
        let host_bytes = self.host_bytes.filter(|bytes| *bytes > 0);
        if too_small(self.pool_bytes) || too_small(host_bytes) || too_small(self.disk_bytes) {
            return Err(Error::InvalidArgument(format!(
                "memory and disk for conversations must be at least {} MiB each",
                LEAST_BYTES >> 20
            )));
        }
        if self.idle_minutes == Some(0) {
            return Err(Error::InvalidArgument(
                "give memory back after one minute or more, or never".into(),
            ));
        }
        Ok(())
    }
}

/// Whether a model's pool takes the memory of one whole context when it is loaded; else it takes memory as it is used.
///
/// # Errors
/// When history cannot be read.
pub fn reserves_context(history: &History, model: &str) -> Result<bool> {
    let setting = history.setting(&reserving(model))?;
    Ok(setting.and_then(|value| value.as_bool()).unwrap_or(false))
}

/// Decides [`reserves_context`], from the next time that the model is loaded.
///
/// # Errors
/// When history cannot be written.
pub fn reserve_context(history: &mut History, model: &str, on: bool) -> Result<()> {
    Ok(history.set_setting(&reserving(model), &json!(on))?)
}

/// The key under which history keeps it.
fn reserving(model: &str) -> String {
    format!("reserve_context.{model}")
}

#[cfg(test)]
mod tests {
    use super::{DeviceChoice, KvChoice, MemoryLimits, SETTING};
    use kernels::KvFormat;
    use store::History;

    fn history() -> (tempfile::TempDir, History) {
        let folder = tempfile::tempdir().unwrap();
        let history = History::open(&folder.path().join("history.db")).unwrap();
        (folder, history)
    }

    #[test]
    fn what_was_decided_is_kept_and_nonsense_is_refused() {
        let (_folder, mut history) = history();
        assert_eq!(
            MemoryLimits::read(&history).unwrap(),
            MemoryLimits::default()
        );
        let limits = MemoryLimits {
            pool_bytes: Some(1 << 30),
            host_bytes: Some(0),
            disk_bytes: Some(5 << 30),
            idle_minutes: None,
            kv: KvChoice(KvFormat::F16),
            device: DeviceChoice::Cuda(1),
        };
        limits.write(&mut history).unwrap();
        assert_eq!(MemoryLimits::read(&history).unwrap(), limits);
        for refused in [
            MemoryLimits {
                pool_bytes: Some(0),
                ..limits
            },
            MemoryLimits {
                host_bytes: Some(1),
                ..limits
            },
            MemoryLimits {
                disk_bytes: Some(1),
                ..limits
            },
            MemoryLimits {
                idle_minutes: Some(0),
                ..limits
            },
        ] {
            assert!(refused.write(&mut history).is_err(), "{refused:?}");
        }
        assert_eq!(MemoryLimits::read(&history).unwrap(), limits);
    }

    #[test]
    fn limits_from_before_there_was_a_choice_of_format_keep_the_default_one() {
        let (_folder, mut history) = history();
        let old = serde_json::json!({"pool_bytes": null, "disk_bytes": 1 << 30, "idle_minutes": 5});
        history.set_setting(SETTING, &old).unwrap();
        let limits = MemoryLimits::read(&history).unwrap();
        assert_eq!(
            (limits.kv, limits.idle_minutes),
            (KvChoice(KvFormat::Q8), Some(5))
        );
    }

    #[test]
    fn a_setting_that_cannot_be_read_is_the_default() {
        let (_folder, mut history) = history();
        history
            .set_setting(SETTING, &serde_json::json!("much"))
            .unwrap();
        assert_eq!(
            MemoryLimits::read(&history).unwrap(),
            MemoryLimits::default()
        );
    }
}

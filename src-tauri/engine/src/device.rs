//! What computes: the CPU, or a GPU that was found to compute what the CPU does.
//!
//! A machine without a usable GPU is no error: the CPU is used, and why is said. A device is opened when a model is first
//! loaded, and closed when memory is given back.

use std::sync::Arc;

use kernels::cuda::{self, Device, DeviceInfo, Trial, Unavailable, self_test};
use kernels::{Error, Team};
use serde::{Deserialize, Serialize};
use ts_rs::TS;

use crate::plan::left_to_driver;

/// What is to compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(try_from = "String", into = "String")]
#[ts(type = "string")]
pub enum DeviceChoice {
    /// The GPU with the most memory, or the CPU where there is none: `auto`.
    #[default]
    Auto,
    /// The CPU: `cpu`.
    Cpu,
    /// The GPU of this number, from 0, or the CPU where that cannot be used: `cuda:0`.
    Cuda(usize),
}

impl std::str::FromStr for DeviceChoice {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            name => name
                .strip_prefix("cuda:")
                .and_then(|ordinal| ordinal.parse().ok())
                .map(Self::Cuda)
                .ok_or_else(|| format!("no device is called {name}; say auto, cpu or cuda:0")),
        }
    }
}

impl TryFrom<String> for DeviceChoice {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse()
    }
}

impl std::fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

impl From<DeviceChoice> for String {
    fn from(choice: DeviceChoice) -> Self {
        choice.to_string()
    }
}

/// A GPU of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct DeviceEntry {
    /// By which it is chosen: `cuda:0`.
    pub choice: DeviceChoice,
    /// As the driver calls it.
    pub name: String,
    /// All of its memory, in bytes.
    pub memory_bytes: u64,
}

/// The GPUs of this machine, and why there is none to use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct DeviceList {
    /// All of them, in the driver's order.
    pub devices: Vec<DeviceEntry>,
    /// Why there is none; absent where there is one.
    pub reason: Option<String>,
}

/// What runs the loaded model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct DeviceUse {
    /// The GPU's name; absent where the CPU computes.
    pub name: Option<String>,
    /// Why it is the CPU, or the GPU for some layers only; absent where that was chosen.
    pub reason: Option<String>,
    /// Layers that the GPU computes, from the first on; absent where it computes all, or none.
    pub num_layers: Option<usize>,
    /// The GPU's memory, in bytes.
    pub total_bytes: u64,
    /// What of it nobody holds, in bytes.
    pub free_bytes: u64,
    /// What makes it slow; absent where nothing is known to.
    pub note: Option<String>,
}

/// What is said where a GPU's memory is full that the plan left a part of: other programs have taken it. Windows gives out more than
/// there is, and moves parts of it into the machine's memory, which kernels then read at the speed of the link; elsewhere the
/// driver refuses.
pub(crate) fn crowded(total_bytes: u64, free_bytes: u64, is_windows: bool) -> Option<String> {
    // The driver itself takes less than the rest of what is left to it.
    let is_full = free_bytes < left_to_driver(total_bytes) / 4;
    (is_windows && is_full).then(|| {
        "other programs have filled the GPU's memory, and Windows may have moved a part of the model into the machine's, \
         from where it is slow; close programs that use the GPU"
            .to_owned()
    })
}

impl DeviceList {
    /// Asks the driver.
    pub fn now() -> Self {
        match cuda::devices() {
            Err(reason) => Self {
                devices: Vec::new(),
                reason: Some(reason.to_string()),
            },
            Ok(devices) => {
                let devices = devices.into_iter().map(|device| DeviceEntry {
                    choice: DeviceChoice::Cuda(device.ordinal),
                    name: device.name,
                    memory_bytes: device.memory_bytes,
                });
                Self {
                    devices: devices.collect(),
                    reason: None,
                }
            }
        }
    }
}

/// The device that was chosen, once it was asked for, and how devices stood their trials.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    opened: Option<(DeviceChoice, Chosen)>,
    /// Quarters of its room that are not counted on: the driver gave less than it said, or another program was faster.
    pub(crate) withheld: u64,
    /// They outlive a device that is closed.
    tried: Vec<Tried>,
}

/// How a device stood a trial.
#[derive(Debug)]
struct Tried {
    ordinal: usize,
    trial: Trial,
    failure: Option<Unavailable>,
}

/// What a choice gave.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    /// The GPU; the CPU computes where there is none.
    pub device: Option<Arc<Device>>,
    /// Layers of a model that it is to have, from the first on; all when absent.
    pub num_layers: Option<usize>,
    /// Why there is none; absent where the CPU was chosen.
    pub reason: Option<String>,
}

impl Devices {
    /// What is to compute, opened and tested the first time.
    pub(crate) fn get(&mut self, choice: DeviceChoice, threads: usize) -> Chosen {
        match &self.opened {
            Some((opened, chosen)) if *opened == choice => chosen.clone(),
            _ => {
                self.close();
                let chosen = choice.open(threads);
                self.opened = Some((choice, chosen.clone()));
                chosen
            }
        }
    }

    /// What is wrong with a device, if something is. `run` runs a trial there, each once: a GPU that computed wrongly is not trusted
    /// again.
    ///
    /// # Errors
    /// [`Error::Memory`] or [`Error::DeviceMemory`] where there is none left on the device; the next one tries again.
    pub(crate) fn try_out(
        &mut self,
        device: &DeviceInfo,
        trials: &[Trial],
        run: impl Fn(&Trial) -> Result<(), Error>,
    ) -> Result<Option<Unavailable>, Error> {
        for trial in trials {
            let is_this = |it: &&Tried| (it.ordinal, &it.trial) == (device.ordinal, trial);
            let failure = match self.tried.iter().find(is_this) {
                Some(tried) => tried.failure.clone(),
                None => {
                    let failure = match run(trial) {
                        Ok(()) => None,
                        Err(error @ (Error::Memory { .. } | Error::DeviceMemory { .. })) => {
                            return Err(error);
                        }
                        Err(error) => Some(failed(device, &error)),
                    };
                    self.tried.push(Tried {
                        ordinal: device.ordinal,
                        trial: trial.clone(),
                        failure: failure.clone(),
                    });
                    failure
                }
            };
            if failure.is_some() {
                return Ok(failure);
            }
        }
        Ok(None)
    }

    /// Lets go of the device; whoever has it still has it.
    pub(crate) fn close(&mut self) {
        self.opened = None;
        self.withheld = 0;
    }
}

impl DeviceChoice {
    /// Opens what was chosen, and compares it with the CPU, which computes with so many threads.
    pub fn open(self, threads: usize) -> Chosen {
        match self {
            Self::Cpu => Chosen::default(),
            Self::Cuda(ordinal) => said(tested(ordinal, threads)),
            Self::Auto => said(largest(threads)),
        }
    }
}

/// The device with the most memory that can be used; why not the first of them, where none can.
fn largest(threads: usize) -> Result<Arc<Device>, Unavailable> {
    let mut devices = cuda::devices()?;
    devices.sort_by_key(|device| std::cmp::Reverse(device.memory_bytes));
    let mut opened = devices.iter().map(|device| tested(device.ordinal, threads));
    let first = opened.next().unwrap_or(Err(Unavailable::NoDevice));
    first.or_else(|reason| opened.find_map(Result::ok).ok_or(reason))
}

/// A device that did not stand its trial.
fn failed(device: &DeviceInfo, error: &Error) -> Unavailable {
    Unavailable::SelfTest {
        name: device.name.clone(),
        reason: error.to_string(),
    }
}

/// What is chosen where a device was to be opened, or tried, and what of it is told.
pub(crate) fn said(opened: Result<Arc<Device>, Unavailable>) -> Chosen {
    match opened {
        Ok(device) => {
            tracing::info!(device = device.info().name, "the GPU is used");
            Chosen {
                device: Some(device),
                ..Chosen::default()
            }
        }
        Err(reason) => {
            tracing::info!(%reason, "no CUDA device, using CPU");
            Chosen {
                reason: Some(reason.to_string()),
                ..Chosen::default()
            }
        }
    }
}

fn tested(ordinal: usize, threads: usize) -> Result<Arc<Device>, Unavailable> {
    let device = Device::open(ordinal)?;
    self_test(&device, &Team::new(threads))?;
    Ok(device)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use kernels::cuda::{DeviceInfo, Trial};
    use kernels::{Error, KvFormat, Result};
    use models::Architecture;
    use models::tiny::{self, TinyModel};

    use super::{DeviceChoice, Devices, crowded};
    use crate::plan::left_to_driver;

    fn trials(architecture: Architecture) -> Vec<Trial> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny.gguf");
        tiny::write(&path, &TinyModel::new(architecture, 1)).unwrap();
        models::trials(&path, KvFormat::Q8).unwrap()
    }

    #[test]
    fn a_device_is_tried_once_with_each_kind_of_model_and_not_trusted_after_it_failed() {
        let [llama, qwen] = [Architecture::Llama, Architecture::Qwen2].map(trials);
        let info = |ordinal| DeviceInfo {
            ordinal,
            name: "A".into(),
            compute_capability: 80,
            memory_bytes: 1,
        };
        let (mut devices, runs) = (Devices::default(), Cell::new(0));
        let mut ask = |ordinal, trials: &[Trial], outcome: fn() -> Result<()>| {
            let run = |_: &Trial| {
                runs.set(runs.get() + 1);
                outcome()
            };
            let failure = devices.try_out(&info(ordinal), trials, run);
            let failure = failure.map(|failure| failure.map(|reason| reason.to_string()));
            (failure.ok(), runs.replace(0))
        };
        let wrong = || Err(Error::Unfilled);
        assert_eq!(ask(0, &llama, || Ok(())), (Some(None), 1));
        assert_eq!(ask(0, &llama, wrong), (Some(None), 0));
        // Of another device, and with another model.
        let said = "A failed its self-test: the keys and values before these tokens did not come";
        assert_eq!(ask(1, &llama, wrong), (Some(Some(said.into())), 1));
        assert_eq!(ask(1, &llama, || Ok(())), (Some(Some(said.into())), 0));
        // What has no memory has not failed.
        let full = || Err(Error::Memory { bytes: 1 });
        assert_eq!(ask(0, &qwen, full), (None, 1));
        assert_eq!(ask(0, &qwen, || Ok(())), (Some(None), 1));
    }

    #[test]
    fn a_choice_is_read_as_it_is_written_and_others_are_refused() {
        for choice in [DeviceChoice::Auto, DeviceChoice::Cpu, DeviceChoice::Cuda(3)] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        for wrong in ["", "gpu", "cuda", "cuda:", "cuda:-1", "CPU"] {
            assert!(wrong.parse::<DeviceChoice>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_full_gpu_is_told_where_windows_gives_out_more_than_there_is() {
        let gib = 1 << 30;
        assert!(crowded(8 * gib, gib / 32, true).is_some());
        for total in [8 * gib, 80 * gib] {
            let left = left_to_driver(total);
            assert_eq!(crowded(total, left, true), None, "as the plan leaves");
        }
        assert_eq!(crowded(8 * gib, 0, false), None, "there it is refused");
        assert_eq!(crowded(0, 0, true), None, "the driver does not say");
    }
}

//! What computes: the CPU, or a GPU that was found to compute what the CPU does.
//!
//! A machine without a usable GPU is no error: the CPU is used, and why is said. A device is opened when a model is first
//! loaded, and closed when memory is given back.

use std::sync::Arc;

use kernels::cuda::{self, Device, Unavailable};
use kernels::{Team, cuda::self_test};
use serde::{Deserialize, Serialize};
use ts_rs::TS;

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

/// The device that was chosen, once it was asked for.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    opened: Option<(DeviceChoice, Chosen)>,
    /// Quarters of its room that are not counted on: the driver gave less than it said, or another program was faster.
    pub(crate) withheld: u64,
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

fn said(opened: Result<Arc<Device>, Unavailable>) -> Chosen {
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
    use super::DeviceChoice;

    #[test]
    fn a_choice_is_read_as_it_is_written_and_others_are_refused() {
        for choice in [DeviceChoice::Auto, DeviceChoice::Cpu, DeviceChoice::Cuda(3)] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        for wrong in ["", "gpu", "cuda", "cuda:", "cuda:-1", "CPU"] {
            assert!(wrong.parse::<DeviceChoice>().is_err(), "{wrong}");
        }
    }
}
